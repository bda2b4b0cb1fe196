#include "src/metrics/crc32c.hpp"

#include <array>

namespace troupe {
namespace {

constexpr std::array<std::uint32_t, 256> table = [] {
  std::array<std::uint32_t, 256> entries{};
  for (std::uint32_t i = 0; i < entries.size(); ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1U) ^ ((value & 1U) != 0 ? 0x82f63b78U : 0U);
    entries[i] = value;
  }
  return entries;
}();

}  // namespace

std::uint32_t crc32c(std::string_view bytes) noexcept {
  std::uint32_t crc = ~0U;
  for (const char byte : bytes) crc = (crc >> 8U) ^ table[(crc ^ static_cast<unsigned char>(byte)) & 0xffU];
  return ~crc;
}

}  // namespace troupe
