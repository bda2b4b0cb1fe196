#pragma once
#include <cmath>
#include <string>
#include <vector>

namespace troupe {

/// What is wrong with the weights of a blend: each is finite and 0 or more, and one is above 0. Empty: nothing.
[[nodiscard]] inline std::string weights_problem(const std::vector<double>& weights) {
  double sum = 0;
  for (const double weight : weights) {
    if (!std::isfinite(weight) || weight < 0) return std::to_string(weight) + " is no weight; weights are 0 or more";
    sum += weight;
  }
  return sum > 0 ? "" : "no weight is above 0, so nothing would be read";
}

}  // namespace troupe
