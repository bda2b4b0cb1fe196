// Casts to fp8, alone and behind the operation that makes the value: its kernel finds the amax on the way, so the value is read once more
// and not twice.
#include <cuda_runtime_api.h>

#include "src/device/cuda/arguments.hpp"
#include "src/device/cuda/cuda_kernels.hpp"
#include "src/device/cuda/kernels/float8.hpp"
#include "src/device/cuda/kernels/transpose.hpp"

namespace troupe::cuda {
namespace {

void require_target(const Arguments& arguments, const TensorView& x, const CastTarget& to) {
  arguments.require(x.shape.rank == 2 && x.shape == to.codes.shape && Arguments::floating(x.dtype));
  arguments.require((to.codes.dtype == DType::e4m3 || to.codes.dtype == DType::e5m2) && to.amax != nullptr && to.scale != nullptr);
}

}  // namespace

/// Whoever writes codes says so: what was kept of the old ones is void.
void CudaKernels::written(const TensorView& codes) {
  for (Turned* kept : {&gradient_, &value_}) {
    if (kept->codes < codes.data + codes.bytes() && codes.data < kept->codes + kept->bytes) *kept = {};
  }
}

void CudaKernels::cast_with_amax(cudaStream_t stream, const TensorView& x, const CastTarget& to, const NormOf* norm) {
  written(to.codes);
  CastTranspose call{.x = x.data,
                     .type = element_of(x.dtype),
                     .amax = to.amax,
                     .format = element_of(to.codes.dtype),
                     .rows = x.shape[0],
                     .columns = x.shape[1],
                     .codes = to.codes.data,
                     .transposed = nullptr,
                     .scale = to.scale,
                     .counts = to.counts,
                     .rstd = norm != nullptr ? norm->rstd.as<const float>() : nullptr,
                     .norm_weight = norm != nullptr ? norm->weight.data : nullptr};
  if (to.codes.dtype == DType::e5m2) {  // a gradient: the weight's product wants it turned, right after
    const std::size_t bytes = to.codes.bytes();
    auto* place = turned_gradients_.of(stream, bytes + ScratchOfStreams::slack).take<std::byte>(bytes);
    call.transposed = place;
    gradient_ = {to.codes.data, bytes, stream, place};
  }
  cast_transpose(stream, call);
}

void CudaKernels::cast_fp8(Stream& stream, TensorView x, const CastTarget& to) {
  const Arguments arguments(device_, "cast_fp8", "x [T,D] float32 or bfloat16, codes of its shape in float8 with two scalars", {{"x", x}, {"codes", to.codes}});
  require_target(arguments, x, to);
  cuda::amax(on(stream), x.data, element_of(x.dtype), x.shape.elements(), to.amax, false);
  cast_with_amax(on(stream), x, to);
}

void CudaKernels::cast_fp8_with_amax(Stream& stream, TensorView x, const CastTarget& to) {
  const Arguments arguments(device_, "cast_fp8_with_amax", "x [T,D] float32 or bfloat16, codes of its shape in float8 with two scalars",
                            {{"x", x}, {"codes", to.codes}});
  require_target(arguments, x, to);
  cast_with_amax(on(stream), x, to);
}

void CudaKernels::rms_norm_cast(Stream& stream, TensorView x, TensorView w, double eps, TensorView y, bool keeps_y, TensorView rstd, const CastTarget& to) {
  const Arguments arguments(device_, "rms_norm_cast", "x [T,D], y and w [D] of one floating type, rstd [T] float32, codes of y's shape in float8",
                            {{"x", x}, {"w", w}, {"y", y}, {"rstd", rstd}, {"codes", to.codes}});
  require_target(arguments, y, to);
  arguments.require(x.shape == y.shape && x.dtype == y.dtype && w.shape == Shape{x.shape[1]} && w.dtype == x.dtype && rstd.shape == Shape{x.shape[0]} &&
                    rstd.dtype == DType::f32);
  zero(on(stream), to.amax);
  if (!keeps_y) y.data = nullptr;
  norm(on(stream), x, w, eps, y, rstd, to.amax);
  if (keeps_y) return cast_with_amax(on(stream), y, to);
  const NormOf again{w, rstd};  // as it would have been stored: x is read twice, and y neither written nor read
  cast_with_amax(on(stream), x, to, &again);
}

void CudaKernels::swiglu_cast(Stream& stream, TensorView gate, TensorView up, TensorView out, const CastTarget& to) {
  const Arguments arguments(device_, "swiglu_cast", "gate, up, out [T,D] of one floating type, codes of out's shape in float8",
                            {{"gate", gate}, {"up", up}, {"out", out}, {"codes", to.codes}});
  require_target(arguments, out, to);
  arguments.require(gate.shape == up.shape && gate.shape == out.shape && gate.dtype == up.dtype && gate.dtype == out.dtype);
  zero(on(stream), to.amax);
  gated(on(stream), gate, up, out, to.amax);
  cast_with_amax(on(stream), out, to);
}

}  // namespace troupe::cuda
