#include "actors/loss_window.hpp"

#include <algorithm>
#include <vector>

namespace troupe {

void LossWindow::add(double loss) {
  losses_.push_back(loss);
  if (losses_.size() > steps_) losses_.pop_front();
}

std::optional<double> LossWindow::median() const {
  if (losses_.empty() || 2 * losses_.size() < steps_) return std::nullopt;
  std::vector<double> sorted(losses_.begin(), losses_.end());
  std::ranges::sort(sorted);
  const std::size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

}  // namespace troupe
