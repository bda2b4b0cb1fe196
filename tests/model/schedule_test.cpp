#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "src/optimizer/warmup_stable_decay.hpp"

namespace troupe {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;
using testing::HasSubstr;

struct Curve {
  ScheduleSettings settings;
  std::uint64_t steps;
};

std::vector<double> factors(const Curve& curve) {
  const WarmupStableDecay schedule = fit_schedule(curve.settings, curve.steps).schedule;
  std::vector<double> all;
  for (std::uint64_t step = 1; step <= curve.steps; ++step) all.push_back(std::round(schedule.factor(Step{step}) * 1e12) / 1e12);
  return all;
}

ScheduleSettings settings(std::int64_t warmup, std::optional<double> ratio) {
  ScheduleSettings s;
  s.warmup_steps = warmup;
  s.decay_ratio = ratio;
  return s;
}

TEST(WarmupStableDecay, RisesReachesThePeakAndStillTrainsInTheLastStep) {
  EXPECT_THAT(factors({settings(2, 0.8), 10}), ElementsAre(.5, 1, 1, .875, .75, .625, .5, .375, .25, .125));
  EXPECT_THAT(factors({settings(4, 0.4), 10}), ElementsAre(.25, .5, .75, 1, 1, 1, 1, .75, .5, .25));
}

TEST(WarmupStableDecay, DecaysFromTheWarmUpOnWhereNoRatioIsSet) {
  EXPECT_THAT(factors({settings(2, std::nullopt), 10}), ElementsAre(.5, 1, 1, .875, .75, .625, .5, .375, .25, .125));
}

TEST(WarmupStableDecay, NeitherWarmUpNorDecayIsAConstant) { EXPECT_THAT(factors({settings(0, 0.0), 6}), ElementsAre(1, 1, 1, 1, 1, 1)); }

TEST(WarmupStableDecay, AWarmUpAsLongAsTheRunReachesThePeakInTheLastStep) {
  EXPECT_THAT(factors({settings(4, std::nullopt), 4}), ElementsAre(.25, .5, .75, 1));
}

TEST(WarmupStableDecay, AWarmUpLongerThanTheRunIsCutWithAWarning) {
  EXPECT_THAT(factors({settings(8, std::nullopt), 5}), ElementsAre(DoubleEq(.2), DoubleEq(.4), DoubleEq(.6), DoubleEq(.8), 1));
  EXPECT_THAT(fit_schedule(settings(8, std::nullopt), 5).warnings, ElementsAre(HasSubstr("warmup_steps is 8 but the run has 5")));
}

TEST(WarmupStableDecay, ADecayThatDoesNotFitIsCutWithAWarning) {
  const FittedSchedule fitted = fit_schedule(settings(6, 0.8), 10);
  EXPECT_EQ(fitted.schedule.decay, 4U);
  EXPECT_THAT(fitted.warnings, ElementsAre(HasSubstr("the decay is cut to 4")));
}

TEST(WarmupStableDecay, OneStepWithoutWarmUpTrains) { EXPECT_THAT(factors({settings(0, std::nullopt), 1}), ElementsAre(testing::Gt(0.0))); }

TEST(WarmupStableDecay, CurvesAreLinearRootAndCosineAboveTheFloor) {
  ScheduleSettings s = settings(0, 1.0);
  s.min_lr_factor = 0.1;
  const auto third = [&](const char* curve) {  // of four: progress 2 / 4 at the third step, as the first has progress 0
    s.decay_type = curve;
    return fit_schedule(s, 4).schedule.factor(Step{3});
  };
  EXPECT_DOUBLE_EQ(third("linear"), 0.1 + 0.9 * 0.5);
  EXPECT_DOUBLE_EQ(third("sqrt"), 0.1 + 0.9 * (1 - std::sqrt(0.5)));
  EXPECT_DOUBLE_EQ(third("cosine"), 0.1 + 0.9 * 0.5 * (1 + std::cos(std::numbers::pi * 0.5)));
  EXPECT_THAT(decay_curve_named("exponential").error().message, HasSubstr("\"linear\", \"sqrt\" or \"cosine\""));
}

TEST(WarmupStableDecay, PastTheLastStepTheFloorStays) {
  ScheduleSettings s = settings(0, 0.5);
  s.min_lr_factor = 0.25;
  const WarmupStableDecay schedule = fit_schedule(s, 10).schedule;
  EXPECT_DOUBLE_EQ(schedule.factor(Step{11}), 0.25);
  EXPECT_DOUBLE_EQ(schedule.factor(Step{100}), 0.25);
}

TEST(WarmupStableDecay, AShorterRunFollowsTheCurveOfTheTotal) {
  ScheduleSettings s = settings(2, 0.8);
  s.total_steps = 10;
  EXPECT_DOUBLE_EQ(fit_schedule(s, 5).schedule.factor(Step{5}), 0.75);
}

TEST(WarmupStableDecay, HalvesAreRoundedToEvenAsPythonRounds) {
  EXPECT_EQ(fit_schedule(settings(0, 0.25), 10).schedule.decay, 2U);  // round(2.5)
  EXPECT_EQ(fit_schedule(settings(0, 0.35), 10).schedule.decay, 4U);  // round(3.5)
}

}  // namespace
}  // namespace troupe
