#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "src/base/clock.hpp"
#include "src/base/ids.hpp"
#include "src/base/result.hpp"

namespace troupe {

/// Where a fault can be put: a letter between processes, a collective, an operation of a lane, an access of storage, a process.
enum class FaultSite : std::uint8_t { letter, collective, lane, storage, process };
enum class FaultAction : std::uint8_t { none, drop, delay, duplicate, corrupt, reorder, fail, stall, crash, torn, full };
[[nodiscard]] std::string_view name_of(FaultSite site) noexcept;
[[nodiscard]] std::string_view name_of(FaultAction action) noexcept;

/// One line of a fault plan. Unset conditions match everything. A value.
struct FaultRule {
  FaultSite site{};
  FaultAction action = FaultAction::none;
  std::string kind;  ///< kind of letter, or the first word or words of an operation's name: "gather" matches "gather L3"
  std::optional<Rank> rank;
  std::optional<EpochId> epoch;
  std::optional<Step> step;
  std::optional<Micro> micro;
  std::optional<Unit> unit;
  double probability = 1.0;  ///< of firing at a match
  std::uint64_t times = 1;   ///< firings in all; 0: no limit
  Nanos duration{0};         ///< of a delay or stall; 0: a stall lasts until the process is stopped
  bool operator==(const FaultRule&) const = default;
};

/// Reads 'site=collective rank=1 step=7 action=stall for=2s'. Keys: site, action, kind (quotes allowed: kind="gather L3"), rank, epoch,
/// step, micro, unit, probability, times (a count or "always"), for (ns, us, ms, s, m). site and action are needed; what a site cannot do
/// is refused. The error names the word, its position, and what would be right.
[[nodiscard]] Result<FaultRule> parse_fault_rule(std::string_view text);
/// What parse_fault_rule reads back.
[[nodiscard]] std::string to_string(const FaultRule& rule);

}  // namespace troupe
