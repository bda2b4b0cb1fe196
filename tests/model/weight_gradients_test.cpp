#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "tests/model/ranks.hpp"

// training.weight_gradients = "bfloat16": what the backward pass leaves is rounded once, and half as large.
namespace troupe::test {
namespace {

TrainingOptions options(DType gradient, bool float8 = false) {
  TrainingOptions o;
  o.batch = {2, 32};
  o.compute = DType::bf16;
  o.gradients_in_place = true;
  o.gradient = gradient;
  o.float8 = {float8, {"output"}};
  return o;
}

struct Gradient {
  DType dtype;
  std::vector<float> values;
};

/// Bits of a bf16 value are the upper half of the fp32 value's.
std::vector<float> values_of(const TensorView& view) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < view.shape.elements(); ++i)
    values.push_back(view.dtype == DType::f32 ? view.as<const float>()[i]
                                              : std::bit_cast<float>(static_cast<std::uint32_t>(view.as<const std::uint16_t>()[i]) << 16U));
  return values;
}

/// Of the first step, by the parameters' names.
std::map<std::string, Gradient> gradients_of(const TrainingOptions& o) {
  std::map<std::string, Gradient> found;
  on_ranks(llama3("quickstart"), o, [&](RankContext& rank) {
    PlainStep(rank.model, rank.device, rank.communicator, deal(rank.model.options(), markov_rows(64))).gradients(Step{1});
    for (const StateTensor& tensor : rank.model.gradients()) found[tensor.name] = {tensor.view.dtype, values_of(tensor.view)};
  });
  return found;
}

TEST(WeightGradients, InBfloat16AreThoseInFloat32RoundedOnceAndThoseOfNormsAreTheSame) {
  for (const bool float8 : {false, true}) {
    const std::map<std::string, Gradient> whole = gradients_of(options(DType::f32, float8)), half = gradients_of(options(DType::bf16, float8));
    ASSERT_EQ(whole.size(), half.size());
    std::size_t rounded = 0;
    for (const auto& [name, of] : whole) {
      const Gradient& other = half.at(name);
      const bool norm = name.find("norm") != std::string::npos;
      EXPECT_EQ(other.dtype, norm ? DType::f32 : DType::bf16) << name;
      double error = 0, size = 0;
      for (std::size_t i = 0; i < of.values.size(); ++i) {
        const double difference = other.values[i] - of.values[i];
        error += difference * difference;
        size += static_cast<double>(of.values[i]) * of.values[i];
        EXPECT_LE(std::abs(difference), std::abs(of.values[i]) / 256) << name << " [" << i << "]: half a place of 8 bits";
      }
      EXPECT_TRUE(!norm || error == 0) << name;
      rounded += !norm && error > 0 ? 1 : 0;
      EXPECT_GT(size, 0) << name;
    }
    EXPECT_GT(rounded, 2U);
  }
}

TEST(WeightGradients, InBfloat16TrainAsThoseInFloat32) {
  for (const bool float8 : {false, true}) {
    const auto losses = [&](DType gradient) { return train(llama3("quickstart"), options(gradient, float8), markov_rows(64), 20, 1e-3); };
    const std::vector<StepNumbers> whole = losses(DType::f32), half = losses(DType::bf16);
    EXPECT_EQ(half.front().verdict.mean_loss, whole.front().verdict.mean_loss) << "nothing is different before the first step";
    EXPECT_NEAR(half.front().verdict.grad_norm / whole.front().verdict.grad_norm, 1.0, 1e-3);
    for (std::size_t i = 0; i < whole.size(); ++i)
      EXPECT_NEAR(half[i].verdict.mean_loss / whole[i].verdict.mean_loss, 1.0, 1e-2) << "fp8 " << float8 << ", step " << i + 1;
    EXPECT_LT(half.back().verdict.mean_loss, 0.9 * half.front().verdict.mean_loss);
  }
}

TEST(WeightGradients, InBfloat16TakeHalfTheMemoryAsPlanned) {
  const auto gradients = [](DType gradient) {
    const TrainingEstimate estimate = estimate_training(llama3("quickstart"), options(gradient));
    return std::ranges::find(estimate.memory, "gradient shards", &MemoryItem::kind)->bytes;
  };
  EXPECT_NEAR(static_cast<double>(gradients(DType::bf16)) / static_cast<double>(gradients(DType::f32)), 0.5, 0.01) << "norms are few";
  on_ranks(llama3("quickstart"), options(DType::bf16), [](RankContext& rank) {
    EXPECT_EQ(rank.model.allocated_bytes(), rank.model.estimate().resident_bytes());
    EXPECT_EQ(rank.device.allocated_bytes(Placement::device), rank.model.device_bytes());
  });
}

TEST(WeightGradients, AreRefusedInBfloat16WhereSomethingIsAddedToThem) {
  const auto refused = [](const std::function<void(TrainingOptions&)>& change) {
    TrainingOptions o = options(DType::bf16);
    change(o);
    EXPECT_THROW((void)estimate_training(llama3("tiny"), o), std::invalid_argument);
  };
  refused([](TrainingOptions& o) { o.world = 2; });
  refused([](TrainingOptions& o) { o.replicas = 2; });
  refused([](TrainingOptions& o) { o.micro_batches = 2; });
  refused([](TrainingOptions& o) { o.step_in_backward = true; });
  refused([](TrainingOptions& o) { o.compute = DType::f32; });
  refused([](TrainingOptions& o) { o.gradients_in_place = false; });
  (void)estimate_training(llama3("tiny"), options(DType::bf16));
  ModelDescription tied = llama3("tiny");
  tied.units.back().parameters.back().tied_to = "tok_embeddings.weight";
  EXPECT_THROW((void)estimate_training(tied, options(DType::bf16)), std::invalid_argument);
}

}  // namespace
}  // namespace troupe::test
