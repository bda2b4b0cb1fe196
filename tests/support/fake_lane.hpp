#pragma once
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "src/device/lane.hpp"

namespace troupe {

/// A lane whose operations end when the test says so. One thread.
class FakeLane final : public Lane {
 public:
  void post(LaneOperation operation) override {
    ++posted_;
    names_.push_back(operation.name);
    queue_.push_back(std::move(operation));
  }
  void halt(std::string cause) override { halted_ = std::move(cause); }
  [[nodiscard]] LaneProgress progress() const override { return {posted_, posted_ - queue_.size(), queue_.empty() ? "" : queue_.front().name, Nanos{0}}; }
  [[nodiscard]] bool drain(Nanos) override { return queue_.empty(); }

  /// Does the oldest operation's work and ends it; a throw of the work is the outcome failed, as on a real lane.
  void finish_one() {
    Outcome outcome;
    if (!halted_.empty()) {
      outcome = {Outcome::Kind::halted, halted_};
    } else {
      try {
        if (queue_.front().work) queue_.front().work(stream_);
      } catch (const std::exception& problem) {
        outcome = {Outcome::Kind::failed, queue_.front().name + ": " + problem.what()};
      }
    }
    end_one(outcome);
  }
  void fail_one(const std::string& cause) { end_one({Outcome::Kind::failed, cause}); }
  [[nodiscard]] bool busy() const noexcept { return !queue_.empty(); }
  [[nodiscard]] const LaneOperation& oldest() const { return queue_.front(); }
  /// All that was ever posted, in order.
  [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }

 private:
  void end_one(const Outcome& outcome) {
    LaneOperation operation = std::move(queue_.front());
    queue_.pop_front();
    operation.work = nullptr;
    operation.done(outcome);
    operation.done = nullptr;
    operation.leases.clear();
  }

  Stream stream_;
  std::deque<LaneOperation> queue_;
  std::vector<std::string> names_;
  std::uint64_t posted_ = 0;
  std::string halted_;
};

}  // namespace troupe
