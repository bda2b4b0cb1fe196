#pragma once
#include <cstddef>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include "actors/step_join.hpp"

namespace troupe {

/// How long each rank took for each of the last steps, for the dashboard's heat map. Any thread.
class StepTimes {
 public:
  struct Entry {
    Step step;
    std::vector<std::pair<Rank, Nanos>> ranks;
  };
  static constexpr std::size_t kept = 240;

  void add(const StepRecord& record) {
    Entry entry{record.step, {}};
    for (const auto& [rank, report] : record.each) entry.ranks.emplace_back(rank, report.duration);
    const std::lock_guard lock(mutex_);
    entries_.push_back(std::move(entry));
    if (entries_.size() > kept) entries_.pop_front();
  }
  [[nodiscard]] std::vector<Entry> get() const {
    const std::lock_guard lock(mutex_);
    return {entries_.begin(), entries_.end()};
  }

 private:
  mutable std::mutex mutex_;
  std::deque<Entry> entries_;
};

}  // namespace troupe
