#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace troupe {

/// Longest cause in a letter, in bytes: a letter that carries one still fits into a frame (messages/frame.hpp).
inline constexpr std::size_t longest_cause = 4000;

/// `text`, or its first bytes and " … (cut)", together no longer than `limit` (at least 16); never in the middle of a UTF-8 character. Pure.
[[nodiscard]] inline std::string cut_text(std::string_view text, std::size_t limit = longest_cause) {
  constexpr std::string_view mark = " … (cut)";
  if (text.size() <= limit) return std::string(text);
  std::size_t keep = limit - mark.size();
  while (keep > 0 && (static_cast<unsigned char>(text[keep]) & 0xC0U) == 0x80U) --keep;  // a byte that goes on with a character
  return std::string(text.substr(0, keep)).append(mark);
}

}  // namespace troupe
