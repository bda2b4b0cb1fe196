#include "src/data/blend.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "src/data/settings.hpp"

namespace troupe {
namespace {

std::vector<std::uint64_t> counts_of(const std::vector<double>& weights, std::uint64_t draws) {
  Blend blend(weights);
  std::vector<std::uint64_t> counts(weights.size());
  for (std::uint64_t k = 0; k < draws; ++k) {
    const Blend::Draw draw = blend.at(k);
    EXPECT_EQ(draw.row, counts.at(draw.source)) << "each source's rows come in their order, none is left out";
    ++counts[draw.source];
  }
  return counts;
}

// B024
TEST(Blend, TakesAnyWeightsThatAreNotNegativeAndNotAllZero) {
  const auto tiny = counts_of({0.001, 0.999}, 400);
  EXPECT_LE(tiny[0], 1U);
  EXPECT_EQ(tiny[0] + tiny[1], 400U);
  EXPECT_EQ(counts_of({0, 1}, 400), (std::vector<std::uint64_t>{0, 400}));
  EXPECT_EQ(counts_of({3, 1}, 400), (std::vector<std::uint64_t>{300, 100})) << "they need not add up to one";
  EXPECT_THROW(Blend({-1, 2}), std::invalid_argument);
  EXPECT_THROW(Blend({0, 0}), std::invalid_argument);
  EXPECT_THROW(Blend({1, std::nan("")}), std::invalid_argument);
}

// Weights to the power 1/T: of 1, 16 and 81 the fourth roots are 1, 2 and 3, the square roots 1, 4 and 9.
TEST(Blend, ATemperatureGivesItsSharesExactlyInAnyWindow) {
  const auto expect_window = [](double temperature, const std::vector<std::uint64_t>& window) {
    DataSettings settings;
    settings.blend_weights = {1, 16, 81};
    settings.blend_temperature = temperature;
    const std::vector<double> weights = blend_of(settings);
    const std::uint64_t length = window[0] + window[1] + window[2];
    std::vector<std::uint64_t> expected(window);
    for (std::uint64_t& count : expected) count *= 50;
    EXPECT_EQ(counts_of(weights, 50 * length), expected) << "T = " << temperature;
    Blend blend(weights);
    std::vector<std::uint32_t> sources;
    for (std::uint64_t k = 0; k < 20 * length; ++k) sources.push_back(blend.at(k).source);
    for (std::uint64_t from = 0; from + length <= sources.size(); ++from)
      for (std::uint32_t s = 0; s < 3; ++s) {
        const auto first = sources.begin() + static_cast<std::ptrdiff_t>(from);
        const auto found = std::count(first, first + static_cast<std::ptrdiff_t>(length), s);
        ASSERT_LE(std::abs(static_cast<double>(found) - static_cast<double>(window[s])), 1) << "T = " << temperature << ", rows from " << from;
      }
  };
  expect_window(1, {1, 16, 81});
  expect_window(2, {1, 4, 9});
  expect_window(4, {1, 2, 3});
  expect_window(1e12, {1, 1, 1});
}

TEST(Blend, IsWithinOneRowOfItsSharesAfterEveryDraw) {
  std::mt19937_64 dice(5);
  for (int round = 0; round < 30; ++round) {
    std::vector<double> weights(1 + dice() % 9);
    double sum = 0;
    for (double& weight : weights) sum += weight = std::pow(10.0, -static_cast<double>(dice() % 5)) * static_cast<double>(1 + dice() % 100);
    Blend blend(weights);
    std::vector<double> counts(weights.size());
    for (std::uint64_t k = 0; k < 3000; ++k) {
      ++counts[blend.at(k).source];
      for (std::size_t s = 0; s < weights.size(); ++s) ASSERT_LT(std::abs(counts[s] - static_cast<double>(k + 1) * weights[s] / sum), 1.0) << "draw " << k;
    }
  }
}

TEST(Blend, ADrawIsTheSameWhereverOneComesFrom) {
  const std::vector<double> weights{0.2, 0.5, 0.3};
  Blend onward(weights);
  std::vector<Blend::Draw> draws;
  for (std::uint64_t k = 0; k < 200000; ++k) draws.push_back(onward.at(k));
  Blend jumping(weights);
  for (const std::uint64_t k : {199999ULL, 3ULL, 65536ULL, 65535ULL, 131072ULL, 131071ULL, 0ULL, 70000ULL}) {
    const Blend::Draw draw = jumping.at(k);
    EXPECT_EQ(draw.source, draws[k].source) << k;
    EXPECT_EQ(draw.row, draws[k].row) << k;
  }
}

}  // namespace
}  // namespace troupe
