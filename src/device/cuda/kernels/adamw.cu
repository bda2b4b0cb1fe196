#include "src/device/cuda/kernels/dispatch.cuh"
#include "src/device/cuda/kernels/optimizer.hpp"
#include "src/device/cuda/kernels/reduce.cuh"
#include "src/device/cuda/kernels/tensor_list.cuh"

namespace troupe::cuda {
namespace {

constexpr int threads = 256;
constexpr int quad = 4;  // elements of a vector: 16 bytes
constexpr int vectors_a_thread = 2, vectors_at_once = 1;

__host__ __device__ constexpr std::int64_t chunk_of(int rounds) { return std::int64_t(threads) * quad * rounds; }

using List = TensorList<AdamWTensor, 40>;

/// One step's constants for one parameter.
struct Constants {
  float gradient_factor, keep, decay, beta1_rest, beta2, beta2_rest, step_size, root_factor, eps;
  std::uint32_t commit;
};

/// A thread a tensor: advances the count and works out the bias corrections in fp64.
__global__ void constants_kernel(const List list, const AdamWConstants step, const float* learning_rate, const Verdict* verdict, Constants* constants) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= list.size) return;
  const AdamWTensor& tensor = list.tensor[i];
  constants[i].commit = verdict->outcome == VerdictOutcome::commit ? 1U : 0U;
  if (verdict->outcome != VerdictOutcome::commit) return;
  if (tensor.amax != nullptr) *tensor.amax = 0.0F;  // the step itself raises it
  const auto count = static_cast<double>(++*tensor.count);
  const double correction1 = 1.0 - pow(step.beta1, count), correction2 = 1.0 - pow(step.beta2, count);
  const double rate = step.learning_rate * tensor.learning_rate_factor * (learning_rate != nullptr ? static_cast<double>(*learning_rate) : 1.0);
  const double decay = step.weight_decay * tensor.weight_decay_factor;
  constants[i] = {verdict->gradient_factor,
                  static_cast<float>(step.decoupled ? 1.0 - rate * decay : 1.0),
                  static_cast<float>(step.decoupled ? 0.0 : decay),
                  static_cast<float>(1.0 - step.beta1),
                  static_cast<float>(step.beta2),
                  static_cast<float>(1.0 - step.beta2),
                  static_cast<float>(rate / correction1),
                  static_cast<float>(1.0 / sqrt(correction2)),
                  static_cast<float>(step.eps),
                  1U};
}

__device__ void update(float& parameter, float gradient, float& first, float& second, const Constants& c) {
  const float g = gradient * c.gradient_factor + c.decay * parameter;
  first += (g - first) * c.beta1_rest;
  second = second * c.beta2 + g * g * c.beta2_rest;
  parameter = parameter * c.keep - c.step_size * (first / (sqrtf(second) * c.root_factor + c.eps));
}

/// Four gradients from `at` on, a multiple of four.
__device__ float4 gradients_at(const AdamWTensor& tensor, std::int64_t at) {
  if (tensor.bf16_gradient == nullptr) return *reinterpret_cast<const float4*>(tensor.gradient + at);
  const uint2 halves = *reinterpret_cast<const uint2*>(static_cast<const BFloat16*>(tensor.bf16_gradient) + at);
  return make_float4(__uint_as_float(halves.x << 16U), __uint_as_float(halves.x & 0xffff0000U), __uint_as_float(halves.y << 16U),
                     __uint_as_float(halves.y & 0xffff0000U));
}

__device__ float gradient_at(const AdamWTensor& tensor, std::int64_t at) {
  return tensor.bf16_gradient == nullptr ? tensor.gradient[at] : widen(static_cast<const BFloat16*>(tensor.bf16_gradient)[at]);
}

