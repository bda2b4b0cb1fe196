#include <gtest/gtest.h>

#include <random>

#include "tests/model/autograd.hpp"
#include "tests/model/ranks.hpp"

namespace troupe::test {
namespace {

struct Batch {
  std::vector<std::int32_t> values;  ///< tokens, then labels
  [[nodiscard]] torch::Tensor part(std::size_t which, const BatchLayout& layout) const {
    auto* start = const_cast<std::int32_t*>(values.data()) + which * layout.tokens();
    return torch::from_blob(start, {layout.rows, layout.seq_len}, torch::kInt32).to(torch::kInt64);
  }
};

Batch random_batch(const BatchLayout& layout, std::int32_t vocabulary) {
  std::mt19937 random(3);
  Batch batch;
  for (std::size_t i = 0; i < 2 * layout.tokens(); ++i) batch.values.push_back(static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(vocabulary)));
  for (std::size_t i = layout.tokens(); i < 2 * layout.tokens(); i += 5) batch.values[i] = -100;
  return batch;
}

/// All gradients of one batch by the tape, unsharded, by name; the gradients of tied parameters are summed.
std::map<std::string, torch::Tensor> tape_gradients(TrainingModel& model, const Batch& batch) {
  const WeightLayout& layout = model.estimate().layout;
  Stream stream;
  std::vector<std::vector<std::byte>> weights(model.units());
  const auto bytes = std::as_bytes(std::span(batch.values));
  std::map<std::string, torch::Tensor> gradients;
  for (std::uint32_t u = 0; u < model.units(); ++u) {
    weights[u].resize(layout.units[u].weights_bytes);
    model.place_weights(stream, Unit{u}, weights[u]);
    model.compute().forward(stream, Step{1}, Micro{0}, Unit{u}, bytes, weights[u]);
  }
  for (std::uint32_t u = model.units(); u-- > 0;) {
    std::vector<std::byte> slot(layout.units[u].gradients_bytes, std::byte{0x7f});
    model.compute().backward(stream, Step{1}, Micro{0}, Unit{u}, bytes, weights[u], slot);
    for (const ParameterSlot& s : layout.units[u].slots) {
      const ParameterDescription& p = layout.parameters[s.parameter].description;
      const auto sizes = p.vector ? std::vector<std::int64_t>{p.rows} : std::vector<std::int64_t>{p.rows, p.cols};
      const torch::Tensor found = torch::from_blob(slot.data() + s.gradient_offset, sizes, torch::kFloat64).clone();
      gradients[p.name] = gradients.contains(p.name) ? gradients[p.name] + found : found;
    }
  }
  return gradients;
}

std::map<std::string, torch::Tensor> leaves(TrainingModel& model) {
  std::map<std::string, torch::Tensor> parameters;
  for (const StateTensor& state : model.state()) {
    if (!state.model) continue;
    std::vector<std::int64_t> sizes(state.global_shape.size.begin(), state.global_shape.size.begin() + state.global_shape.rank);
    parameters[state.name] = torch::from_blob(state.view.data, sizes, torch::kFloat32).to(torch::kFloat64).set_requires_grad(true);
  }
  return parameters;
}

void expect_gradients_of_autograd(const ModelDescription& description, Recompute recompute = Recompute::none) {
  TrainingOptions options;
  options.batch = {2, 12};
  options.compute = DType::f64;
  options.recompute = recompute;
  options.nominal_tokens = 20;
  on_ranks(description, options, [&](RankContext& rank) {
    // Norm weights of one would hide where they are multiplied.
    for (const StateTensor& state : rank.model.state()) {
      if (state.global_shape.rank == 1 && state.model) {
        for (std::int64_t i = 0; i < state.rows; ++i) state.view.as<float>()[i] = 1.0F + 0.01F * static_cast<float>(i % 7);
      }
    }
    const Batch batch = random_batch(options.batch, static_cast<std::int32_t>(description.vocab_size));
    auto expected = leaves(rank.model);
    const torch::Tensor loss = reference_loss(description, expected, batch.part(0, options.batch), batch.part(1, options.batch));
    (loss / options.nominal_tokens).backward();
    const auto found = tape_gradients(rank.model, batch);
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [name, gradient] : found) {
      const torch::Tensor reference = expected[name].grad();
      ASSERT_TRUE(reference.defined()) << name;
      ASSERT_GT(reference.norm().item<double>(), 0) << name;
      EXPECT_LE((gradient - reference).norm().item<double>(), 1e-12 * reference.norm().item<double>()) << name;
    }
  });
}

