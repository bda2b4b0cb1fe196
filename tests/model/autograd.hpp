#pragma once
#include <torch/torch.h>

#include <map>
#include <string>

#include "src/model/model_description.hpp"

namespace troupe::test {

/// Σ −log p of a model by autograd: the same tapes, read as torch expressions in the parameters' type (fp64). Parameters are leaves by
/// name, tied ones once. tokens, labels: [rows, seq_len] i64, labels < 0 ignored.
[[nodiscard]] torch::Tensor reference_loss(const ModelDescription& model, const std::map<std::string, torch::Tensor>& parameters, const torch::Tensor& tokens,
                                           const torch::Tensor& labels);

}  // namespace troupe::test
