#include "actors/step_history.hpp"

#include <fmt/format.h>

#include <stdexcept>

namespace troupe {

StepHistory::Told StepHistory::add(const StepRecord& record) {
  const auto [first, fresh] = first_.emplace(record.step, record);
  if (record.step > newest_) {
    newest_ = record.step;
    return {.fresh = true, .difference = {}};
  }
  if (fresh) return {};                                      // forgotten: older than anything that can be compared
  const bool alike = first->second.layout == record.layout;  // else sums are taken in another order
  if (alike) {
    if (auto what = difference(first->second.common, record.common)) return {.fresh = false, .difference = *what};
    if (!same_sources(first->second.common, record.common)) return {.fresh = false, .difference = "the losses of the blend's sources"};
  }
  if (first->second.common.tokens != record.common.tokens)
    return {.fresh = false, .difference = fmt::format("tokens {} and {}", first->second.common.tokens, record.common.tokens)};
  const std::uint64_t before = first->second.common.digest, now = record.common.digest;
  if (before != now) return {.fresh = false, .difference = fmt::format("data of digest {:016x} and {:016x}", before, now)};
  return {};
}

std::uint64_t StepHistory::tokens_at(Step step) const {
  if (step == base_) return base_tokens_;
  if (const auto pinned = pinned_.find(step); pinned != pinned_.end()) return pinned->second;
  const auto found = first_.find(step);
  if (found == first_.end()) throw std::logic_error(fmt::format("nothing is known of step {}, from which an epoch is to begin", step.value()));
  return found->second.total_tokens;
}

void StepHistory::pin(Step step) {
  if (const auto found = first_.find(step); found != first_.end()) pinned_[step] = found->second.total_tokens;
}

void StepHistory::forget_before(Step step) { first_.erase(first_.begin(), first_.lower_bound(step)); }

}  // namespace troupe
