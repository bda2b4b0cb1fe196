// Memory, fp8 casts, the verdict and the optimizer: one launch function each.
#include <cuda_runtime_api.h>

#include "src/device/cuda/arguments.hpp"
#include "src/device/cuda/choice_cache.hpp"
#include "src/device/cuda/cuda_kernels.hpp"
#include "src/device/cuda/cuda_stream.hpp"
#include "src/device/cuda/kernels/average.hpp"
#include "src/device/cuda/kernels/float8.hpp"
#include "src/device/cuda/kernels/initial_values.hpp"
#include "src/device/cuda/kernels/memory.hpp"
#include "src/device/cuda/kernels/optimizer.hpp"
#include "src/device/cuda/kernels/verdict.hpp"

namespace troupe::cuda {

CudaKernels::CudaKernels(int device, bool deterministic)
    : device_(device),
      deterministic_(deterministic),
      scratch_(device),
      workspaces_(device),
      turned_gradients_(device),
      turned_values_(device),
      products_({.sweep = !deterministic}) {
  use_device(device);
  if (!deterministic_) (void)products_.adopt(ChoiceCache(products_.heading()).read());
}

CudaKernels::~CudaKernels() {
  if (deterministic_ || products_.swept() == 0) return;
  try {
    ChoiceCache(products_.heading()).add(products_.choices());
  } catch (const std::exception&) {  // a device that has failed, a disk that is full: the next run sweeps again
    return;
  }
}

cudaStream_t CudaKernels::on(const Stream& stream) const { return native_stream(stream, device_); }

std::size_t CudaKernels::scratch_bytes() const noexcept { return scratch_.bytes() + workspaces_.bytes() + turned_gradients_.bytes() + turned_values_.bytes(); }

void CudaKernels::amax(Stream& stream, TensorView x, float* amax, bool accumulate) {
  const Arguments arguments(device_, "amax", "x float32 or bfloat16", {{"x", x}});
  arguments.require(Arguments::floating(x.dtype));
  cuda::amax(on(stream), x.data, element_of(x.dtype), x.shape.elements(), amax, accumulate);
}

void CudaKernels::scale_from_amax(Stream& stream, const float* amax, DType dtype, float* scale) {
  cuda::scale_from_amax(on(stream), amax, element_of(dtype), scale, nullptr);
}

void CudaKernels::quantize(Stream& stream, TensorView x, const float* scale, TensorView out, Float8Counts* counts) {
  const Arguments arguments(device_, "quantize", "x float32 or bfloat16, out float8_e4m3 or float8_e5m2 of the same shape", {{"x", x}, {"out", out}});
  arguments.require(x.shape == out.shape && Arguments::floating(x.dtype) && (out.dtype == DType::e4m3 || out.dtype == DType::e5m2));
  written(out);
  cuda::quantize(on(stream), x.data, element_of(x.dtype), scale, out.data, element_of(out.dtype), x.shape.elements(), counts);
}

void CudaKernels::fill(Stream& stream, TensorView x, double value) {
  const Arguments arguments(device_, "fill", "any type for zero, a floating or integer type for other values", {{"x", x}});
  arguments.require(value == 0.0 || (x.dtype != DType::e4m3 && x.dtype != DType::e5m2));
  if (x.shape.elements() != 0) cuda::fill(on(stream), x.data, element_of(x.dtype), x.shape.elements(), value);
}

void CudaKernels::cast(Stream& stream, TensorView from, TensorView to) {
  const Arguments arguments(device_, "cast", "from, to of one shape, both floating or of one type", {{"from", from}, {"to", to}});
  const auto converts = [](DType dtype) { return Arguments::floating(dtype) || dtype == DType::f64; };
  arguments.require(from.shape == to.shape && (from.dtype == to.dtype || (converts(from.dtype) && converts(to.dtype))));
  if (from.shape.elements() == 0) return;
  if (from.dtype == to.dtype) {  // also to and from pinned host memory
    check(cudaMemcpyAsync(to.data, from.data, from.bytes(), cudaMemcpyDefault, on(stream)), "cast");
    return;
  }
  cuda::cast(on(stream), from.data, element_of(from.dtype), to.data, element_of(to.dtype), from.shape.elements());
}

void CudaKernels::sum_squares(Stream& stream, TensorView x, double* sum) {
  const Arguments arguments(device_, "sum_squares", "x float32 or bfloat16", {{"x", x}});
  arguments.require(Arguments::floating(x.dtype));
  const Run run{x.data, element_of(x.dtype), x.shape.elements()};
  const cudaStream_t to = on(stream);
  const std::size_t bytes = sum_squares_scratch(1, run.elements);
  cuda::sum_squares(to, &run, 1, sum, scratch_.of(to, bytes + ScratchOfStreams::slack).take<std::byte>(bytes));
}

void CudaKernels::decide(Stream& stream, const VerdictSums* sums, double world, double expected_tag, double nominal_tokens, double max_norm,
                         const HaltWord* halt, Verdict* verdict) {
  cuda::decide(
      on(stream),
      {.sums = sums, .world = world, .expected_tag = expected_tag, .nominal_tokens = nominal_tokens, .max_norm = max_norm, .halt = halt, .verdict = verdict});
}

void CudaKernels::adamw(Stream& stream, TensorView parameter, TensorView gradient, TensorView first, TensorView second, std::int64_t* count,
                        const AdamWStep& step, const Verdict* verdict) {
  const AdamWShard shard{parameter, gradient, first, second, count, step, nullptr};
  adamw_all(stream, {&shard, 1}, verdict);
}

/// A launch for each run of shards that take the same step.
void CudaKernels::adamw_all(Stream& stream, std::span<const AdamWShard> shards, const Verdict* verdict) {
  const auto alike = [](const AdamWStep& a, const AdamWStep& b) {
    return a.learning_rate == b.learning_rate && a.beta1 == b.beta1 && a.beta2 == b.beta2 && a.eps == b.eps && a.weight_decay == b.weight_decay &&
           a.decoupled == b.decoupled;
  };
  const cudaStream_t to = on(stream);
  while (!shards.empty()) {
    const AdamWStep& step = shards.front().step;
    adamw_.clear();
    for (const AdamWShard& shard : shards) {
      const Arguments arguments(device_, "adamw", "parameter, gradient, first, second of one shape, all float32 (the gradient perhaps bfloat16)",
                                {{"parameter", shard.parameter}, {"gradient", shard.gradient}, {"first", shard.first}, {"second", shard.second}});
      for (const TensorView& view : {shard.parameter, shard.first, shard.second})
        arguments.require(view.shape == shard.parameter.shape && view.dtype == DType::f32);
      const bool half = shard.gradient.dtype == DType::bf16;
      arguments.require(shard.gradient.shape == shard.parameter.shape && (half || shard.gradient.dtype == DType::f32));
      if (!alike(shard.step, step)) break;
      adamw_.push_back({.parameter = shard.parameter.as<float>(),
                        .gradient = half ? nullptr : shard.gradient.as<float>(),
                        .first = shard.first.as<float>(),
                        .second = shard.second.as<float>(),
                        .elements = shard.parameter.shape.elements(),
                        .count = shard.count,
                        .amax = shard.amax,
                        .bf16_gradient = half ? shard.gradient.data : nullptr});
    }
    const AdamWConstants constants{step.learning_rate, step.beta1, step.beta2, step.eps, step.weight_decay, step.decoupled};
    const std::size_t bytes = adamw_scratch(adamw_.size());
    cuda::adamw(to, adamw_.data(), adamw_.size(), constants, nullptr, verdict, scratch_.of(to, bytes + ScratchOfStreams::slack).take<std::byte>(bytes));
    shards = shards.subspan(adamw_.size());
  }
}

/// One launch for all that suit it.
void CudaKernels::copy_shards(Stream& stream, std::span<const ShardCopy> shards, Float8Counts* counts) {
  const auto at = [](const TensorView& view) { return reinterpret_cast<std::uintptr_t>(view.data); };
  copies_.clear();
  for (const ShardCopy& shard : shards) {
    const Arguments arguments(device_, "copy_shards", "from float32, to float8 with a scale or bfloat16 or float32 without, of one shape",
                              {{"from", shard.from}, {"to", shard.to}});
    const bool codes = shard.to.dtype == DType::e4m3 || shard.to.dtype == DType::e5m2;
    arguments.require(shard.from.shape == shard.to.shape && shard.from.dtype == DType::f32 && codes == (shard.scale != nullptr));
    const bool suits = at(shard.from) % 16 == 0 && (codes ? at(shard.to) % 8 == 0 : shard.to.dtype == DType::bf16 && at(shard.to) % 16 == 0);
    if (!suits && codes) quantize(stream, shard.from, shard.scale, shard.to, counts);
    if (!suits && !codes) cast(stream, shard.from, shard.to);
    if (!suits) continue;
    written(shard.to);
    copies_.push_back({.from = shard.from.as<const float>(),
                       .to = shard.to.data,
                       .format = element_of(shard.to.dtype),
                       .elements = shard.from.shape.elements(),
                       .given_scale = shard.scale,
                       .counts = codes ? counts : nullptr});
  }
  cast_shards(on(stream), copies_.data(), copies_.size());
}

void CudaKernels::scales_from_amaxes(Stream& stream, const float* amaxes, DType dtype, float* scales, std::size_t count) {
  cuda::scale_from_amax(on(stream), amaxes, element_of(dtype), scales, nullptr, static_cast<std::int64_t>(count));
}

void CudaKernels::average(Stream& stream, TensorView parameter, TensorView average, double decay, const Verdict* verdict) {
  const Arguments arguments(device_, "average", "parameter, average of one shape, both float32", {{"parameter", parameter}, {"average", average}});
  arguments.require(average.shape == parameter.shape && average.dtype == DType::f32 && parameter.dtype == DType::f32);
  cuda::average(on(stream), parameter.as<const float>(), average.as<float>(), parameter.shape.elements(), decay, verdict);
}

void CudaKernels::draw(Stream& stream, TensorView values, const NormalDraw& draw, std::uint64_t first) {
  const Arguments arguments(device_, "draw", "values float32", {{"values", values}});
  arguments.require(values.dtype == DType::f32);
  draw_values(on(stream), values.as<float>(), values.shape.elements(), draw, first);
}

}  // namespace troupe::cuda
