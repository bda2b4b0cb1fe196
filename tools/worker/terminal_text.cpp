#include "tools/worker/terminal_text.hpp"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace troupe {
namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";

/// The length that the first byte announces, 0 where none begins so, and the limits of the second byte (Unicode, table 3-7).
struct Lead {
  std::size_t length = 0;
  std::uint8_t low = 0x80, high = 0xBF;
};
Lead lead_of(std::uint8_t byte) {
  if (byte < 0x80) return {1};
  if (byte >= 0xC2 && byte <= 0xDF) return {2, static_cast<std::uint8_t>(byte == 0xC2 ? 0xA0 : 0x80), 0xBF};  // below U+00A0: controls
  if (byte >= 0xE0 && byte <= 0xEF) return {3, static_cast<std::uint8_t>(byte == 0xE0 ? 0xA0 : 0x80), static_cast<std::uint8_t>(byte == 0xED ? 0x9F : 0xBF)};
  if (byte >= 0xF0 && byte <= 0xF4) return {4, static_cast<std::uint8_t>(byte == 0xF0 ? 0x90 : 0x80), static_cast<std::uint8_t>(byte == 0xF4 ? 0x8F : 0xBF)};
  return {};
}

bool is_control(std::uint8_t byte) { return (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F; }

}  // namespace

std::string terminal_text(std::string_view bytes) {
  std::string text;
  for (std::size_t at = 0; at < bytes.size();) {
    const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(bytes[i]); };
    const Lead lead = lead_of(byte(at));
    std::size_t end = at + 1;
    while (end < bytes.size() && end < at + lead.length && byte(end) >= (end == at + 1 ? lead.low : 0x80) && byte(end) <= (end == at + 1 ? lead.high : 0xBF))
      ++end;
    const bool whole = end == at + lead.length && !is_control(byte(at));
    text.append(whole ? bytes.substr(at, end - at) : replacement);
    at = end;
  }
  return text;
}

Result<void> print_last(const std::string& text) {
  std::printf("%s\n", text.c_str());
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return {};
  return Error{std::string("the output could not be written: ") + std::strerror(errno)};
}

}  // namespace troupe
