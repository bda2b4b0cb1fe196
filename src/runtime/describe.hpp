#pragma once
#include <string>

#include "src/runtime/plan.hpp"

namespace troupe {

/// "step 3, micro-batch 0, L2"; for messages.
[[nodiscard]] std::string describe(const Where& where);
/// What somebody who waits for this fact waits for: "weights of L3 (backward)", "batch m0", "gradients of L2".
[[nodiscard]] std::string describe_as_input(const Fact& fact);
/// "gather", "forward", … Static storage.
[[nodiscard]] const char* name_of(OperationKind kind) noexcept;
/// "dp_shard", "world", … Static storage.
[[nodiscard]] const char* name_of(CommunicatorKind kind) noexcept;

}  // namespace troupe
