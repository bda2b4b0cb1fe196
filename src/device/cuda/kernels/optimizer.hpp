#pragma once
#include "src/device/cuda/kernels/element.hpp"
#include "src/device/verdict.hpp"

namespace troupe::cuda {

/// What one step does to every parameter; torch.optim.AdamW's formula (src/device/kernels.hpp).
struct AdamWConstants {
  double learning_rate, beta1, beta2, eps, weight_decay;
  bool decoupled = true;
};

/// One parameter's shard: device memory, all fp32 and 16-byte aligned but what says otherwise.
struct AdamWTensor {
  float* parameter;
  const float* gradient;
  float* first;
  float* second;
  std::int64_t elements;
  std::int64_t* count;                  ///< steps taken by this parameter; advanced
  float* amax = nullptr;                ///< max |parameter| after the step; left alone where there is none
  void* bf16 = nullptr;                 ///< the new parameter in bf16 as well: the shard's place in the next gather
  const void* bf16_gradient = nullptr;  ///< unless null: read instead of `gradient`; 8-byte aligned, 26 bytes an element in all
  double learning_rate_factor = 1.0;
  double weight_decay_factor = 1.0;
};

/// In place on many tensors with few launches (K10), nothing where *verdict is not commit. `learning_rate` (device, may be null) multiplies
/// the learning rate, so that a schedule can change it without a new launch argument. 28 bytes an element.
/// scratch: adamw_scratch(tensors) bytes; one call at a time may use it.
void adamw(cudaStream_t stream, const AdamWTensor* tensors, std::size_t count, const AdamWConstants& step, const float* learning_rate, const Verdict* verdict,
           void* scratch);
[[nodiscard]] std::size_t adamw_scratch(std::size_t tensors);

/// A run of fp32 or bf16 elements in device memory.
struct Run {
  const void* x;
  Element type;
  std::int64_t elements;
};

/// *sum += Σ x² over all runs (K12), in fp64 and in a fixed order for given runs. scratch: sum_squares_scratch(runs, elements of all runs) bytes.
void sum_squares(cudaStream_t stream, const Run* runs, std::size_t count, double* sum, void* scratch);
[[nodiscard]] std::size_t sum_squares_scratch(std::size_t runs, std::int64_t elements);

/// A shard to be cast into its place of the gather: bf16, or fp8 with the scale of *amax (float8.hpp's formula).
struct ShardCast {
  const float* from;
  void* to;
  Element format;  ///< bf16, e4m3 or e5m2
  std::int64_t elements;
  const float* amax = nullptr;
  float* scale = nullptr;              ///< unless null: written, for fp8
  const float* given_scale = nullptr;  ///< fp8: in place of one of *amax
  Float8Counts* counts = nullptr;      ///< fp8, unless null: added to, as quantize does
};
/// All shards with few launches (K11). 5 bytes an element for fp8, 6 for bf16.
void cast_shards(cudaStream_t stream, const ShardCast* shards, std::size_t count);

/// to[i] = Σ over slices of slice[s][i], bf16 slices added in fp32 in their order (K15); accumulate adds to what is there first.
/// Unless null, partial_squares gets gradient_sum_partials() fp64 values whose sum is Σ to² (add them with sum_partial_squares).
struct GradientSum {
  static constexpr int most = 32;
  const void* slice[most];  ///< bf16 [elements]
  int slices;
  float* to;
  std::int64_t elements;
  bool accumulate = false;
  double* partial_squares = nullptr;
};
void gradient_sum(cudaStream_t stream, const GradientSum& call);
[[nodiscard]] std::size_t gradient_sum_partials();
/// *sum += Σ partial[0, count), in order.
void sum_partial_squares(cudaStream_t stream, const double* partial, std::size_t count, double* sum);

}  // namespace troupe::cuda
