#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "messages/actor_kind.hpp"
#include "messages/edge_kind.hpp"
#include "src/base/ids.hpp"
#include "src/base/result.hpp"
#include "src/device/lane.hpp"
#include "src/device/tensor_view.hpp"

namespace troupe {

enum class OperationKind : std::uint8_t {
  load,
  scales,
  gather,
  forward,
  backward,
  accumulate,
  reduce,
  all_reduce,
  verdict,
  optimize,
  snapshot,
  save,
  keep,
  evaluate
};
enum class StepKind : std::uint8_t { train, train_and_snapshot, train_and_evaluate, train_snapshot_and_evaluate };
inline constexpr std::size_t step_kind_count = 4;
[[nodiscard]] constexpr bool snapshots(StepKind kind) noexcept { return kind == StepKind::train_and_snapshot || kind == StepKind::train_snapshot_and_evaluate; }
[[nodiscard]] constexpr bool evaluates(StepKind kind) noexcept { return kind == StepKind::train_and_evaluate || kind == StepKind::train_snapshot_and_evaluate; }
[[nodiscard]] constexpr StepKind step_kind(bool snapshots, bool evaluates) noexcept { return static_cast<StepKind>((snapshots ? 1 : 0) + (evaluates ? 2 : 0)); }
enum class CommunicatorKind : std::uint16_t { none = 0, dp_shard = 1, dp_replicate = 2, world = 3 };

/// What an operation makes true; how operations of one step, or of two neighbouring steps, refer to each other.
struct Fact {
  OperationKind kind{};
  Unit unit;
  Micro micro;
  bool backward = false;  ///< gather: for the backward pass
  auto operator<=>(const Fact&) const = default;
};

struct PlannedOperation {
  Fact fact;
  ActorKind actor{};  ///< who posts it
  LaneKind lane{};
  std::vector<OperationIndex> after;       ///< of this step: their results are inputs
  std::vector<Fact> after_previous;        ///< of the step before, where its plan has them
  std::optional<EdgeKind> takes;           ///< needs a free slot of this edge for its output
  std::vector<OperationIndex> reads;       ///< operations whose slot it reads
  std::vector<OperationIndex> last_reads;  ///< of those: it is the last reader, the slot goes home when it is done
  CommunicatorKind communicator = CommunicatorKind::none;
  std::uint64_t bytes = 0;  ///< that the collective moves, all ranks' parts together
  DType dtype = DType::u8;
  Nanos cost{0};                           ///< estimated
  [[nodiscard]] std::string name() const;  ///< "gather L3", "backward L0 m1"
};

/// Slots of each edge; DESIGN §4.
struct SlotCounts {
  std::uint32_t batches = 2, weights = 2, gradients = 2, snapshots = 1;
  [[nodiscard]] std::uint32_t of(EdgeKind edge) const noexcept;
};

/// A step as pure data: every operation of one rank's device in its total order. A value.
struct Plan {
  StepKind kind = StepKind::train;
  std::vector<PlannedOperation> operations;
  [[nodiscard]] std::optional<OperationIndex> find(const Fact& fact) const;
  [[nodiscard]] const PlannedOperation& operator[](OperationIndex i) const { return operations[i.value()]; }
  /// Over (operation, bytes, type) of the operations that use the communicator, in order: equal on all members, or they do not start.
  [[nodiscard]] std::uint64_t hash(CommunicatorKind communicator) const;
};

/// Runs two steps of all ranks together with zero durations and these slots: rendezvous at every collective, total order per device.
/// `replicas`: of the sharded model; neighbouring ranks are one replica's, and only they meet on dp_shard (on dp_replicate those who hold
/// the same shard). The error names the edge, its slots, and the operation that would wait for ever on each rank.
[[nodiscard]] Result<void> check_plans(const std::vector<Plan>& ranks, const SlotCounts& slots, std::uint32_t replicas = 1);
/// The same for each rank's own sequence of steps, of whatever kinds: what one kind leaves to the next shows.
[[nodiscard]] Result<void> check_plans(const std::vector<std::vector<Plan>>& sequences, const SlotCounts& slots, std::uint32_t replicas = 1);

}  // namespace troupe
