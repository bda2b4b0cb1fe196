#pragma once
#include "src/device/cuda/kernels/element.hpp"
#include "src/device/verdict.hpp"

namespace troupe::cuda {

/// Cross entropy in place (K8): logits become (softmax − onehot) × grad_scale, zero in rows with a negative label; Σ −log p, the count of
/// valid labels and of non-finite losses are added to sums->loss, tokens, bad in a fixed order. A label outside the vocabulary counts as bad
/// and its row becomes zero. Arithmetic in fp32, sums over rows in fp64. Each logit is read once and written once: a row is held by a
/// cluster of blocks. 4 bytes an element for bf16.
struct CrossEntropy {
  void* logits;  ///< [rows, columns]
  Element type;  ///< fp32 or bf16
  const std::int32_t* labels;
  std::int64_t rows, columns;
  double grad_scale;
  VerdictSums* sums;  ///< device memory
  float* losses;      ///< scratch [rows]
};
void cross_entropy(cudaStream_t stream, const CrossEntropy& call);

}  // namespace troupe::cuda
