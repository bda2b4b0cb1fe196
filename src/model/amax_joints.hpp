#pragma once
#include "src/model/tape_plan.hpp"

namespace troupe {

/// Tensor-wise casts of gradients find their amax by reading the value once more. Where the instruction that wrote the value last can find it on the
/// way (norm's, SwiGLU's and rotary's backward), it is told where (Instruction::amaxes) and the cast that it is there (Instruction::amax_found), and
/// the scale's buffer lives from then on. Devices that have no such kernels do without. Backward only; before places are given out.
void join_amaxes(TapePlan& plan);

}  // namespace troupe
