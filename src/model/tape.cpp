#include "src/model/tape.hpp"

#include <stdexcept>
#include <utility>

namespace troupe {

const char* name_of(OperationType type) noexcept {
  switch (type) {
    case OperationType::embedding: return "embedding";
    case OperationType::rms_norm: return "rms_norm";
    case OperationType::linear: return "linear";
    case OperationType::rotary: return "rotary";
    case OperationType::attention: return "attention";
    case OperationType::swiglu: return "swiglu";
    case OperationType::add: return "add";
    case OperationType::cross_entropy: return "cross_entropy";
  }
  return "unknown";
}

std::vector<ValueIndex> read_by_backward(const TapeStep& step) {
  switch (step.type) {
    case OperationType::rms_norm: return {step.in[0], step.out[1]};
    case OperationType::linear: return {step.in[0]};
    case OperationType::attention: return {step.in[0], step.in[1], step.in[2], step.out[0], step.out[1]};
    case OperationType::swiglu: return {step.in[0], step.in[1]};
    default: return {};
  }
}

OperationCost cost_of(const TapeStep& step, const Tape& tape, const TapeSizes& sizes, std::int64_t weight_elements) {
  OperationCost cost;
  const auto bytes = [&](ValueIndex v) { return sizes.bytes_of(tape.values[v]); };
  for (const ValueIndex v : step.out) cost.out += bytes(v);
  for (const ValueIndex v : read_by_backward(step)) cost.saved += bytes(v);
  for (const ValueIndex v : step.in) cost.forward_bytes += static_cast<double>(bytes(v));
  cost.forward_bytes += static_cast<double>(cost.out) + static_cast<double>(weight_elements) * static_cast<double>(size_of(sizes.compute));
  const auto tokens = static_cast<double>(sizes.tokens());
  const auto weights = static_cast<double>(weight_elements);
  switch (step.type) {
    case OperationType::linear: cost.forward_flops = cost.backward_input_flops = cost.backward_weight_flops = 2 * tokens * weights; break;
    case OperationType::attention:
      // q kᵀ and p v over the whole square, as the usual count does (no causal halving); backward computes five products.
      cost.forward_flops = 4 * tokens * static_cast<double>(sizes.seq_len * step.heads * step.head_dim);
      cost.backward_input_flops = 2.5 * cost.forward_flops;
      break;
    default:
      cost.forward_flops = static_cast<double>(cost.out) / static_cast<double>(size_of(sizes.compute)) * 4;
      cost.backward_input_flops = 2 * cost.forward_flops;
  }
  return cost;
}

ValueIndex TapeBuilder::value(std::string name, std::int64_t width, bool fp32) {
  tape_.values.push_back({std::move(name), width, fp32});
  return static_cast<ValueIndex>(tape_.values.size() - 1);
}

ValueIndex TapeBuilder::input(std::string name, std::int64_t width) {
  if (!tape_.values.empty()) throw std::logic_error("a tape's input is its first value; \"" + name + "\" came later");
  tape_.has_input = true;
  return value(std::move(name), width);
}

ValueIndex TapeBuilder::embedding(std::string name, int parameter, std::int64_t width) {
  const ValueIndex y = value(std::move(name), width);
  tape_.steps.push_back({.type = OperationType::embedding, .in = {}, .out = {y}, .parameter = parameter});
  return y;
}

ValueIndex TapeBuilder::rms_norm(const std::string& name, ValueIndex x, int parameter, double eps) {
  const ValueIndex y = value(name, tape_.values[x].width);
  const ValueIndex rstd = value(name + ".rstd", 1, true);
  tape_.steps.push_back({.type = OperationType::rms_norm, .in = {x}, .out = {y, rstd}, .parameter = parameter, .eps = eps});
  return y;
}

ValueIndex TapeBuilder::linear(std::string name, ValueIndex x, int parameter, std::int64_t width) {
  const ValueIndex y = value(std::move(name), width);
  tape_.steps.push_back({.type = OperationType::linear, .in = {x}, .out = {y}, .parameter = parameter});
  return y;
}

ValueIndex TapeBuilder::rotary(std::string name, ValueIndex x, std::int64_t heads, std::int64_t head_dim) {
  const ValueIndex y = value(std::move(name), tape_.values[x].width);
  tape_.steps.push_back({.type = OperationType::rotary, .in = {x}, .out = {y}, .heads = heads, .head_dim = head_dim});
  return y;
}

ValueIndex TapeBuilder::attention(const std::string& name, ValueIndex q, ValueIndex k, ValueIndex v, std::int64_t heads, std::int64_t kv_heads,
                                  std::int64_t head_dim) {
  const ValueIndex y = value(name, heads * head_dim);
  const ValueIndex lse = value(name + ".lse", heads, true);
  tape_.steps.push_back({.type = OperationType::attention, .in = {q, k, v}, .out = {y, lse}, .heads = heads, .kv_heads = kv_heads, .head_dim = head_dim});
  return y;
}

ValueIndex TapeBuilder::swiglu(std::string name, ValueIndex gate, ValueIndex up) {
  const ValueIndex y = value(std::move(name), tape_.values[gate].width);
  tape_.steps.push_back({.type = OperationType::swiglu, .in = {gate, up}, .out = {y}});
  return y;
}

ValueIndex TapeBuilder::add(std::string name, ValueIndex a, ValueIndex b) {
  const ValueIndex y = value(std::move(name), tape_.values[a].width);
  tape_.steps.push_back({.type = OperationType::add, .in = {a, b}, .out = {y}});
  return y;
}

void TapeBuilder::cross_entropy(ValueIndex logits) { tape_.steps.push_back({.type = OperationType::cross_entropy, .in = {logits}, .out = {}}); }

Tape TapeBuilder::finish(int output) {
  std::vector<int> readers(tape_.values.size(), 0);
  for (const TapeStep& step : tape_.steps) {
    for (const ValueIndex v : step.in) ++readers[v];
  }
  for (const TapeStep& step : tape_.steps) {
    const bool in_place = step.type == OperationType::rotary || step.type == OperationType::cross_entropy;
    if (in_place && readers[step.in[0]] != 1) {
      throw std::logic_error("value \"" + tape_.values[step.in[0]].name + "\" is overwritten by " + name_of(step.type) + " but has " +
                             std::to_string(readers[step.in[0]]) + " readers");
    }
    if (!step.out.empty() && readers[step.out[0]] == 0 && step.out[0] != output) {
      throw std::logic_error("value \"" + tape_.values[step.out[0]].name + "\" of " + name_of(step.type) + " is read by nobody");
    }
  }
  tape_.output = output;
  return std::exchange(tape_, {.values = {}, .steps = {}, .has_input = false, .output = -1});
}

}  // namespace troupe
