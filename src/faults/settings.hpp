#pragma once
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "src/base/schema.hpp"
#include "src/faults/fault_rule.hpp"

namespace troupe {

/// [faults]
struct FaultSettings {
  std::vector<std::string> rules;
};

inline void describe(Schema& schema, FaultSettings& s) {
  schema.section("faults",
                 "Faults put into this run on purpose, to see what it makes of them. Each firing is a line in the rank's log and a mark in the trace.");
  schema
      .key("rules", &s.rules, KeyClass::epoch,
           "what to do, and where: \"site=lane kind=gather unit=3 step=20 action=delay for=5ms\"; site lane or collective with delay, stall, fail or "
           "crash; process with crash; letter with drop, delay, duplicate, corrupt, reorder or crash; storage with delay, stall, fail, full, torn, corrupt or "
           "crash; conditions kind, rank, epoch, step, micro, unit, probability; times=always for more than once")
      .or_single();
}

/// All rules, or which one cannot be obeyed in a real run and why. A site is refused where nothing would ask for it.
[[nodiscard]] Result<std::vector<FaultRule>> rules_of(const FaultSettings& settings);

}  // namespace troupe
