#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/model/ranks.hpp"

// B022: attention within documents.
namespace troupe::test {
namespace {

constexpr std::int32_t vocabulary = 64;
constexpr std::size_t length_a = 7, length_b = 9;

std::vector<std::int32_t> text(std::size_t length, std::int32_t seed) {
  std::vector<std::int32_t> tokens(length);
  for (std::size_t i = 0; i < length; ++i) tokens[i] = static_cast<std::int32_t>((i * 31 + static_cast<std::size_t>(seed) * 17 + i * i) % vocabulary);
  return tokens;
}

struct Outcome {
  std::vector<float> logits;         ///< [token, vocabulary]
  std::vector<std::byte> gradients;  ///< of the loss of B's tokens
};

/// One forward and backward of one row of these documents; the loss is that of the last document's tokens.
Outcome run(const std::vector<std::vector<std::int32_t>>& documents, Recompute recompute, bool isolated = true) {
  std::vector<std::int32_t> tokens, labels, starts;
  for (const auto& document : documents) {
    const auto begin = static_cast<std::int32_t>(tokens.size());
    const bool last = &document == &documents.back();
    for (std::size_t i = 0; i < document.size(); ++i) {
      tokens.push_back(document[i]);
      labels.push_back(last && i + 1 < document.size() ? document[i + 1] : -100);
      starts.push_back(begin);
    }
  }
  Outcome outcome;
  TrainingOptions options;
  options.batch = {1, static_cast<std::uint32_t>(tokens.size()), isolated};
  options.nominal_tokens = 1;
  options.recompute.mode = recompute;
  const auto device = make_cpu_device(1);
  options.loss = [&](Stream& stream, TensorView logits, TensorView targets, double scale, VerdictSums* sums) {
    outcome.logits.assign(logits.as<const float>(), logits.as<const float>() + logits.shape.elements());
    device->kernels().cross_entropy(stream, logits, targets, scale, sums);
  };
  on_ranks(llama3("tiny"), options, [&](RankContext& rank) {
    PlainStep plain(rank.model, rank.device, rank.communicator, [&](Step, Micro, std::span<std::byte> batch) {
      std::byte* to = batch.data();
      for (const auto* part : {&tokens, &labels, &starts}) {
        if (part == &starts && !isolated) break;
        std::memcpy(to, part->data(), part->size() * sizeof(std::int32_t));
        to += part->size() * sizeof(std::int32_t);
      }
    });
    plain.gradients(Step{1});
    for (const StateTensor& g : rank.model.gradients()) outcome.gradients.insert(outcome.gradients.end(), g.view.data, g.view.data + g.view.bytes());
  });
  return outcome;
}

std::vector<float> of_b(const Outcome& outcome) { return {outcome.logits.end() - static_cast<std::ptrdiff_t>(length_b * vocabulary), outcome.logits.end()}; }

class Documents : public ::testing::TestWithParam<Recompute> {};

TEST_P(Documents, ATokenOfOneChangesNothingInTheOtherByABit) {
  const auto a = text(length_a, 1), b = text(length_b, 2);
  auto changed = a;
  changed[3] = (changed[3] + 1) % vocabulary;
  const Outcome before = run({a, b}, GetParam()), after = run({changed, b}, GetParam());
  EXPECT_EQ(of_b(before), of_b(after));
  EXPECT_EQ(before.gradients, after.gradients) << "of B's loss";
  EXPECT_NE(before.logits, after.logits) << "A's own";
  EXPECT_NE(of_b(run({a, b}, GetParam(), false)), of_b(run({changed, b}, GetParam(), false))) << "without isolation B sees A";
}

TEST_P(Documents, OneComputesAsIfItWereAlone) {
  const auto a = text(length_a, 1), b = text(length_b, 2);
  const std::vector<float> beside = of_b(run({a, b}, GetParam())), alone = of_b(run({b}, GetParam(), false));
  const float largest = std::abs(*std::ranges::max_element(alone, {}, [](float x) { return std::abs(x); }));
  for (std::size_t i = 0; i < alone.size(); ++i) ASSERT_NEAR(beside[i], alone[i], 1e-6F * largest) << "logit " << i;  // rotary angles differ by a shift
}

INSTANTIATE_TEST_SUITE_P(Recompute, Documents, ::testing::Values(Recompute::none, Recompute::full),
                         [](const auto& test) { return test.param == Recompute::none ? "KeepingAll" : "ComputingAgain"; });

}  // namespace
}  // namespace troupe::test
