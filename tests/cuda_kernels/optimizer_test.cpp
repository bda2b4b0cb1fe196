// AdamW, the gradient's norm, casts and sums of shards, the verdict, against fp64 on the host.
#include "src/device/cuda/kernels/optimizer.hpp"

#include <memory>

#include "src/device/cuda/kernels/verdict.hpp"
#include "tests/cuda_kernels/device_array.hpp"

namespace troupe::cuda {
namespace {

struct Parameter {
  explicit Parameter(std::size_t count, std::uint64_t seed)
      : start(Random(seed).values<float>(count)),
        slope(Random(seed + 1).values<float>(count, 0.1)),
        parameter(start),
        gradient(slope),
        first(std::vector<float>(count, 0.0F)),
        second(std::vector<float>(count, 0.0F)),
        copy(count),
        taken(std::vector<std::int64_t>{0}),
        amax(std::vector<float>{7.0F}) {}
  [[nodiscard]] AdamWTensor tensor() const {
    return {parameter.get(), gradient.get(), first.get(), second.get(), static_cast<std::int64_t>(start.size()), taken.get(), amax.get(), copy.get()};
  }
  std::vector<float> start, slope;
  DeviceArray<float> parameter, gradient, first, second;
  DeviceArray<BFloat16> copy;
  DeviceArray<std::int64_t> taken;
  DeviceArray<float> amax;
};

/// `steps` steps with one gradient, in fp64.
std::vector<double> stepped(const Parameter& p, const AdamWConstants& c, double factor, int steps) {
  std::vector<double> result(p.start.begin(), p.start.end());
  for (std::size_t i = 0; i < result.size(); ++i) {
    double m = 0, v = 0;
    for (int t = 1; t <= steps; ++t) {
      double g = p.slope[i] * factor;
      if (!c.decoupled) g += c.weight_decay * result[i];
      if (c.decoupled) result[i] *= 1 - c.learning_rate * c.weight_decay;
      m = c.beta1 * m + (1 - c.beta1) * g;
      v = c.beta2 * v + (1 - c.beta2) * g * g;
      result[i] -= c.learning_rate / (1 - std::pow(c.beta1, t)) * m / (std::sqrt(v / (1 - std::pow(c.beta2, t))) + c.eps);
    }
  }
  return result;
}

void expect_steps(const AdamWConstants& constants) {
  std::vector<std::unique_ptr<Parameter>> parameters;
  std::vector<AdamWTensor> tensors;
  for (std::size_t i = 0; i < 50; ++i) parameters.push_back(std::make_unique<Parameter>(i == 3 ? 300001 : i == 7 ? 0 : 1 + i * 37, i));
  for (const auto& p : parameters) tensors.push_back(p->tensor());
  const DeviceArray<std::uint8_t> scratch(adamw_scratch(tensors.size()));
  Verdict commit;
  commit.outcome = VerdictOutcome::commit;
  commit.gradient_factor = 0.5F;
  const DeviceArray<Verdict> verdict(std::vector<Verdict>{commit});
  for (int step = 0; step < 3; ++step) adamw(stream, tensors.data(), tensors.size(), constants, nullptr, verdict.get(), scratch.get());
  for (const auto& p : parameters) {
    EXPECT_EQ(p->taken.host()[0], 3);
    if (p->start.empty()) continue;
    expect_close(p->parameter.host(), stepped(*p, constants, 0.5, 3), "parameter");
    const auto halves = p->copy.host();
    const auto values = p->parameter.host();
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(wide(halves[i]), wide(to<BFloat16>(values[i])));
    EXPECT_EQ(p->amax.host()[0], largest_of(values)) << "of the last step alone";
  }
}

TEST(AdamW, StepsManyTensorsAsTheFormulaSays) {
  expect_steps({.learning_rate = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1});
  expect_steps({.learning_rate = 1e-2, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-6, .weight_decay = 0.1, .decoupled = false});
}

TEST(AdamW, MovesNothingUnlessTheVerdictIsCommit) {
  const Parameter p(1000, 4);
  const AdamWTensor tensor = p.tensor();
  const DeviceArray<std::uint8_t> scratch(adamw_scratch(1));
  for (const VerdictOutcome outcome : {VerdictOutcome::skip, VerdictOutcome::void_}) {
    Verdict no;
    no.outcome = outcome;
    no.gradient_factor = 1;
    const DeviceArray<Verdict> verdict(std::vector<Verdict>{no});
    adamw(stream, &tensor, 1, {1e-2, 0.9, 0.95, 1e-8, 0.1}, nullptr, verdict.get(), scratch.get());
    EXPECT_EQ(p.parameter.host(), p.start);
    EXPECT_EQ(p.first.host(), std::vector<float>(1000, 0.0F));
    EXPECT_EQ(p.taken.host()[0], 0);
    EXPECT_EQ(p.amax.host()[0], 7.0F);
  }
}

TEST(AdamW, TakesTheLearningRateFactorsFromTensorAndDevice) {
  const Parameter p(100, 4);
  AdamWTensor tensor = p.tensor();
  tensor.learning_rate_factor = 0.5;
  tensor.weight_decay_factor = 0;
  const DeviceArray<std::uint8_t> scratch(adamw_scratch(1));
  const DeviceArray<float> factor(std::vector<float>{0.25F});
  Verdict commit;
  commit.outcome = VerdictOutcome::commit;
  commit.gradient_factor = 1;
  const DeviceArray<Verdict> verdict(std::vector<Verdict>{commit});
  adamw(stream, &tensor, 1, {8e-2, 0.9, 0.95, 1e-8, 0.1}, factor.get(), verdict.get(), scratch.get());
  expect_close(p.parameter.host(), stepped(p, {1e-2, 0.9, 0.95, 1e-8, 0}, 1, 1), "parameter");
}

TEST(SumSquares, AddsAllRunsAndRepeatsBitForBit) {
  const auto a = Random(1).values<float>(3000017), c = Random(3).values<float>(5);
  const auto b = Random(2).values<BFloat16>(100003);
  double wanted = 7;
  for (const float x : a) wanted += double(x) * x;
  for (const BFloat16 x : b) wanted += wide(x) * wide(x);
  for (const float x : c) wanted += double(x) * x;
  const DeviceArray<float> device_a(a), device_c(c);
  const DeviceArray<BFloat16> device_b(b);
  std::vector<cuda::Run> runs{{device_a.get(), Element::f32, 3000017}, {device_b.get(), Element::bf16, 100003}, {device_c.get(), Element::f32, 5}};
  for (int i = 0; i < 200; ++i) runs.push_back({device_c.get(), Element::f32, 0});
  const DeviceArray<std::uint8_t> scratch(sum_squares_scratch(runs.size(), 3100025));
  double first = 0;
  for (int i = 0; i < 4; ++i) {
    const DeviceArray<double> sum(std::vector<double>{7.0});
    sum_squares(stream, runs.data(), runs.size(), sum.get(), scratch.get());
    const double found = sum.host()[0];
    if (i == 0) first = found;
    EXPECT_EQ(found, first);
    EXPECT_NEAR(found, wanted, 1e-12 * wanted);
  }
}

TEST(CastShards, WritesBf16AndFp8WithTheirScales) {
  std::vector<std::unique_ptr<DeviceArray<float>>> values, amaxes;
  std::vector<std::unique_ptr<DeviceArray<std::uint8_t>>> codes;
  std::vector<std::vector<float>> hosts;
  std::vector<ShardCast> shards;
  const DeviceArray<float> scale(200);
  for (std::size_t i = 0; i < 100; ++i) {
    const std::size_t count = i == 0 ? 70003 : i * 11;
    hosts.push_back(Random(i).values<float>(count));
    values.push_back(std::make_unique<DeviceArray<float>>(hosts.back()));
    amaxes.push_back(std::make_unique<DeviceArray<float>>(std::vector<float>{largest_of(hosts.back())}));
    codes.push_back(std::make_unique<DeviceArray<std::uint8_t>>(2 * count));
    const Element format = i % 3 == 0 ? Element::bf16 : i % 3 == 1 ? Element::e4m3 : Element::e5m2;
    shards.push_back({values.back()->get(), codes.back()->get(), format, static_cast<std::int64_t>(count), amaxes.back()->get(), scale.get() + i});
  }
  cast_shards(stream, shards.data(), shards.size());
  const auto scales = scale.host();
  for (std::size_t i = 0; i < 100; ++i) {
    const auto found = codes[i]->host();
    if (shards[i].format == Element::bf16) {
      for (std::size_t j = 0; j < hosts[i].size(); ++j) {
        const BFloat16 wanted = to<BFloat16>(hosts[i][j]);
        ASSERT_EQ(std::memcmp(&found[2 * j], &wanted, 2), 0) << i << ' ' << j;
      }
      continue;
    }
    const float s = scale_of(shards[i].format, largest_of(hosts[i]));
    EXPECT_EQ(scales[i], s);
    for (std::size_t j = 0; j < hosts[i].size(); ++j) ASSERT_EQ(found[j], float8_code(shards[i].format, hosts[i][j] * s)) << i << ' ' << j;
  }
}

TEST(GradientSum, AddsSlicesInFp32AndTheirSquares) {
  const std::size_t count = 300005;
  std::vector<std::unique_ptr<DeviceArray<BFloat16>>> slices;
  const auto old = Random(9).values<float>(count);
  std::vector<float> wanted = old;
  const DeviceArray<float> sum(old);
  const DeviceArray<double> partial(gradient_sum_partials()), total(std::vector<double>{0.0});
  GradientSum call{};
  call.slices = 3;
  call.to = sum.get();
  call.elements = static_cast<std::int64_t>(count);
  call.accumulate = true;
  call.partial_squares = partial.get();
  for (std::size_t s = 0; s < 3; ++s) {
    const auto values = Random(s).values<BFloat16>(count);
    for (std::size_t i = 0; i < count; ++i) wanted[i] += static_cast<float>(wide(values[i]));
    slices.push_back(std::make_unique<DeviceArray<BFloat16>>(values));
    call.slice[s] = slices.back()->get();
  }
  gradient_sum(stream, call);
  sum_partial_squares(stream, partial.get(), gradient_sum_partials(), total.get());
  EXPECT_EQ(sum.host(), wanted);
  double squares = 0;
  for (const float x : wanted) squares += double(x) * x;
  EXPECT_NEAR(total.host()[0], squares, 1e-12 * squares);
}

TEST(Decide, IsTheHostsVerdict) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const VerdictSums good{4.0, 12.0, 60.0, 0.0, 2.0 * 17.0};
  std::vector<VerdictSums> all{good, good, good, good, good, good};
  all[1].grad_square = nan;
  all[2].bad = 1;
  all[3].tag = 1;
  all[4].tokens = 0;
  all[5].grad_square = 1e-4;
  const DeviceArray<std::uint32_t> halt(std::vector<std::uint32_t>{1});
  for (const VerdictSums& sums : all) {
    for (const double max_norm : {1.0, 0.0, inf}) {
      for (const bool halted : {false, true}) {
        const DeviceArray<VerdictSums> device_sums(std::vector<VerdictSums>{sums});
        const DeviceArray<Verdict> verdict(1);
        decide(stream, {device_sums.get(), 2.0, 17.0, 64.0, max_norm, halted ? reinterpret_cast<const HaltWord*>(halt.get()) : nullptr, verdict.get()});
        const Verdict wanted = decide_verdict(sums, 2.0, 17.0, 64.0, max_norm, halted), found = verdict.host()[0];
        EXPECT_EQ(found.outcome, wanted.outcome);
        EXPECT_EQ(found.gradient_factor, wanted.gradient_factor);
        EXPECT_TRUE(found.grad_norm == wanted.grad_norm || (std::isnan(found.grad_norm) && std::isnan(wanted.grad_norm)));
        EXPECT_EQ(found.mean_loss, wanted.mean_loss);
        EXPECT_EQ(found.tokens, wanted.tokens);
        EXPECT_EQ(found.bad, wanted.bad);
      }
    }
  }
}

}  // namespace
}  // namespace troupe::cuda
