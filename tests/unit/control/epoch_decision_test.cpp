#include "actors/epoch_decision.hpp"

#include <gtest/gtest.h>

#include "messages/frame.hpp"
#include "src/runtime/send.hpp"
#include "tests/support/manual_clock.hpp"

namespace troupe {
namespace {

struct SentLetters final : PostOffice {
  void post(std::shared_ptr<const Parcel> parcel) override { last = std::move(parcel); }
  std::shared_ptr<const Parcel> last;
};

EpochOptions of_world(std::uint32_t ranks) {
  EpochOptions options;
  options.world_size = ranks;
  options.config_hash = 7;
  options.init_timeout = std::chrono::seconds{10};
  options.job = "job";
  return options;
}
JoinedRank rank(std::uint32_t number, std::uint32_t world) {
  return {.rank = Rank{number}, .world_size = world, .config_hash = 7, .host = "here", .pid = 100 + number, .restored = Step{0}};
}

std::string refusal(const EpochDecision& decision, std::optional<Rank> at_fault) {
  const auto* refused = std::get_if<RefuseEpoch>(&decision);
  EXPECT_NE(refused, nullptr);
  if (refused == nullptr) return {};
  EXPECT_EQ(refused->rank, at_fault);
  return refused->problem;
}

TEST(DecideEpoch, WaitsUntilAllRanksHaveJoinedThenBeginsInRankOrder) {
  const std::vector<JoinedRank> some{rank(1, 2)}, all{rank(1, 2), rank(0, 2)};
  EXPECT_TRUE(std::holds_alternative<KeepWaiting>(decide_epoch(std::chrono::seconds{9}, some, of_world(2))));
  const auto decision = decide_epoch(std::chrono::seconds{9}, all, of_world(2));
  const auto& begin = std::get<BeginEpoch>(decision);
  EXPECT_EQ(begin.members, (std::vector<Rank>{Rank{0}, Rank{1}}));
  EXPECT_EQ(begin.epoch, EpochId{1});
  EXPECT_EQ(begin.first_step, Step{1});
}

TEST(DecideEpoch, BeginsAfterTheCheckpointThatAllRanksSee) {
  auto options = of_world(1);
  options.restore_step = Step{40};
  options.previous = EpochId{2};
  auto member = rank(0, 1);
  member.restored = Step{40};
  const auto decision = decide_epoch(Nanos{0}, std::vector{member}, options);
  const auto& begin = std::get<BeginEpoch>(decision);
  EXPECT_EQ(begin.first_step, Step{41});
  EXPECT_EQ(begin.communicator_tag, "job-e3");
  member.restored = Step{0};
  EXPECT_NE(refusal(decide_epoch(Nanos{0}, std::vector{member}, options), Rank{0}).find("sees none"), std::string::npos);
}

TEST(DecideEpoch, NamesTheRanksThatAreAbsentWhenTheTimeIsOver) {
  const auto problem = refusal(decide_epoch(std::chrono::seconds{10}, std::vector{rank(0, 4), rank(2, 4)}, of_world(4)), std::nullopt);
  EXPECT_NE(problem.find("absent: rank 1, 3"), std::string::npos) << problem;
  EXPECT_NE(problem.find("comm.init_timeout_seconds"), std::string::npos);
}

TEST(DecideEpoch, NamesARankThatJoinedTwiceWithBothProcesses) {
  auto again = rank(1, 3);
  again.pid = 555;
  const auto problem = refusal(decide_epoch(Nanos{0}, std::vector{rank(1, 3), again}, of_world(3)), Rank{1});
  EXPECT_NE(problem.find("rank 1 joined twice: first pid 101"), std::string::npos) << problem;
  EXPECT_NE(problem.find("pid 555"), std::string::npos) << problem;
}

TEST(DecideEpoch, NamesARankOfAnotherWorldOrConfiguration) {
  auto other = rank(2, 4);
  other.config_hash = 8;
  EXPECT_NE(refusal(decide_epoch(Nanos{0}, std::vector{other}, of_world(4)), Rank{2}).find("another configuration"), std::string::npos);
  EXPECT_NE(refusal(decide_epoch(Nanos{0}, std::vector{rank(1, 8)}, of_world(4)), Rank{1}).find("world of 8 ranks"), std::string::npos);
  EXPECT_NE(refusal(decide_epoch(Nanos{0}, std::vector{rank(4, 4)}, of_world(4)), Rank{4}).find("ranks count from 0 to 3"), std::string::npos);
}

TEST(ComparePlans, NamesTheRanksAndTheCommunicatorThatDiffer) {
  const PlanHashes a{{CommunicatorKind::dp_shard, 1}, {CommunicatorKind::world, 2}};
  PlanHashes b = a;
  EXPECT_EQ(compare_plans({{Rank{0}, a}, {Rank{1}, b}}), std::nullopt);
  b[CommunicatorKind::world] = 3;
  const auto problem = compare_plans({{Rank{0}, a}, {Rank{1}, a}, {Rank{2}, b}});
  ASSERT_TRUE(problem.has_value());
  EXPECT_NE(problem->find("rank 0 and rank 2"), std::string::npos) << *problem;
  EXPECT_NE(problem->find("communicator world"), std::string::npos) << *problem;
  b = a;
  b[CommunicatorKind::dp_replicate] = 1;
  EXPECT_TRUE(compare_plans({{Rank{0}, a}, {Rank{1}, b}}).has_value());
}

TEST(GrantsAllowed, StayWithinRunAheadOfTheSlowestAndTheLastStep) {
  EXPECT_EQ(grants_allowed(Step{0}, Step{0}, Step{9}, 2), Step{2});
  EXPECT_EQ(grants_allowed(Step{2}, Step{0}, Step{9}, 2), Step{2});
  EXPECT_EQ(grants_allowed(Step{2}, Step{1}, Step{9}, 2), Step{3});
  EXPECT_EQ(grants_allowed(Step{8}, Step{8}, Step{9}, 2), Step{9});
  EXPECT_EQ(grants_allowed(Step{9}, Step{9}, Step{9}, 2), Step{9});
}

TEST(EpochDecision, TheLargestWorldsEpochBeginFitsIntoAFrameAndALargerWorldIsRefusedAtOnce) {
  SentLetters sent;
  ManualClock clock;
  const auto log = make_null_log();
  Runtime runtime{clock, *log, sent};
  send<schema::EpochBegin>(runtime, Heading{{Rank{1}, ActorKind::supervisor}, coordinator_address, {}, {}, Nanos{0}, 0}, [](schema::EpochBegin::Builder body) {
    auto members = body.initMembers(largest_world);
    for (unsigned i = 0; i < members.size(); ++i) members.set(i, i);
    body.setCommunicatorTag(std::string(200, 't'));
  });
  ASSERT_TRUE(sent.last);
  EXPECT_LE(sent.last->bytes().size() + frame_header_bytes + frame_mac_bytes, max_frame_bytes);
  EXPECT_NE(refusal(decide_epoch(Nanos{0}, {}, of_world(largest_world + 1)), std::nullopt).find("a job of 1801 ranks: this version takes at most 1800"),
            std::string::npos);
  EXPECT_TRUE(std::holds_alternative<KeepWaiting>(decide_epoch(Nanos{0}, {}, of_world(largest_world))));
}

}  // namespace
}  // namespace troupe
