#include "src/transport/letter_faults.hpp"

#include <csignal>
#include <mutex>
#include <utility>

#include "messages/kinds.hpp"

namespace troupe {

void LetterFaults::use(Rank rank, std::shared_ptr<FaultPlan> plan, Told told) {
  const std::unique_lock lock(mutex_);
  ranks_[rank] = {std::move(plan), std::move(told)};
}

Fault LetterFaults::decide(const Parcel& parcel) {
  const std::shared_lock lock(mutex_);
  const auto envelope = parcel.envelope();
  const auto found = ranks_.find(Rank{envelope.getFrom().getRank()});
  if (found == ranks_.end()) return {};
  const auto& [plan, told] = found->second;
  const std::string name(name_of(envelope.getBody().which()));
  const Fault fault = plan->decide(FaultSite::letter, name, where_of(envelope));
  if (!fault) return {};
  const std::uint32_t to = envelope.getTo().getRank();
  told("fault rule " + std::to_string(fault.rule + 1) + " (" + to_string(plan->rules()[fault.rule]) + ") fired: letter " + name + " to " +
       (Rank{to} == launcher_rank ? std::string{"the launcher"} : "rank " + std::to_string(to)));
  if (fault.action == FaultAction::crash) static_cast<void>(std::raise(SIGKILL));
  return fault;
}

}  // namespace troupe
