#pragma once
#include <cstdint>

#include "src/base/ids.hpp"

namespace troupe {

/// The seven actors. Values travel in letters: never renumber.
enum class ActorKind : std::uint16_t { none = 0, coordinator = 1, supervisor = 2, data_loader = 3, compute = 4, sharding = 5, checkpoint = 6, metrics = 7 };
[[nodiscard]] const char* name_of(ActorKind kind) noexcept;

/// The launcher's process, which hosts the Coordinator.
inline constexpr Rank launcher_rank{0xffffffffU};

/// Who a letter is for.
struct ActorAddress {
  Rank rank;
  ActorKind actor = ActorKind::none;
  auto operator<=>(const ActorAddress&) const = default;
};
inline constexpr ActorAddress coordinator_address{launcher_rank, ActorKind::coordinator};

}  // namespace troupe
