#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/data/corpus.hpp"

namespace troupe {

/// A token that is no target, such as one of a prompt, is given as the complement of its id.
[[nodiscard]] constexpr std::int32_t not_a_target(std::int32_t id) noexcept { return ~id; }
[[nodiscard]] constexpr bool is_target(std::int32_t token) noexcept { return token >= 0; }
[[nodiscard]] constexpr std::int32_t id_of_token(std::int32_t token) noexcept { return token < 0 ? ~token : token; }

/// Reads tokens of documents; one thread.
class TokenReader {
 public:
  virtual ~TokenReader() = default;
  /// Tokens [first, first + out.size()) of document `i`, without marks, those that are no targets as not_a_target. Throws std::runtime_error naming file and
  /// place.
  virtual void read(std::uint64_t i, std::uint64_t first, std::span<std::int32_t> out) = 0;
};

/// Documents as tokens, in the order of the files, without the marks that a sampler puts around them. Immutable: any thread.
class TokenDocuments {
 public:
  virtual ~TokenDocuments() = default;
  [[nodiscard]] virtual std::uint64_t documents() const noexcept = 0;
  /// Of all documents together.
  [[nodiscard]] virtual std::uint64_t total_tokens() const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t tokens(std::uint64_t i) const noexcept = 0;
  /// One more than the largest id.
  [[nodiscard]] virtual std::int64_t vocabulary() const noexcept = 0;
  /// The marks, where the tokenizer has them.
  [[nodiscard]] virtual std::optional<std::int32_t> bos() const noexcept = 0;
  [[nodiscard]] virtual std::optional<std::int32_t> eos() const noexcept = 0;
  /// "3 files, 120 documents, 4096 bytes of text"
  [[nodiscard]] virtual std::string describe() const = 0;
  /// Where document `i` stands: "data.txt at byte 28272".
  [[nodiscard]] virtual std::string place(std::uint64_t i) const = 0;
  /// `read_file`: how a file is read, empty for pread; what is mapped is looked at through it, a byte for each read.
  [[nodiscard]] virtual std::unique_ptr<TokenReader> reader(ReadFile read_file) const = 0;
  /// By the file numbers that a ReadFile is told.
  [[nodiscard]] virtual std::vector<DataFile> files() const = 0;
};

/// A corpus whose bytes are its tokens.
[[nodiscard]] std::shared_ptr<const TokenDocuments> byte_documents(std::shared_ptr<const Corpus> corpus);

}  // namespace troupe
