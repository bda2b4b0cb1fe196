#pragma once
#include "src/device/tensor_view.hpp"

namespace troupe::cpu {

/// Causal attention as plain loops over heads and rows: fp64, and shapes that the fast one does not take. Views and meaning as in
/// Kernels::attention; shapes have been checked; all of one type but lse.
void attention_reference(const TensorView& q, const TensorView& k, const TensorView& v, double scale, const TensorView& out, const TensorView& lse,
                         const TensorView& starts);
void attention_reference_backward(const TensorView& dout, const TensorView& q, const TensorView& k, const TensorView& v, const TensorView& out,
                                  const TensorView& lse, double scale, const TensorView& dq, const TensorView& dk, const TensorView& dv,
                                  const TensorView& starts);

}  // namespace troupe::cpu
