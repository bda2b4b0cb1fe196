#include "src/data/blend.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "src/data/blend_weights.hpp"

namespace troupe {
namespace {

constexpr std::uint64_t stride = 65536;  // draws between marks

}  // namespace

Blend::Blend(const std::vector<double>& weights) : shares_(weights), counts_(weights.size()) {
  if (const std::string problem = weights_problem(weights); !problem.empty()) throw std::invalid_argument("a blend's weights: " + problem);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::size_t sources = 0;
  for (double& share : shares_) {
    share /= sum;
    sources += share > 0 ? 1 : 0;
  }
  slack_ = sources > 1 ? 1.0 / static_cast<double>(2 * sources - 2) : 0.0;
  marks_.push_back(counts_);
}

std::uint32_t Blend::next() const {
  std::uint32_t chosen = 0;
  double nearest = std::numeric_limits<double>::infinity();
  const auto n = static_cast<double>(draws_ + 1);
  for (std::uint32_t s = 0; s < shares_.size(); ++s) {
    if (shares_[s] <= 0) continue;
    const double owed = n * shares_[s] - static_cast<double>(counts_[s]);
    if (owed < slack_) continue;
    const double deadline = (1 - slack_ - owed) / shares_[s];  // draws until it would be owed too much
    if (deadline < nearest) {
      nearest = deadline;
      chosen = s;
    }
  }
  if (nearest < std::numeric_limits<double>::infinity()) return chosen;
  double most = -std::numeric_limits<double>::infinity();  // all are within a rounding of their slack
  for (std::uint32_t s = 0; s < shares_.size(); ++s) {
    const double owed = n * shares_[s] - static_cast<double>(counts_[s]);
    if (shares_[s] > 0 && owed > most) {
      most = owed;
      chosen = s;
    }
  }
  return chosen;
}

Blend::Draw Blend::at(std::uint64_t k) {
  if (k < draws_) {
    const std::size_t mark = std::min<std::size_t>(k / stride, marks_.size() - 1);
    draws_ = mark * stride;
    counts_ = marks_[mark];
  } else if (const std::uint64_t mark = std::min<std::uint64_t>(k / stride, marks_.size() - 1); mark * stride > draws_) {
    draws_ = mark * stride;
    counts_ = marks_[mark];
  }
  while (true) {
    const std::uint32_t source = next();
    const Draw draw{source, counts_[source]};
    ++counts_[source];
    ++draws_;
    if (draws_ % stride == 0 && draws_ / stride == marks_.size()) marks_.push_back(counts_);
    if (draws_ == k + 1) return draw;
  }
}

}  // namespace troupe
