#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Bytes [begin, end) of a text.
struct Piece {
  std::uint32_t begin = 0, end = 0;
};

/// A text on its way through the pre-tokeniser's steps: what it reads now, and the pieces that it is cut into, in their order.
struct PieceList {
  std::string_view text;
  std::vector<Piece> pieces;
  bool at_start = true;  ///< the text begins the input: nothing, nor an added token, stands before it
  std::string owned;     ///< `text`, where a step has written it anew
  std::vector<Piece> next;
};

/// Bytes as printable characters, GPT-2's alphabet: each byte has a character of its own, so that a text of any bytes is a text without blanks and controls.
class ByteAlphabet {
 public:
  ByteAlphabet();
  [[nodiscard]] char32_t character_of(unsigned char byte) const noexcept { return characters_[byte]; }
  /// -1: this character stands for no byte.
  [[nodiscard]] int byte_of(char32_t character) const noexcept { return character < 324 ? bytes_[character] : -1; }

 private:
  char32_t characters_[256] = {};
  int bytes_[324] = {};
};

}  // namespace troupe
