#pragma once
#include <cstdint>
#include <functional>

namespace troupe::cpu {

/// Splits [0, count) into one part for each intra-operation thread, if the parts have at least `grain` items each, and calls
/// `part(first, last)` for each. The split depends on count, grain and the number of threads alone.
void in_parallel(std::int64_t count, std::int64_t grain, const std::function<void(std::int64_t, std::int64_t)>& part);

/// Elements worth a thread of their own.
inline constexpr std::int64_t elements_a_thread = 32768;

/// Rows worth a thread of their own.
[[nodiscard]] inline std::int64_t rows_a_thread(std::int64_t columns) noexcept { return elements_a_thread / (columns > 0 ? columns : 1) + 1; }

}  // namespace troupe::cpu
