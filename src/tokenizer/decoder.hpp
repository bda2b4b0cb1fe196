#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// One step of a decoder, as data: each takes the tokens' texts and gives others.
struct DecoderStep {
  enum class Kind : std::uint8_t {
    byte_level,     ///< characters of the byte alphabet to bytes; all texts become one
    byte_fallback,  ///< tokens <0xHH> to bytes; runs of them that are no UTF-8 to one U+FFFD a byte
    fuse,           ///< all texts become one
    strip,          ///< up to `start` times `content` off the beginning of each text, `stop` times off its end
    replace,        ///< `pattern` by `content`
    metaspace,      ///< `pattern` to a blank; in the first text to nothing where it was prepended
  };
  Kind kind = Kind::fuse;
  std::string pattern = {}, content = {};
  std::size_t start = 0, stop = 0;
  bool prepended = true;
};

/// A token's text as the decoder gets it.
struct TokenText {
  std::string text;
  bool added = false;  ///< an added token: it stays as it is spelt
};

/// The text of some tokens. Bytes that are no UTF-8 in the end become U+FFFD. Pure.
[[nodiscard]] std::string decode_texts(const std::vector<DecoderStep>& steps, std::vector<TokenText> texts);

}  // namespace troupe
