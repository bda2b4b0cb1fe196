#pragma once
#include <cstdint>
#include <vector>

#include "src/checkpoint/stored_type.hpp"
#include "src/device/state_tensor.hpp"

namespace troupe {

[[nodiscard]] inline std::vector<std::int64_t> sizes_of(const Shape& shape) { return {shape.size.begin(), shape.size.begin() + shape.rank}; }

/// Bytes of one row of a tensor: all but dimension 0. A tensor without dimensions is one row.
[[nodiscard]] inline std::uint64_t row_bytes(const std::vector<std::int64_t>& shape, StoredType dtype) {
  std::uint64_t bytes = size_of(dtype);
  for (std::size_t i = 1; i < shape.size(); ++i) bytes *= static_cast<std::uint64_t>(shape[i]);
  return bytes;
}

/// Bytes of the valid rows of a part; padding behind them does not count.
[[nodiscard]] inline std::uint64_t valid_bytes(const StateTensor& tensor) {
  return static_cast<std::uint64_t>(tensor.rows) * row_bytes(sizes_of(tensor.global_shape), stored_as(tensor.view.dtype));
}

}  // namespace troupe
