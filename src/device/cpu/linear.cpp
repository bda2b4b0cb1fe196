#include "src/device/cpu/arguments.hpp"
#include "src/device/cpu/cpu_kernels.hpp"
#include "src/device/cpu/matrix_product.hpp"

namespace troupe::cpu {
namespace {

bool matrices(std::initializer_list<TensorView> views) {
  for (const TensorView& view : views) {
    if (view.shape.rank != 2) return false;
  }
  return true;
}

}  // namespace

void CpuKernels::linear(Stream&, TensorView x, TensorView w, TensorView y) {
  const Arguments arguments("linear", "x [T,K], w [N,K], y [T,N] of one floating type", {{"x", x}, {"w", w}, {"y", y}});
  arguments.require(matrices({x, w, y}) && x.shape[1] == w.shape[1] && y.shape[0] == x.shape[0] && y.shape[1] == w.shape[0]);
  arguments.require(Arguments::floating(x.dtype) && w.dtype == x.dtype && y.dtype == x.dtype);
  multiply({x}, {w, true}, y, false, 1.0F, scratch_.mine());
}

void CpuKernels::linear_backward_input(Stream&, TensorView dy, TensorView w, TensorView dx, bool accumulate) {
  const Arguments arguments("linear_backward_input", "dy [T,N], w [N,K], dx [T,K] of one floating type", {{"dy", dy}, {"w", w}, {"dx", dx}});
  arguments.require(matrices({dy, w, dx}) && dy.shape[1] == w.shape[0] && dx.shape[0] == dy.shape[0] && dx.shape[1] == w.shape[1]);
  arguments.require(Arguments::floating(dy.dtype) && w.dtype == dy.dtype && dx.dtype == dy.dtype);
  multiply({dy}, {w}, dx, accumulate, 1.0F, scratch_.mine());
}

void CpuKernels::linear_backward_weight(Stream&, TensorView dy, TensorView x, TensorView dw, bool accumulate) {
  const Arguments arguments("linear_backward_weight", "dy [T,N], x [T,K] of one floating type, dw [N,K] float32 or theirs (float64 beside float64)",
                            {{"dy", dy}, {"x", x}, {"dw", dw}});
  arguments.require(matrices({dy, x, dw}) && dy.shape[0] == x.shape[0] && dw.shape[0] == dy.shape[1] && dw.shape[1] == x.shape[1]);
  arguments.require(Arguments::floating(dy.dtype) && x.dtype == dy.dtype && (dw.dtype == Arguments::wide(dy.dtype) || dw.dtype == dy.dtype));
  multiply({dy, true}, {x}, dw, accumulate, 1.0F, scratch_.mine());
}

}  // namespace troupe::cpu
