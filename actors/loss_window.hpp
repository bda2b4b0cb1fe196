#pragma once
#include <cstddef>
#include <deque>
#include <optional>

namespace troupe {

/// The losses of the last steps, for telling a spike. Pure; the Coordinator's handlers only.
class LossWindow {
 public:
  /// `steps`: how many losses are kept, at least 1.
  explicit LossWindow(std::size_t steps) : steps_(steps) {}
  void add(double loss);
  /// Of the losses that are kept; nothing before there are half as many as there may be.
  [[nodiscard]] std::optional<double> median() const;

 private:
  std::size_t steps_;
  std::deque<double> losses_;
};

}  // namespace troupe
