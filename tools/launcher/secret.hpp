#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.hpp"

namespace troupe {

using Digest = std::array<std::byte, 32>;

/// What all processes of one job share and nobody else knows: 32 random bytes. A value.
class Secret {
 public:
  [[nodiscard]] static Secret random();  ///< throws std::runtime_error if the system has no entropy
  [[nodiscard]] static Result<Secret> from_hex(std::string_view text);
  /// Reads 64 hexadecimal digits; refuses a file that others may read.
  [[nodiscard]] static Result<Secret> from_file(const std::filesystem::path& file);
  [[nodiscard]] std::string hex() const;
  /// HMAC-SHA256 over `purpose`, a zero byte and the parts. Different purposes never collide.
  [[nodiscard]] Digest authenticate(std::string_view purpose, std::span<const std::span<const std::byte>> parts) const;
  /// A key for another use, derived from this one: for the MAC of letters.
  [[nodiscard]] Digest derive(std::string_view purpose) const { return authenticate(purpose, {}); }

 private:
  Digest bytes_{};
};

/// In constant time.
[[nodiscard]] bool equal(std::span<const std::byte> a, std::span<const std::byte> b) noexcept;
/// Fresh random bytes for a challenge.
[[nodiscard]] Digest random_nonce();

[[nodiscard]] std::string to_hex(std::span<const std::byte> bytes);
[[nodiscard]] Result<std::vector<std::byte>> from_hex(std::string_view text);

}  // namespace troupe
