#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.hpp"
#include "src/tokenizer/added_tokens.hpp"
#include "src/tokenizer/bpe.hpp"
#include "src/tokenizer/decoder.hpp"
#include "src/tokenizer/normalizer.hpp"
#include "src/tokenizer/pre_tokenizer.hpp"

namespace troupe {

/// What a tokenizer's file says, in the order of its use.
struct TokenizerParts {
  std::string name;  ///< the file, for messages
  std::vector<AddedToken> added = {};
  std::vector<NormalizerStep> normalizer = {};
  std::vector<PreTokenizerStep> pre_tokenizer = {};
  std::shared_ptr<const BpeModel> model = {};
  std::vector<std::int32_t> before = {}, after = {};  ///< what its post-processor puts around a text
  std::vector<DecoderStep> decoder = {};
  std::vector<TokenText> texts = {};  ///< by id
  std::optional<std::int32_t> bos = {}, eos = {};
  std::uint64_t hash = 0;                  ///< of all that decides ids
  std::vector<std::string> warnings = {};  ///< what a user should know though the file can be used
};

/// A tokenizer of a file: Hugging Face's tokenizer.json with a BPE model, or tiktoken's list of ranks. Immutable: any thread.
class Tokenizer {
 public:
  /// `path`: a tokenizer.json, a tiktoken file, or a folder that holds one (tokenizer.json, tokenizer.model, original/tokenizer.model). Errors name the
  /// file, the place in it, and what is not supported.
  [[nodiscard]] static Result<std::shared_ptr<const Tokenizer>> load(const std::string& path);
  explicit Tokenizer(TokenizerParts parts);

  [[nodiscard]] const TokenizerParts& parts() const noexcept { return parts_; }
  /// One more than the largest id that it can give.
  [[nodiscard]] std::int32_t vocabulary() const noexcept { return static_cast<std::int32_t>(parts_.texts.size()); }
  [[nodiscard]] std::optional<std::int32_t> id_of(std::string_view token) const;
  /// Bytes are joined first and decoded then. An id that is no token's gives nothing.
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids, bool skip_special = true) const;

 private:
  friend class TokenEncoder;
  TokenizerParts parts_;
  AddedTokenFinder raw_, normalized_;
  std::vector<bool> special_;  ///< by id
};

struct EncodeOptions {
  bool around = false;           ///< with what the post-processor puts around a text, such as the beginning-of-sequence token
  bool special_in_text = false;  ///< text that spells a special token becomes it; else it is text
  bool count_special = false;    ///< count special tokens that the text spells, whatever becomes of them
};

/// Encodes texts; one thread. What it has learnt of a text's pieces makes the next ones faster.
class TokenEncoder {
 public:
  explicit TokenEncoder(std::shared_ptr<const Tokenizer> tokenizer);
  /// Appends the ids of `text`, bytes that are no UTF-8 read as U+FFFD. Throws std::runtime_error where a pattern takes too many steps on it.
  void encode(std::string_view text, const EncodeOptions& options, std::vector<std::int32_t>& out);
  [[nodiscard]] const Tokenizer& tokenizer() const noexcept { return *tokenizer_; }
  /// Special tokens that texts encoded with `count_special` spell.
  [[nodiscard]] std::uint64_t special_spelled() const noexcept { return special_spelled_; }
  void set_special_spelled(std::uint64_t count) noexcept { special_spelled_ = count; }

 private:
  void count_special(std::string_view text);
  void encode_part(std::string_view text, bool at_start, std::vector<std::int32_t>& out);
  std::shared_ptr<const Tokenizer> tokenizer_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  BpeEncoder bpe_;
  std::vector<TextPart> parts_, inner_;
  std::string valid_, normal_;
  PieceList list_;
  std::uint64_t special_spelled_ = 0;
};

/// Turns tokens to text as they come: gives what is complete, and holds back the beginning of a character. One thread.
class StreamDecoder {
 public:
  explicit StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special = true)
      : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {}
  [[nodiscard]] std::string next(std::int32_t id);
  /// What is left, with U+FFFD for what is no character.
  [[nodiscard]] std::string finish();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_;
  std::vector<std::int32_t> ids_;
  std::size_t held_ = 0;  ///< tokens since the last text was given
  std::size_t told_ = 0;  ///< bytes of the text of ids_ that were given
};

}  // namespace troupe
