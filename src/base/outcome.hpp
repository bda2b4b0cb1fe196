#pragma once
#include <cstdint>
#include <string>

namespace troupe {

/// How an operation of a lane ended. `halted`: stopped before or during it by an abort; what it wrote must not be used.
struct Outcome {
  enum class Kind : std::uint8_t { ok, failed, halted };
  Kind kind = Kind::ok;
  std::string cause;  ///< empty when ok
  [[nodiscard]] bool ok() const noexcept { return kind == Kind::ok; }
};

}  // namespace troupe
