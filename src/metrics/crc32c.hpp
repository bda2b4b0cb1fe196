#pragma once
#include <cstdint>
#include <string_view>

namespace troupe {

/// CRC-32C (Castagnoli), as in RFC 3720, appendix B.4.
[[nodiscard]] std::uint32_t crc32c(std::string_view bytes) noexcept;

}  // namespace troupe
