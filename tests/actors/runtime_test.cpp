#include <gmock/gmock.h>

#include <array>

#include "src/runtime/held_leases.hpp"
#include "src/runtime/plan_cursor.hpp"
#include "src/runtime/slot_table.hpp"
#include "src/runtime/watchdog.hpp"
#include "tests/support/actor_fixture.hpp"

namespace troupe {
namespace {

using testing::HasSubstr;

class SlotTableTest : public ActorFixture {
 protected:
  SlotTable table(std::uint32_t slots, bool poison = false) {
    std::vector<std::span<std::byte>> memory;
    for (std::uint32_t i = 0; i < slots; ++i) memory.push_back(std::span(bytes_).subspan(i * 8, 8));
    return SlotTable(runtime, {EdgeKind::weights, owner, epoch, memory, poison});
  }
  /// What the owner's handler would do with the newest SlotHome.
  bool come_home(SlotTable& slots) {
    const auto letter = post.kept<schema::SlotHome>().back();
    return slots.home(SlotIndex{letter.body().getSlot()}, letter.body().getGeneration());
  }
  const ActorAddress owner{Rank{0}, ActorKind::sharding};
  std::array<std::byte, 64> bytes_{};
};

TEST_F(SlotTableTest, GivesOutEachSlotOnceAndPostsItHomeWhenTheLastCopyEnds) {
  SlotTable slots = table(1);
  Lease lease = slots.take(), copy = lease;
  EXPECT_FALSE(slots.take());
  lease.reset();
  EXPECT_EQ(post.count(LetterKind::SLOT_HOME), 0U);
  copy.reset();
  ASSERT_EQ(post.count(LetterKind::SLOT_HOME), 1U);
  EXPECT_FALSE(slots.any_free()) << "only the letter frees it";
  EXPECT_TRUE(come_home(slots));
  EXPECT_TRUE(slots.take());
}

TEST_F(SlotTableTest, IgnoresALetterOfAnEarlierTaking) {
  SlotTable slots = table(1);
  slots.take().reset();
  const auto old = post.kept<schema::SlotHome>().back();
  ASSERT_TRUE(come_home(slots));
  const Lease held = slots.take();
  EXPECT_FALSE(slots.home(SlotIndex{old.body().getSlot()}, old.body().getGeneration()));
  EXPECT_FALSE(slots.home(SlotIndex{17}, 1));
  EXPECT_EQ(slots.in_use(), 1U);
}

TEST_F(SlotTableTest, PoisonsWhatComesHome) {
  SlotTable slots = table(1, true);
  slots.take().reset();
  bytes_.fill(std::byte{1});
  come_home(slots);
  EXPECT_EQ(bytes_[0], std::byte{0xcd});
  EXPECT_EQ(bytes_[8], std::byte{1}) << "and nothing beyond it";
}

TEST_F(SlotTableTest, CarriesItsEpochHome) {
  SlotTable slots = table(1);
  slots.take().reset();
  EXPECT_EQ(post.kept<schema::SlotHome>().back().where().epoch, epoch);
}

TEST(HeldLeasesTest, LetsGoOfEverythingOnceClosed) {
  int ended = 0;
  const auto lease = [&] { return Lease(SlotIndex{0}, {}, [&] { ++ended; }); };
  HeldLeases held;
  held.keep(Step{1}, OperationIndex{2}, lease());
  EXPECT_TRUE(held.peek(Step{1}, OperationIndex{2}));
  EXPECT_FALSE(held.peek(Step{2}, OperationIndex{2}));
  EXPECT_EQ(ended, 0);
  held.close();
  EXPECT_EQ(ended, 1);
  held.keep(Step{1}, OperationIndex{3}, lease());
  EXPECT_EQ(ended, 2);
}

class PlanCursorTest : public testing::Test {
 protected:
  PlanCursor cursor(ActorKind actor) { return {plans, actor, Step{5}}; }
  static std::optional<std::string> next(PlanCursor& of) {
    const auto found = of.next_ready([](EdgeKind) { return true; });
    return found ? std::optional(found->operation->name()) : std::nullopt;
  }
  [[nodiscard]] OperationIndex at(OperationKind kind, std::uint32_t unit = 0, bool backward = false) const {
    return plans->train.find({kind, Unit{unit}, {}, backward}).value();
  }
  static PlanShape two_units() {
    PlanShape shape;
    shape.units.resize(2);
    return shape;
  }
  const std::shared_ptr<const PlanSet> plans = std::make_shared<PlanSet>(compile_plans(two_units(), SlotCounts{}).value());
};

TEST_F(PlanCursorTest, RemembersFactsThatComeBeforeTheirStepBegins) {
  PlanCursor compute = cursor(ActorKind::compute);
  compute.fact(Step{5}, at(OperationKind::load));
  compute.fact(Step{5}, at(OperationKind::gather));
  EXPECT_EQ(next(compute), std::nullopt);
  EXPECT_EQ(compute.waiting(), "step 5 to begin");
  compute.begin(Step{5}, StepKind::train);
  EXPECT_EQ(next(compute), "forward L0");
  EXPECT_EQ(next(compute), std::nullopt);
  EXPECT_EQ(compute.waiting(), "weights of L1, step 5");
}

TEST_F(PlanCursorTest, WaitsForTheStepBeforeButNotForTheEpochBefore) {
  PlanCursor sharding = cursor(ActorKind::sharding);
  sharding.begin(Step{5}, StepKind::train);
  EXPECT_EQ(next(sharding), "gather L0") << "the first step of an epoch has no step before";
  EXPECT_EQ(next(sharding), "gather L1");
  EXPECT_EQ(next(sharding), "gather L1 (backward)");
  EXPECT_EQ(next(sharding), "gather L0 (backward)") << "inputs of the same lane need not be done";
  for (const std::uint32_t unit : {1U, 0U}) sharding.fact(Step{5}, at(OperationKind::backward, unit));
  while (next(sharding)) {}
  EXPECT_EQ(sharding.waiting(), "step 6 to begin; the verdict, step 5");
  sharding.begin(Step{6}, StepKind::train);
  EXPECT_EQ(next(sharding), std::nullopt);
  EXPECT_THAT(sharding.waiting(), HasSubstr("the optimizer of L0 of the step before, step 6"));
  sharding.fact(Step{5}, at(OperationKind::verdict));
  EXPECT_EQ(next(sharding), "optimize L0");
  EXPECT_EQ(next(sharding), "optimize L1");
  EXPECT_EQ(next(sharding), std::nullopt) << "posted on another lane is not done";
  sharding.fact(Step{5}, at(OperationKind::optimize, 0));
  EXPECT_EQ(next(sharding), "gather L0") << "beside the optimizer of the other unit";
  EXPECT_EQ(next(sharding), std::nullopt);
  sharding.fact(Step{5}, at(OperationKind::optimize, 1));
  EXPECT_EQ(next(sharding), "gather L1");
}

TEST_F(PlanCursorTest, NamesTheSlotThatIsMissing) {
  PlanCursor loader = cursor(ActorKind::data_loader);
  loader.begin(Step{5}, StepKind::train);
  EXPECT_FALSE(loader.next_ready([](EdgeKind) { return false; }));
  EXPECT_EQ(loader.waiting(), "a free slot of batches for load m0, step 5");
}

TEST_F(PlanCursorTest, ForgetsStepsThatAreOverAndIgnoresTheirLateFacts) {
  PlanCursor loader = cursor(ActorKind::data_loader);
  for (std::uint64_t step = 5; step < 5000 + 5; ++step) {  // more than it may be ahead: it can only have forgotten
    loader.begin(Step{step}, StepKind::train);
    ASSERT_EQ(next(loader), "load m0");
    loader.fact(Step{step}, at(OperationKind::load));
    ASSERT_TRUE(loader.finished(Step{step}));
  }
  loader.fact(Step{5}, at(OperationKind::load));
  EXPECT_TRUE(loader.idle());
  EXPECT_EQ(loader.plan_of(Step{5}), nullptr);
}

TEST_F(PlanCursorTest, RefusesAnOperationThatNoPlanHas) {
  PlanCursor loader = cursor(ActorKind::data_loader);
  EXPECT_THROW(loader.fact(Step{5}, OperationIndex{999}), std::out_of_range);
  EXPECT_THROW(loader.fact(Step{99999}, OperationIndex{0}), std::out_of_range);
}

class DirectoryTest : public ActorFixture {};

struct KeepingSender final : RemoteSender {
  void send(std::shared_ptr<const Parcel> parcel) override { parcels.push_back(std::move(parcel)); }
  std::vector<std::shared_ptr<const Parcel>> parcels;
};

TEST_F(DirectoryTest, SendsAwayWhatIsForOtherRanksAndNothingThatIsForItsOwn) {
  KeepingSender remote;
  directory.set_remote(&remote);
  spawn_alone(ActorKind::compute, parts(two_units()));
  const auto tick_for = [](Rank to, ActorKind actor) { return write<schema::Tick>(Heading{{to, actor}, {}, {}, {}, Nanos{0}, 0}, [](auto) {}); };
  directory.post(tick_for(Rank{7}, ActorKind::compute));
  EXPECT_EQ(remote.parcels.size(), 1U);
  directory.post(tick_for(rank, ActorKind::sharding));  // it was here, and is gone
  EXPECT_EQ(remote.parcels.size(), 1U);
  EXPECT_EQ(directory.undeliverable(), 1U);
  directory.clear();
  directory.post(tick_for(Rank{7}, ActorKind::compute));
  EXPECT_EQ(directory.undeliverable(), 2U);
}

TEST(WatchdogTest, NamesTheOldestOperationAndWhoWaitsForWhat) {
  const std::array lanes{LaneState{LaneKind::compute, {5, 4, "forward L3", Nanos{900}}}, LaneState{LaneKind::comm, {7, 5, "gather L2", Nanos{100}}},
                         LaneState{LaneKind::disk, {1, 1, "", Nanos{0}}}};
  const std::array actors{WaitingActor{ActorKind::compute, "weights of L2, step 3"}, WaitingActor{ActorKind::checkpoint, ""}};
  const OldestPending oldest = oldest_pending(lanes, actors, Nanos{1100});
  EXPECT_EQ(oldest.text, "comm: gather L2; compute waits for weights of L2, step 3");
  EXPECT_EQ(oldest.age, Nanos{1000});
  EXPECT_EQ(oldest_pending({}, {}, Nanos{5}).text, "");
}

}  // namespace
}  // namespace troupe