/// A thread steps `rounds` vectors, `together` of them in flight at once.
template <int rounds, int together>
__global__ void __launch_bounds__(threads) adamw_kernel(const List list, const Constants* constants) {
  const int which = list.of_chunk(static_cast<std::int32_t>(blockIdx.x));
  const Constants c = constants[which];
  if (c.commit == 0) return;
  const AdamWTensor& tensor = list.tensor[which];
  const std::int64_t begin = (blockIdx.x - list.first[which]) * chunk_of(rounds) + std::int64_t(threadIdx.x) * quad;
  std::uint32_t found = 0;
#pragma unroll
  for (int round = 0; round < rounds; round += together) {
    float4 p[together], g[together], m[together], v[together];
#pragma unroll
    for (int i = 0; i < together; ++i) {
      const std::int64_t at = begin + std::int64_t(round + i) * threads * quad;
      if (at + quad > tensor.elements) continue;
      p[i] = *reinterpret_cast<const float4*>(tensor.parameter + at);
      g[i] = gradients_at(tensor, at);
      m[i] = *reinterpret_cast<const float4*>(tensor.first + at);
      v[i] = *reinterpret_cast<const float4*>(tensor.second + at);
    }
#pragma unroll
    for (int i = 0; i < together; ++i) {
      const std::int64_t at = begin + std::int64_t(round + i) * threads * quad;
      if (at + quad > tensor.elements) {
        for (std::int64_t j = at; j < tensor.elements; ++j) {
          update(tensor.parameter[j], gradient_at(tensor, j), tensor.first[j], tensor.second[j], c);
          found = max(found, magnitude(tensor.parameter[j]));
          if (tensor.bf16 != nullptr) static_cast<BFloat16*>(tensor.bf16)[j] = narrow<BFloat16>(tensor.parameter[j]);
        }
        continue;
      }
      update(p[i].x, g[i].x, m[i].x, v[i].x, c);
      update(p[i].y, g[i].y, m[i].y, v[i].y, c);
      update(p[i].z, g[i].z, m[i].z, v[i].z, c);
      update(p[i].w, g[i].w, m[i].w, v[i].w, c);
      *reinterpret_cast<float4*>(tensor.parameter + at) = p[i];
      *reinterpret_cast<float4*>(tensor.first + at) = m[i];
      *reinterpret_cast<float4*>(tensor.second + at) = v[i];
      found = max(max(found, max(magnitude(p[i].x), magnitude(p[i].y))), max(magnitude(p[i].z), magnitude(p[i].w)));
      if (tensor.bf16 == nullptr) continue;
      const __nv_bfloat162 low = __floats2bfloat162_rn(p[i].x, p[i].y), high = __floats2bfloat162_rn(p[i].z, p[i].w);
      *reinterpret_cast<uint2*>(static_cast<BFloat16*>(tensor.bf16) + at) =
          make_uint2(*reinterpret_cast<const std::uint32_t*>(&low), *reinterpret_cast<const std::uint32_t*>(&high));
    }
  }
  if (tensor.amax != nullptr) raise_amax(tensor.amax, found);
}

}  // namespace

std::size_t adamw_scratch(std::size_t tensors) { return tensors * sizeof(Constants); }

void adamw(cudaStream_t stream, const AdamWTensor* tensors, std::size_t count, const AdamWConstants& step, const float* learning_rate, const Verdict* verdict,
           void* scratch) {
  for (std::size_t i = 0; i < count; ++i) {
    const AdamWTensor& t = tensors[i];
    if (!aligned(t.parameter) || !aligned(t.gradient) || !aligned(t.first) || !aligned(t.second) || !aligned(t.bf16, 8) || !aligned(t.bf16_gradient, 8)) {
      refuse("adamw", "16-byte aligned tensors");
    }
  }
  in_lists<List>(tensors, count, chunk_of(vectors_a_thread), [&](const List& list, std::int64_t chunks, std::size_t begin) {
    auto* constants = static_cast<Constants*>(scratch) + begin;
    constants_kernel<<<1, 64, 0, stream>>>(list, step, learning_rate, verdict, constants);
    check_launch("adamw");
    if (chunks == 0) return;
    adamw_kernel<vectors_a_thread, vectors_at_once><<<grid(chunks), threads, 0, stream>>>(list, constants);
    check_launch("adamw");
  });
}

}  // namespace troupe::cuda
