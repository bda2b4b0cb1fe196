#pragma once
#include "src/device/lane.hpp"
#include "src/device/normal_draw.hpp"
#include "src/device/tensor_view.hpp"

namespace troupe {

/// Beside Kernels: a device that makes initial values where they lie, so that the host need not make and send them. One object is both.
class DrawsValues {
 public:
  virtual ~DrawsValues() = default;
  /// Element i of `values`, fp32, becomes value first + i of the draw, as value_of says it.
  virtual void draw(Stream&, TensorView values, const NormalDraw& draw, std::uint64_t first) = 0;
};

}  // namespace troupe