TEST(TapeGradients, WholeModelEqualsAutogradInFp64) { expect_gradients_of_autograd(llama3("tiny")); }

TEST(TapeGradients, ModelThatComputesSomeOperationsAgainEqualsAutogradInFp64) { expect_gradients_of_autograd(llama3("tiny"), Recompute::operations); }
TEST(TapeGradients, ModelWithinAMemoryBudgetEqualsAutogradInFp64) { expect_gradients_of_autograd(llama3("tiny"), Recompute::budget); }
TEST(TapeGradients, RecomputedModelEqualsAutogradInFp64) { expect_gradients_of_autograd(llama3("tiny"), Recompute::full); }

TEST(TapeGradients, TiedModelEqualsAutogradInFp64) { expect_gradients_of_autograd(llama3("tiny_tied")); }

TEST(TapeGradients, ManyQueryHeadsOnOneKeyHeadEqualAutogradInFp64) {
  Llama3Flavour flavour = llama3_flavour("tiny").value();
  flavour.kv_heads = 1;
  flavour.ffn_hidden = 20;
  flavour.vocab_size = 33;
  expect_gradients_of_autograd(describe_llama3(flavour));
}

/// A block with every way in which gradients meet: a value with three readers, one that is key and value at once, additions that share
/// memory, a norm of a norm, and a weight that is used twice.
ModelDescription knotted() {
  ModelDescription model = llama3("tiny");
  UnitDescription& unit = model.units[1];
  const std::vector<ParameterDescription> all = unit.parameters;
  unit.parameters = {all[0], all[1], all[3], all[7], all[8]};  // wq [32,32], wk [16,32], wo [32,32], two norms
  TapeBuilder t;
  const ValueIndex x = t.input("x", 32);
  const ValueIndex h = t.rms_norm("h", x, 3, 1e-5);
  const ValueIndex q = t.rotary("q.rotated", t.linear("q", h, 0, 32), 4, 8);
  const ValueIndex k = t.linear("k", h, 1, 16);
  const ValueIndex a = t.attention("a", q, k, k, 4, 2, 8);
  const ValueIndex s = t.add("s", a, t.add("h+x", h, x));
  const ValueIndex n = t.rms_norm("n", s, 4, 1e-5);
  const ValueIndex g = t.swiglu("g", n, n);
  const ValueIndex o = t.linear("o", g, 2, 32);
  const ValueIndex again = t.linear("o again", o, 2, 32);
  unit.tape = t.finish(t.add("y", t.add("s+s", s, s), t.add("o+o", o, again)));
  return model;
}

TEST(TapeGradients, SharedValuesAndWeightsSumTheirGradients) {
  expect_gradients_of_autograd(knotted());
  expect_gradients_of_autograd(knotted(), Recompute::full);
}

/// One rank with all of the state has nothing to reduce: its gradients may be written where they stay.
TEST(TapeGradients, WrittenWhereTheyStayMakeTheSameStepsBitForBit) {
  for (const std::uint32_t replicas : {1U, 2U}) {
    for (const char* flavour : {"tiny", "tiny_tied"}) {
      const auto run = [&](bool in_place, std::uint32_t micro_batches) {
        TrainingOptions options;
        options.batch = {2, 32};
        options.micro_batches = micro_batches;
        options.replicas = replicas;
        options.gradients_in_place = in_place;
        std::vector<double> found;
        for (const StepNumbers& n : train(llama3(flavour), options, markov_rows(64), 4, 1e-2)) {
          found.push_back(n.verdict.mean_loss);
          found.push_back(n.verdict.grad_norm);
        }
        return found;
      };
      EXPECT_EQ(run(true, 1), run(false, 1)) << flavour << ", " << replicas << " replicas";
      EXPECT_EQ(run(true, 2), run(false, 2)) << flavour << ", " << replicas << " replicas, two micro-batches";
    }
  }
}

}  // namespace
}  // namespace troupe::test
