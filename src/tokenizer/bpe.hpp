#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.hpp"
#include "src/tokenizer/token_table.hpp"

namespace troupe {

struct BpeOptions {
  bool byte_level = false;     ///< pieces are bytes, each a symbol; tokens are spelt in the byte alphabet. Else the symbols are code points
  bool ignore_merges = false;  ///< a piece that is a token is taken whole
  bool byte_fallback = false;  ///< a code point that is no token becomes its bytes' tokens <0x00> … <0xFF>
  bool fuse_unk = false;       ///< unknown code points in a row are one unknown token
  std::optional<std::string> unk_token = {};
};

/// The byte-pair encoding of pieces. Immutable: any thread.
class BpeModel {
 public:
  struct Vocabulary {
    std::vector<std::string> tokens;                            ///< as spelt in the file
    std::vector<std::int32_t> ids;                              ///< of each token
    std::vector<std::pair<std::string, std::string>> merges{};  ///< best first
  };
  /// Errors name the entry: a merge of what is no token, or to what is none (with ignore_merges such a merge is left out), an id below 0.
  [[nodiscard]] static Result<std::shared_ptr<const BpeModel>> build(const Vocabulary& vocabulary, const BpeOptions& options);
  /// Tokens are byte strings, the id of each its rank, and two neighbours merge whenever their bytes together are a token: tiktoken's files.
  [[nodiscard]] static Result<std::shared_ptr<const BpeModel>> from_ranks(const std::vector<std::string>& tokens);

  [[nodiscard]] const BpeOptions& options() const noexcept { return options_; }
  [[nodiscard]] std::optional<std::int32_t> whole(std::string_view piece) const noexcept { return whole_.find(piece); }
  [[nodiscard]] const MergeTable& merges() const noexcept { return merges_; }
  /// Where a piece of code points surely parts: the end of its first part, after `from`. No merge makes a token in which the characters on both sides of
  /// such a place stand side by side, so that the parts can be merged each alone.
  [[nodiscard]] std::size_t part_end(std::string_view piece, std::size_t from) const noexcept;
  /// The symbols that a piece begins as.
  void symbols_of(std::string_view piece, std::vector<std::int32_t>& out) const;

 private:
  static constexpr std::int32_t missing = -1;
  BpeModel() = default;
  [[nodiscard]] std::int32_t of_code_point(char32_t point) const noexcept;
  void index_code_points(const Vocabulary& vocabulary);
  void note_neighbours(std::string_view token);
  static std::size_t pair_of(char32_t left, char32_t right) noexcept { return (left * 0x9e3779b1U ^ right * 0x85ebca6bU) >> 8U & 0x3ffffU; }
  BpeOptions options_;
  TokenTable whole_;  ///< by the bytes of a piece
  MergeTable merges_;
  std::array<std::int32_t, 256> bytes_{};  ///< of a byte; byte level: the symbol, else the token <0xHH>
  std::vector<std::int32_t> block_of_;     ///< code points by blocks of 256: index of the block, or missing
  std::vector<std::array<std::int32_t, 256>> blocks_;
  std::int32_t unk_ = missing;
  std::vector<bool> joined_;  ///< by a hash of two code points: whether they may stand side by side in a merged token; empty where nothing is known
};

/// Encodes pieces, and remembers those that it met; one thread.
class BpeEncoder {
 public:
  explicit BpeEncoder(std::shared_ptr<const BpeModel> model);
  void encode(std::string_view piece, std::vector<std::int32_t>& out);

 private:
  static constexpr std::size_t longest_key = 31, most_ids = 7, slots = std::size_t{1} << 15U;
  /// A piece and its ids: one cache line.
  struct alignas(64) Known {
    std::array<char, longest_key> key;
    std::uint8_t bytes;  ///< of the key; 0: free
    bool as_whole;       ///< a piece that may be taken whole, not a part of one
    std::uint8_t count;
    std::array<std::int32_t, most_ids> ids;
  };
  /// `as_whole`: it is taken whole where it is a token.
  void encode_part(std::string_view piece, bool as_whole, std::vector<std::int32_t>& out);
  void merge(std::vector<std::int32_t>& symbols);
  void merge_few(std::vector<std::int32_t>& symbols);
  void merge_many(std::vector<std::int32_t>& symbols);
  std::shared_ptr<const BpeModel> model_;
  std::vector<Known> known_ = std::vector<Known>(slots, Known{{}, 0, false, 0, {}});
  std::vector<std::int32_t> symbols_;
  std::vector<MergeTable::Merge> next_;
};

}  // namespace troupe
