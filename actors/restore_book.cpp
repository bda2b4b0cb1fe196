#include "actors/restore_book.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace troupe {

std::string describe(const EpochOrigin& point) {
  switch (point.place) {
    case EpochOrigin::Place::seed: return "the seed";
    case EpochOrigin::Place::disk: return fmt::format("the checkpoint of step {}", point.step.value());
    case EpochOrigin::Place::memory: return fmt::format("the snapshot of step {} in memory", point.step.value());
  }
  return {};
}

RestoreBook::RestoreBook(Step base, SnapshotPolicy policy, bool copies)
    : base_{.place = base == Step{0} ? EpochOrigin::Place::seed : EpochOrigin::Place::disk, .step = base, .epoch = {}, .slot = 0},
      policy_(policy),
      copies_(copies),
      memory_(policy.slots()) {}

EpochOrigin RestoreBook::newest() const {
  EpochOrigin best = base_;
  for (const EpochOrigin& point : all())
    if (goes_on_after(point) >= goes_on_after(best)) best = point;
  return best;
}

std::vector<EpochOrigin> RestoreBook::all() const {
  std::vector<EpochOrigin> points;
  points.reserve(disk_.size() + memory_.size());
  for (const Step step : disk_) points.push_back({.place = EpochOrigin::Place::disk, .step = step, .epoch = {}, .slot = 0});
  for (const auto& point : memory_)
    if (point) points.push_back(*point);
  return points;
}

EpochOrigin RestoreBook::way_back(Step done, std::uint32_t steps_back) const {
  const Step latest{done.value() - std::min<std::uint64_t>(done.value(), steps_back)};
  std::optional<EpochOrigin> best, oldest;
  for (const EpochOrigin& point : all()) {
    if (point.step <= latest && (!best || goes_on_after(point) >= goes_on_after(*best))) best = point;
    if (point.place == EpochOrigin::Place::memory && (!oldest || point.step < oldest->step)) oldest = point;
  }
  if (best) return *best;
  const bool young = done.value() < base_.step.value() + steps_back + policy_.keep_every;
  return young || !oldest ? base_ : *oldest;
}

void RestoreBook::go_back_to(const EpochOrigin& point, Step done) {
  way_back_ = {point, done};
  epoch_begins(point);
}

Step RestoreBook::goes_on_after(const EpochOrigin& point) const { return way_back_ && way_back_->point == point ? way_back_->done : point.step; }

Step RestoreBook::may_grant_until(Step granted) const {
  if (policy_.keep_every == 0 || policy_.rollback_steps == 0) return Step{std::numeric_limits<Step::Value>::max()};
  const std::uint64_t next = granted.value() / policy_.keep_every + 1;  // of the multiples
  return Step{(open_ ? next : next + 1) * policy_.keep_every - 1};
}

bool RestoreBook::sealed_on_disk(Step step) {
  if (way_back_ && step <= way_back_->done) return false;
  disk_.insert(step);
  return true;
}

std::optional<std::uint32_t> RestoreBook::open_keep(Step step, EpochId epoch, std::uint32_t ranks) {
  if (policy_.keep_every == 0) return std::nullopt;
  overdue_ = overdue_ || step.value() % policy_.keep_every == 0;
  if (!overdue_ || open_) return std::nullopt;
  overdue_ = false;
  const std::uint32_t slot = clear_slot();
  open_ = OpenKeep{.point = {.place = EpochOrigin::Place::memory, .step = step, .epoch = epoch, .slot = slot}, .ranks = ranks, .parts = {}};
  return slot;
}

std::uint32_t RestoreBook::clear_slot() {
  const auto oldest = std::ranges::min_element(memory_, {}, [this](const auto& point) { return point ? goes_on_after(*point).value() + 1 : 0; });
  oldest->reset();
  return static_cast<std::uint32_t>(oldest - memory_.begin());
}

std::uint32_t RestoreBook::open_hand_over() {
  open_.reset();
  return clear_slot();
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

bool RestoreBook::copied(Step step, EpochId epoch, Rank rank, bool ok) {
  if (!open_ || open_->point.step != step || open_->point.epoch != epoch) return false;
  open_->copies.insert(rank);
  open_->failed = open_->failed || !ok;
  return close_if_whole();
}

bool RestoreBook::reported(Step step) {
  if (!open_ || open_->point.step != step) return false;
  open_->reported = true;
  return close_if_whole();
}

bool RestoreBook::close_if_whole() {
  if (open_->parts.size() < open_->ranks || !open_->reported || (copies_ && open_->copies.size() < open_->ranks)) return false;
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

template <class Of>
std::optional<Of> RestoreBook::least(Of EpochOrigin::*of) const {
  std::optional<Of> least;
  std::size_t count = 0;
  for (const auto& point : memory_) {
    if (!point) continue;
    ++count;
    least = std::min(least.value_or((*point).*of), (*point).*of);
  }
  return count < 2 ? std::nullopt : least;
}

std::optional<Step> RestoreBook::oldest_kept() const { return least(&EpochOrigin::step); }

std::optional<EpochId> RestoreBook::oldest_epoch_kept() const { return least(&EpochOrigin::epoch); }

bool RestoreBook::lost(const EpochOrigin& point) {
  if (point.place == EpochOrigin::Place::memory) {
    if (memory_[point.slot] == point) memory_[point.slot].reset();
    return true;
  }
  return disk_.erase(point.step) > 0 || point != base_;
}

}  // namespace troupe
