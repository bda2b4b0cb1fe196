#include "tests/model/autograd.hpp"

#include <cmath>

namespace troupe::test {
namespace {

using torch::Tensor;

/// Pairs (2i, 2i + 1) of [B, S, H d] turned by position.
Tensor rotate(const Tensor& x, const Tensor& table, const TapeStep& step) {
  const Tensor pairs = x.reshape({x.size(0), x.size(1), step.heads, step.head_dim / 2, 2});
  const Tensor cosine = table.select(2, 0).unsqueeze(1), sine = table.select(2, 1).unsqueeze(1);  // [S, 1, d/2]
  const Tensor a = pairs.select(4, 0), b = pairs.select(4, 1);
  return torch::stack({a * cosine - b * sine, a * sine + b * cosine}, 4).reshape(x.sizes());
}

Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, const TapeStep& step) {
  const auto heads = [&](const Tensor& x, std::int64_t count) { return x.reshape({x.size(0), x.size(1), count, step.head_dim}).transpose(1, 2); };
  const std::int64_t groups = step.heads / step.kv_heads;
  const Tensor keys = heads(k, step.kv_heads).repeat_interleave(groups, 1), values = heads(v, step.kv_heads).repeat_interleave(groups, 1);
  Tensor scores = torch::matmul(heads(q, step.heads), keys.transpose(2, 3)) / std::sqrt(static_cast<double>(step.head_dim));
  const Tensor future = torch::ones({q.size(1), q.size(1)}, torch::kBool).triu(1);
  scores = scores.masked_fill(future, -INFINITY);
  return torch::matmul(torch::softmax(scores, -1), values).transpose(1, 2).reshape(q.sizes());
}

}  // namespace

Tensor reference_loss(const ModelDescription& model, const std::map<std::string, Tensor>& parameters, const Tensor& tokens, const Tensor& labels) {
  std::vector<double> angles = rotary_table(model.rotary, tokens.size(1));
  const Tensor table = torch::from_blob(angles.data(), {tokens.size(1), model.head_dim / 2, 2}, torch::kFloat64).clone();
  Tensor x, loss;
  for (const UnitDescription& unit : model.units) {
    std::vector<Tensor> values(unit.tape.values.size());
    if (unit.tape.has_input) values[0] = x;
    for (const TapeStep& step : unit.tape.steps) {
      const auto in = [&](std::size_t i) { return values[step.in[i]]; };
      Tensor w;
      if (step.parameter >= 0) {
        const ParameterDescription& p = unit.parameters[static_cast<std::size_t>(step.parameter)];
        w = parameters.at(p.tied_to.empty() ? p.name : p.tied_to);
      }
      switch (step.type) {
        case OperationType::embedding: values[step.out[0]] = torch::embedding(w, tokens); break;
        case OperationType::rms_norm: values[step.out[0]] = in(0) * torch::rsqrt(in(0).square().mean(-1, true) + step.eps) * w; break;
        case OperationType::linear: values[step.out[0]] = torch::matmul(in(0), w.t()); break;
        case OperationType::rotary: values[step.out[0]] = rotate(in(0), table, step); break;
        case OperationType::attention: values[step.out[0]] = attend(in(0), in(1), in(2), step); break;
        case OperationType::swiglu: values[step.out[0]] = torch::silu(in(0)) * in(1); break;
        case OperationType::add: values[step.out[0]] = in(0) + in(1); break;
        case OperationType::cross_entropy: {
          const Tensor valid = labels.ge(0);
          const Tensor log_p = torch::log_softmax(in(0), -1).gather(-1, labels.clamp_min(0).unsqueeze(-1)).squeeze(-1);
          loss = -(log_p * valid).sum();
          break;
        }
      }
    }
    if (unit.tape.output >= 0) x = values[static_cast<std::size_t>(unit.tape.output)];
  }
  return loss;
}

}  // namespace troupe::test
