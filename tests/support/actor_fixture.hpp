#pragma once
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "actors/rank_actors.hpp"
#include "src/plan/compiler.hpp"
#include "src/runtime/actor_system.hpp"
#include "src/runtime/directory.hpp"
#include "src/runtime/send.hpp"
#include "tests/support/fake_lane.hpp"
#include "tests/support/manual_clock.hpp"
#include "tests/support/recording_post_office.hpp"

namespace troupe {

/// Programs that only remember what they were asked to do.
struct ProgramLog {
  std::vector<std::string> calls;
  std::string failing;  ///< a call with this text throws
  void note(const std::string& call);
};

/// A rank whose actors run one letter at a time on CAF's test scheduler, on fake lanes and fake programs. The Supervisor is the test:
/// letters to it stay in `post`.
class ActorFixture : public testing::Test {
 protected:
  ActorFixture();
  ~ActorFixture() override;

  /// What spawn_rank needs, for a plan of this shape.
  [[nodiscard]] RankParts parts(const PlanShape& shape, const SlotCounts& slots = {}, bool snapshots = false);
  /// Two units, one micro-batch.
  [[nodiscard]] static PlanShape two_units();
  /// Only this actor of the rank: letters to the others stay in `post`. Its lanes are fakes.
  void spawn_alone(ActorKind kind, const RankParts& parts);
  void spawn_all(RankParts parts);

  /// Delivers letters until no actor has any left.
  void run();
  /// run(), then ends one operation of each busy lane in turn, as if all took equally long, until nothing is left to do.
  void run_to_the_end();
  [[nodiscard]] FakeLane& lane(LaneKind kind) { return *lanes_[static_cast<std::size_t>(kind)]; }
  void begin(ActorKind to, Step step, StepKind kind = StepKind::train);
  template <class T, class Fill>
  void deliver(ActorKind to, Step step, OperationIndex operation, Fill&& fill, Lease lease = {}, ActorKind from = ActorKind::supervisor) {
    troupe::send<T>(runtime, Heading{{rank, to}, {rank, from}, Where{epoch, step, {}, {}}, operation, Nanos{0}, 0}, std::forward<Fill>(fill), std::move(lease));
  }
  template <class T>
  void deliver(ActorKind to, Step step, OperationIndex operation = {}, Lease lease = {}) {
    deliver<T>(to, step, operation, [](auto) {}, std::move(lease));
  }
  /// A slot that the test owns; `home` counts the returns.
  [[nodiscard]] Lease lease_of_the_test();
  [[nodiscard]] OperationIndex find(const PlanSet& plans, OperationKind kind, std::uint32_t unit = 0, bool backward = false) const;

  const Rank rank{0};
  const EpochId epoch{3};
  ManualClock clock;
  std::unique_ptr<Log> log = make_null_log();
  ProgramLog programs;
  int home = 0;
  Directory directory;
  RecordingPostOffice post{directory};
  Runtime runtime{clock, *log, post, nullptr};

 private:
  void make_lanes(RankParts& parts);

  ActorSystem system_;
  std::array<std::shared_ptr<FakeLane>, lane_count> lanes_;
  std::unique_ptr<RankActors> actors_;
  std::array<std::byte, 64> memory_{};

 protected:
  [[nodiscard]] RankActors& actors() { return *actors_; }
};

}  // namespace troupe
