#pragma once
#include <functional>
#include <map>
#include <memory>
#include <shared_mutex>
#include <string>

#include "messages/letter.hpp"
#include "src/faults/fault_plan.hpp"

namespace troupe {

/// The fault rules of site `letter` of a process's ranks: asked for each letter that one of them sends to another process. Any thread.
class LetterFaults {
 public:
  /// Called before the fault strikes; `what`: "fault rule 1 (…) fired: letter StepReport to rank 3".
  using Told = std::function<void(const std::string& what)>;
  /// The letters that this rank sends.
  void use(Rank rank, std::shared_ptr<FaultPlan> plan, Told told);
  /// What is to become of the letter. Does not return where its sender is to crash.
  [[nodiscard]] Fault decide(const Parcel& parcel);

 private:
  struct OfRank {
    std::shared_ptr<FaultPlan> plan;
    Told told;
  };
  std::shared_mutex mutex_;
  std::map<Rank, OfRank> ranks_;
};

}  // namespace troupe
