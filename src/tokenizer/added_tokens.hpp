#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// A token that is cut out of a text before anything else sees it.
struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool special = false;  ///< decoding may leave it out
  bool single_word = false, lstrip = false, rstrip = false;
  bool normalized = false;  ///< looked for in the normalised text
};

/// Part of a text: an added token, or (token < 0) text between two.
struct TextPart {
  std::uint32_t begin = 0, end = 0;
  std::int32_t token = -1;
};

/// Finds a set of strings in a text: of those that match at the leftmost place the longest. Immutable: any thread.
class AddedTokenFinder {
 public:
  AddedTokenFinder() = default;
  /// `spellings`: what is looked for, one a token.
  AddedTokenFinder(std::vector<AddedToken> tokens, const std::vector<std::string>& spellings);
  /// Cuts `text` into parts that together are all of it. `leave_special`: special tokens are text like any other.
  void cut(std::string_view text, bool leave_special, std::vector<TextPart>& out) const;
  [[nodiscard]] bool empty() const noexcept { return tokens_.empty(); }

 private:
  struct Node {
    std::int32_t token = -1;                                          ///< index of the token that ends here
    std::vector<std::pair<unsigned char, std::uint32_t>> children{};  ///< sorted
  };
  /// Index of the longest token at `at`, or -1.
  [[nodiscard]] std::int32_t longest_at(std::string_view text, std::size_t at, std::size_t& end) const noexcept;
  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  bool begins_[256] = {};
};

}  // namespace troupe
