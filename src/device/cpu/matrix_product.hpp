#pragma once
#include "src/device/cpu/scratch.hpp"
#include "src/device/tensor_view.hpp"

namespace troupe::cpu {

/// One operand: a contiguous matrix, read as its transpose if asked.
struct Operand {
  TensorView matrix;
  bool transposed = false;
};

/// out (+)= factor × left right, with fp32 accumulation (fp64 for fp64), rounded once to out's type.
/// left, right: fp32, bf16 (one type) or fp64; out: fp32 or bf16, or fp64. Shapes have been checked.
void multiply(Operand left, Operand right, TensorView out, bool accumulate, float factor, Scratch& scratch);

/// The same by torch's products alone: what CPUs without AVX512_BF16 run, and what the tests compare with there.
void multiply_by_torch(const Operand& left, const Operand& right, const TensorView& out, bool accumulate, float factor, Scratch& scratch);

}  // namespace troupe::cpu
