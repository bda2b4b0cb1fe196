#pragma once
#include <functional>
#include <memory>
#include <string>

#include "src/checkpoint/storage.hpp"
#include "src/faults/fault_plan.hpp"

namespace troupe {

/// Storage whose accesses suffer what the rules of site `storage` say. Asked for each by a name such as "write rank-0.shard", at the step
/// that the folder step-N names: write, sync, create, open, read, rename, remove, list.
///   fail     the access fails: Input/output error
///   full     it fails: No space left on device
///   delay    it takes longer; so does stall, which needs its length here
///   torn     a write stops half way and says that all is well; another access fails
///   corrupt  one bit of what is written or read is another, and nobody says so; another access fails
///   crash    SIGKILL to the process; a write is half done
/// `told` hears of each before it strikes. Gives `below` itself back where the plan is null.
[[nodiscard]] std::unique_ptr<Storage> make_faulty_storage(std::unique_ptr<Storage> below, std::shared_ptr<FaultPlan> plan,
                                                           std::function<void(const std::string& what)> told);

}  // namespace troupe
