#pragma once
#include <cstdint>
#include <string_view>

namespace troupe {

/// FNV-1a, 64 bits: for names and small tables, where a header suffices; bulk data takes XXH3.
/// Source: Fowler, Noll, Vo, http://www.isthe.com/chongo/tech/comp/fnv/
inline constexpr std::uint64_t fnv_start = 0xcbf29ce484222325U, fnv_prime = 0x100000001b3U;

/// Of `text`; `hash`: of what comes before it.
[[nodiscard]] constexpr std::uint64_t fnv1a(std::string_view text, std::uint64_t hash = fnv_start) noexcept {
  for (const char letter : text) hash = (hash ^ static_cast<unsigned char>(letter)) * fnv_prime;
  return hash;
}

/// Of the eight bytes of `value`, the lowest first.
[[nodiscard]] constexpr std::uint64_t fnv1a(std::uint64_t value, std::uint64_t hash) noexcept {
  for (int byte = 0; byte < 8; ++byte) hash = (hash ^ ((value >> (8 * byte)) & 0xffU)) * fnv_prime;
  return hash;
}

}  // namespace troupe
