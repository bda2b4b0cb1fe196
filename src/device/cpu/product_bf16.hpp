#pragma once
#include "src/device/cpu/matrix_product.hpp"

namespace troupe::cpu {

/// Whether this CPU multiplies pairs of bf16 into fp32 by itself (AVX512_BF16).
[[nodiscard]] bool multiplies_bf16() noexcept;

/// out (+)= factor × left right for bf16 operands and an fp32 or bf16 result: fp32 accumulation in registers, one rounding at the
/// end. torch's own bf16 product is as fast but can only give bf16, and its fp32 one costs four times as much.
/// Only where multiplies_bf16(). Like the instruction, takes subnormal bf16 values (under 1.2e-38) as zero.
void multiply_bf16(const Operand& left, const Operand& right, const TensorView& out, bool accumulate, float factor, Scratch& scratch);

}  // namespace troupe::cpu
