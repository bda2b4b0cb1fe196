#include "actors/restore_book.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace troupe {

std::string describe(const EpochOrigin& point) {
  switch (point.place) {
    case EpochOrigin::Place::seed: return "the seed";
    case EpochOrigin::Place::disk: return fmt::format("the checkpoint of step {}", point.step.value());
    case EpochOrigin::Place::memory: return fmt::format("the snapshot of step {} in memory", point.step.value());
  }
  return {};
}

RestoreBook::RestoreBook(Step base, std::uint32_t keep_every)
    : base_{.place = base == Step{0} ? EpochOrigin::Place::seed : EpochOrigin::Place::disk, .step = base, .epoch = {}, .slot = 0}, keep_every_(keep_every) {}

EpochOrigin RestoreBook::newest() const {
  EpochOrigin best = base_;
  if (!disk_.empty() && *disk_.rbegin() >= best.step) best = {.place = EpochOrigin::Place::disk, .step = *disk_.rbegin(), .epoch = {}, .slot = 0};
  for (const auto& point : memory_)
    if (point && point->step >= best.step) best = *point;
  return best;
}

void RestoreBook::sealed_on_disk(Step step) { disk_.insert(step); }

std::optional<std::uint32_t> RestoreBook::open_keep(Step step, EpochId epoch, std::uint32_t ranks) {
  if (keep_every_ == 0) return std::nullopt;
  overdue_ = overdue_ || step.value() % keep_every_ == 0;
  if (!overdue_ || open_) return std::nullopt;
  overdue_ = false;
  const std::uint32_t slot = clear_older_slot();
  open_ = OpenKeep{.point = {.place = EpochOrigin::Place::memory, .step = step, .epoch = epoch, .slot = slot}, .ranks = ranks, .parts = {}};
  return slot;
}

std::uint32_t RestoreBook::clear_older_slot() {
  const bool first_is_newest = memory_[0] && (!memory_[1] || memory_[0]->step > memory_[1]->step);
  const std::uint32_t slot = first_is_newest ? 1 : 0;
  memory_[slot].reset();
  return slot;
}

std::uint32_t RestoreBook::open_hand_over() {
  open_.reset();
  return clear_older_slot();
}

void RestoreBook::handed_over(Step step, EpochId epoch, std::uint32_t slot) {
  memory_.at(slot) = EpochOrigin{.place = EpochOrigin::Place::memory, .step = step, .epoch = epoch, .slot = slot};
}

bool RestoreBook::kept(Step step, Rank rank, bool ok) {
  if (!open_ || open_->point.step != step) return false;
  open_->parts.insert(rank);
  open_->failed = open_->failed || !ok;
  return close_if_whole();
}

bool RestoreBook::reported(Step step) {
  if (!open_ || open_->point.step != step) return false;
  open_->reported = true;
  return close_if_whole();
}

bool RestoreBook::close_if_whole() {
  if (open_->parts.size() < open_->ranks || !open_->reported) return false;
  const OpenKeep whole = *open_;
  open_.reset();
  if (whole.failed) return false;
  memory_[whole.point.slot] = whole.point;
  return true;
}

void RestoreBook::epoch_begins(const EpochOrigin& point) {
  open_.reset();
  overdue_ = false;
  for (auto& kept : memory_)
    if (kept && kept->step > point.step) kept.reset();
  disk_.erase(disk_.upper_bound(point.step), disk_.end());
}

std::optional<Step> RestoreBook::oldest_kept() const {
  if (!memory_[0] || !memory_[1]) return std::nullopt;
  return std::min(memory_[0]->step, memory_[1]->step);
}

void RestoreBook::lost(const EpochOrigin& point) {
  if (point.place == EpochOrigin::Place::memory) {
    if (memory_[point.slot] == point) memory_[point.slot].reset();
  } else if (point.place == EpochOrigin::Place::disk) {
    disk_.erase(point.step);
  }
}

}  // namespace troupe
