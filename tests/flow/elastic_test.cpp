#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "tests/flow/whole_runs.hpp"

/// Epochs with other ranks or another configuration, under the virtual clock.
namespace troupe {
namespace {

const std::uint64_t seeds = seeds_or(20);

FlowKnobs knobs_of(std::uint64_t seed) {
  FlowKnobs knobs = draw_run(seed, static_cast<std::uint32_t>(2 + seed % 5), 5 + seed % 5);
  knobs.step_in_backward = knobs.step_in_backward && knobs.reduce_last;  // fewer ranks take more micro-batches
  return knobs;
}

std::unique_ptr<VirtualCluster> cluster_of(const FlowKnobs& knobs, bool shrink = false) {
  auto cluster = std::make_unique<VirtualCluster>(knobs);
  cluster->shrink = shrink;
  if (knobs.seed % 2 == 1) cluster->spread_time = Nanos{static_cast<Nanos::rep>(knobs.seed * 7919 % 40'000'000)};
  return cluster;
}

std::vector<StepRecord> undisturbed(const FlowKnobs& knobs) { return cluster_of(knobs)->run().steps; }

ChangeRequest request(const std::string& change, std::uint32_t join = 0, std::uint32_t leave = 0) {
  ChangeRequest wanted;
  if (!change.empty()) wanted.set = {change};
  wanted.join = join;
  wanted.leave = leave;
  wanted.by = "somebody";
  return wanted;
}

TEST(Elastic, ThoseThatAreLeftGoOnWithEveryRowOnceInTheGlobalOrder) {
  std::uint64_t shrunk = 0, spread = 0;
  for (std::uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    const FlowKnobs knobs = knobs_of(seed);
    const auto whole = undisturbed(knobs);
    const auto once = [&] {
      auto cluster = cluster_of(knobs, true);
      cluster->on_step = [&knobs, of = cluster.get(), at = 1 + seed * 7919 % (knobs.steps - 1), struck = false](const StepRecord& record) mutable {
        if (record.step.value() != at || std::exchange(struck, true)) return;
        kill_at(*of, of->world().clock().now() + Nanos{static_cast<Nanos::rep>(at * 104729 % 9'000'000)}, static_cast<std::uint32_t>(at * 31 % knobs.ranks));
      };
      return cluster;
    };
    const auto cluster = once();
    const auto result = cluster->run();
    expect_same_run(knobs, *cluster, result, whole);
    if (result.let_go.empty()) continue;  // it had done its work
    ++shrunk;
    spread += result.spreads;
    EXPECT_EQ(result.epochs.back().members.size(), knobs.ranks - 1) << describe(knobs);
    EXPECT_EQ(result.respawns, 0U);
    EXPECT_EQ(once()->run().flow.timed_hash, result.flow.timed_hash) << "repeatable trace, " << describe(knobs);
  }
  EXPECT_GE(shrunk, seeds / 2);
  EXPECT_GE(spread, seeds / 8);
}

TEST(Elastic, ASecondRankMayDieWhileTheRestComesTogether) {
  std::uint64_t twice = 0;
  for (std::uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    FlowKnobs knobs = knobs_of(seed);
    knobs.ranks = std::max(knobs.ranks, 3U);
    knobs.replicas = 1;
    const auto whole = undisturbed(knobs);
    auto cluster = cluster_of(knobs, true);
    cluster->on_step = [of = cluster.get(), struck = false](const StepRecord&) mutable {
      if (!std::exchange(struck, true)) kill_at(*of, of->world().clock().now(), 0);
    };
    cluster->on_recovering = [&](VirtualCluster& of, EpochId ended) {
      if (ended == EpochId{1}) kill_at(of, of.world().clock().now() + Nanos{static_cast<Nanos::rep>(seed * 7919 % 300'000'000)}, 1);
    };
    const auto result = cluster->run();
    expect_same_run(knobs, *cluster, result, whole);
    twice += result.let_go.size() == 2 ? 1 : 0;
  }
  EXPECT_GE(twice, seeds / 2);
}

TEST(Elastic, FewerThanTheFewestStopsTheRunByName) {
  FlowKnobs knobs = knobs_of(3);
  auto cluster = cluster_of(knobs, true);
  cluster->min_ranks = knobs.ranks;
  cluster->on_step = [of = cluster.get(), struck = false](const StepRecord&) mutable {
    if (!std::exchange(struck, true)) kill_at(*of, of->world().clock().now(), 0);
  };
  const auto result = cluster->run();
  ASSERT_TRUE(result.end);
  EXPECT_FALSE(result.end->ok);
  EXPECT_NE(result.end->cause.find("elastic.min_ranks = " + std::to_string(knobs.ranks)), std::string::npos) << result.end->cause;
}

TEST(Elastic, APlannedChangeBeginsWithItsStepAndLosesNone) {
  for (std::uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    const FlowKnobs knobs = knobs_of(seed);
    const auto whole = undisturbed(knobs);
    auto cluster = cluster_of(knobs);
    const Step from{2 + seed % (knobs.steps - 1)};
    cluster->planned[from] = {"slots.weights=" + std::to_string(1 + seed % 3), "replicas=" + std::to_string(1 + seed % 2)};
    const auto result = cluster->run();
    expect_same_run(knobs, *cluster, result, whole);
    ASSERT_EQ(result.epochs.size(), 2U) << describe(knobs);
    EXPECT_EQ(result.epochs[1].first_step, from);
    EXPECT_EQ(result.epochs[1].restore_step, Step{from.value() - 1}) << "from the state of the step before, none runs again";
    EXPECT_EQ(result.epochs[1].changes, cluster->planned[from]);
    EXPECT_EQ(result.recoveries, 0U);
  }
}

TEST(Elastic, AChangeThatARankCannotBuildIsRefusedForAllAndNoStepIsLost) {
  for (std::uint64_t seed = 1; seed <= 20 && !::testing::Test::HasFailure(); ++seed) {
    const FlowKnobs knobs = knobs_of(seed);
    const auto whole = undisturbed(knobs);
    auto cluster = cluster_of(knobs);
    cluster->cannot_build = [last = knobs.ranks - 1](std::uint32_t rank, const std::vector<std::string>& changes) -> std::string {
      return rank == last && !changes.empty() ? "out of memory" : "";
    };
    cluster->on_step = [of = cluster.get()](const StepRecord& record) {
      if (record.step == Step{2}) of->ask(request("slots.weights=2"));
    };
    const auto result = cluster->run();
    expect_same_run(knobs, *cluster, result, whole);
    ASSERT_EQ(cluster->answers.size(), 1U);
    ASSERT_TRUE(cluster->answers[0]) << cluster->answers[0].error().message;
    ASSERT_EQ(result.settled.size(), 1U) << describe(knobs);
    EXPECT_NE(result.settled[0].find("out of memory"), std::string::npos) << result.settled[0];
    EXPECT_TRUE(result.epochs.back().changes.empty());
    EXPECT_EQ(result.epochs.back().first_step, result.epochs[1].first_step) << "from where the epoch before had come to";
  }
}

TEST(Elastic, RanksJoinAndLeaveBetweenTwoSteps) {
  std::uint64_t both = 0;
  for (std::uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    FlowKnobs knobs = knobs_of(seed);
    knobs.steps = 400;
    knobs.overflow_step = 0;
    auto cluster = cluster_of(knobs);
    cluster->start_time = std::chrono::milliseconds{20};
    const auto more = static_cast<std::uint32_t>(1 + seed % 2);
    cluster->on_step = [&, of = cluster.get(), joined = false, left = false](const StepRecord& record) mutable {
      if (record.step >= Step{2} && !std::exchange(joined, true)) of->ask(request("", more));
      if (record.ranks > knobs.ranks && !std::exchange(left, true)) of->ask(request("", 0, 1));
      if (left && record.ranks == knobs.ranks + more - 1) of->tell<schema::StopRequested>(coordinator_address, [](auto body) { body.setReason("enough"); });
    };
    const auto result = cluster->run();
    knobs.steps = result.steps.size();
    expect_same_run(knobs, *cluster, result, undisturbed(knobs));
    for (const auto& answer : cluster->answers) EXPECT_TRUE(answer) << answer.error().message;
    both += result.settled.size() == 2 ? 1 : 0;
    EXPECT_EQ(result.recoveries, 0U);
  }
  EXPECT_EQ(both, seeds);
}

TEST(Elastic, AHostThatIsThereAgainBringsBackNobodyWhoCameOtherwiseOrWasAskedToLeave) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    FlowKnobs knobs = knobs_of(seed);
    knobs.steps = 400;
    knobs.overflow_step = 0;
    auto cluster = cluster_of(knobs);
    cluster->start_time = std::chrono::milliseconds{20};
    ChangeRequest again = request("", 1);
    again.which = {Rank{knobs.ranks}};
    cluster->on_step = [&, of = cluster.get(), joined = false, left = false, over = Step{0}](const StepRecord& record) mutable {
      if (record.step >= Step{2} && !std::exchange(joined, true)) {
        of->ask(request("", 1));
        of->ask(again);
      }
      if (record.ranks > knobs.ranks && !std::exchange(left, true)) {
        of->ask(again);
        of->ask(request("", 0, 1));
      }
      if (left && record.ranks == knobs.ranks && over == Step{0}) {
        of->ask(again);
        over = Step{record.step.value() + 20};
      }
      if (over != Step{0} && record.step == over) of->tell<schema::StopRequested>(coordinator_address, [](auto body) { body.setReason("enough"); });
    };
    const auto result = cluster->run();
    const auto& answers = cluster->answers;
    ASSERT_EQ(answers.size(), 5U) << describe(knobs);
    EXPECT_NE(answers[1].error().message.find("on the way already"), std::string::npos) << "it is asked again";
    for (const std::size_t settled : {2U, 4U}) {
      ASSERT_TRUE(answers[settled]) << answers[settled].error().message;
      EXPECT_EQ(answers[settled]->change, 0U) << "nothing is to be done: " << answers[settled]->text;
    }
    EXPECT_EQ(result.epochs.back().members.size(), knobs.ranks) << describe(knobs);
    EXPECT_EQ(result.let_go, std::vector{Rank{knobs.ranks}});
  }
}

TEST(Elastic, WhoIsLetGoAndWhoJoinsAtTheSameTimeAreNotTheSame) {
  for (std::uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    FlowKnobs knobs = knobs_of(seed);
    if (knobs.ranks < 2) continue;
    knobs.steps = 120;
    knobs.overflow_step = 0;
    auto cluster = cluster_of(knobs);
    cluster->start_time = std::chrono::milliseconds{20};
    cluster->on_step = [&, of = cluster.get(), asked = false](const StepRecord& record) mutable {
      if (record.step < Step{2} || std::exchange(asked, true)) return;
      of->ask(seed % 2 == 0 ? request("", 0, 1) : request("", 1));
      of->ask(seed % 2 == 0 ? request("", 1) : request("", 0, 1));
    };
    const auto result = cluster->run();
    expect_same_run(knobs, *cluster, result, undisturbed(knobs));
    for (const auto& answer : cluster->answers) EXPECT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(result.let_go, std::vector{Rank{knobs.ranks - 1}}) << describe(knobs);
    EXPECT_EQ(result.recoveries, 0U);
    if (result.settled.size() == 2) {
      EXPECT_EQ(result.epochs.back().members.back(), Rank{knobs.ranks}) << describe(knobs);
    }
  }
}

TEST(Elastic, AfterALossARankJoinsAgainAndTheRunIsWhole) {
  std::uint32_t forgotten = 0;
  for (std::uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    FlowKnobs knobs = knobs_of(seed);
    knobs.steps = 400;
    knobs.overflow_step = 0;
    auto cluster = cluster_of(knobs, true);
    cluster->start_time = std::chrono::milliseconds{20};
    const std::uint32_t victim = static_cast<std::uint32_t>(seed % knobs.ranks);
    cluster->on_step = [&, of = cluster.get(), struck = false, joined = false](const StepRecord& record) mutable {
      if (record.step == Step{2} && !std::exchange(struck, true)) return kill_at(*of, of->world().clock().now(), victim);
      if (struck && record.ranks < knobs.ranks && !std::exchange(joined, true)) of->ask(request("", 1));
      if (joined && record.ranks == knobs.ranks) of->tell<schema::StopRequested>(coordinator_address, [](auto body) { body.setReason("enough"); });
    };
    const auto result = cluster->run();
    ASSERT_LT(result.steps.size(), 400U) << describe(knobs) << ": it never came back";
    knobs.steps = result.steps.size();
    expect_same_run(knobs, *cluster, result, undisturbed(knobs));
    EXPECT_EQ(result.epochs.back().members, result.epochs.front().members);
    EXPECT_EQ(result.let_go, std::vector{Rank{victim}});
    forgotten += result.forgotten;
  }
  EXPECT_GT(forgotten, 0U) << "what is kept in epochs before is given back";
}

TEST(Elastic, ADeathWhileTheStateIsHandedOverOrTheChangedEpochBeginsIsOneFault) {
  std::uint64_t struck = 0;
  for (std::uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    const FlowKnobs knobs = knobs_of(seed);
    const auto whole = undisturbed(knobs);
    const bool shrink = seed % 2 == 0;
    auto cluster = cluster_of(knobs, shrink);
    cluster->respawn = !shrink;
    cluster->planned[Step{3}] = {"slots.weights=2"};
    cluster->on_epoch_end = [&](VirtualCluster& of, EpochId ended) {
      if (ended == EpochId{1})
        kill_at(of, of.world().clock().now() + Nanos{static_cast<Nanos::rep>(seed * 7919 % 70'000'000)}, static_cast<std::uint32_t>(seed % knobs.ranks));
    };
    const auto result = cluster->run();
    expect_same_run(knobs, *cluster, result, whole);
    EXPECT_EQ(result.epochs.back().changes, cluster->planned[Step{3}]) << describe(knobs);
    struck += result.recoveries;
  }
  EXPECT_GE(struck, seeds / 2);
}

TEST(Elastic, AStateThatCannotBeHandedOverCostsStepsButChangesNothing) {
  FlowKnobs knobs = knobs_of(4);
  knobs.keep_every = 0;
  const auto whole = undisturbed(knobs);
  auto cluster = cluster_of(knobs);
  cluster->planned[Step{3}] = {"slots.weights=2"};
  cluster->cannot_hand_over = [](std::uint32_t rank) { return rank == 1; };
  const auto result = cluster->run();
  expect_same_run(knobs, *cluster, result, whole);
  EXPECT_EQ(result.epochs.back().restore.place, EpochOrigin::Place::seed);
  EXPECT_TRUE(result.epochs.back().changes.empty());
}

/// The run goes on with the ranks that there were, and says why.
void expect_a_join_refused(const FlowKnobs& knobs, const VirtualCluster& cluster, const VirtualCluster::Result& result, const std::string& why) {
  expect_same_run(knobs, cluster, result, undisturbed(knobs));
  ASSERT_EQ(result.settled.size(), 1U) << describe(knobs) << ": whoever asked must hear of it";
  EXPECT_NE(result.settled[0].find(why), std::string::npos) << result.settled[0];
  EXPECT_EQ(result.epochs.back().members.size(), knobs.ranks) << describe(knobs);
}

TEST(Elastic, ARankThatCannotBeBuiltWithDoesNotJoinAndTheRunGoesOn) {
  for (std::uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    FlowKnobs knobs = knobs_of(seed);
    knobs.steps = 120;
    knobs.overflow_step = 0;
    auto cluster = cluster_of(knobs);
    cluster->start_time = std::chrono::milliseconds{20};
    const std::uint32_t unable = seed % 2 == 0 ? knobs.ranks : 0;  // the new one, or an old one beside it
    cluster->cannot_build = [unable, of = cluster.get(), ranks = knobs.ranks](std::uint32_t rank, const std::vector<std::string>&) -> std::string {
      return rank == unable && of->members() > ranks ? "out of memory" : "";
    };
    cluster->on_step = [of = cluster.get(), asked = false](const StepRecord& record) mutable {
      if (record.step >= Step{2} && !std::exchange(asked, true)) of->ask(request("", 1));
    };
    expect_a_join_refused(knobs, *cluster, cluster->run(), "out of memory");
  }
}

TEST(Elastic, AJoinThatALossHasMadeImpossibleIsRefusedWhileTheRunRecovers) {
  FlowKnobs knobs = knobs_of(1);
  knobs.steps = 200;
  knobs.overflow_step = 0;
  auto cluster = cluster_of(knobs);
  cluster->respawn = true;
  cluster->start_time = std::chrono::milliseconds{20};
  cluster->on_step = [&, of = cluster.get(), asked = false](const StepRecord& record) mutable {
    if (record.step < Step{2} || std::exchange(asked, true)) return;
    of->ask(request("", 1));
    of->world().clock().after(std::chrono::milliseconds{10}, [of, &knobs] { of->most_members = knobs.ranks; });  // it is agreed by then
    kill_at(*of, of->world().clock().now() + Nanos{15'000'000}, 1);
  };
  const auto result = cluster->run();
  expect_a_join_refused(knobs, *cluster, result, "too many ranks");
  EXPECT_EQ(result.respawns, 1U);
}

TEST(Elastic, ARankThatNeverJoinsIsGivenUp) {
  FlowKnobs knobs = knobs_of(2);
  knobs.steps = 12;
  knobs.overflow_step = 0;
  auto cluster = cluster_of(knobs);
  cluster->start_time = std::chrono::seconds{1000};
  cluster->alter_lane = [](std::uint32_t, LaneKind lane, LaneModel& model) {
    if (lane == LaneKind::compute) model.cost = [](const LaneOperation&) { return Nanos{std::chrono::milliseconds{200}}; };
  };
  cluster->on_step = [of = cluster.get(), asked = false](const StepRecord& record) mutable {
    if (record.step >= Step{2} && !std::exchange(asked, true)) of->ask(request("", 1));
  };
  expect_a_join_refused(knobs, *cluster, cluster->run(), "has not joined within 60 s (comm.init_timeout_seconds)");
}

TEST(Elastic, AStateThatDoesNotComeToAllHostsInTimeCostsTheChangeAndNoStep) {
  for (const bool join : {true, false}) {
    FlowKnobs knobs = knobs_of(3);
    knobs.overflow_step = 0;
    auto cluster = cluster_of(knobs);
    cluster->start_time = std::chrono::milliseconds{20};
    cluster->spread_time = std::chrono::hours{1};
    cluster->on_step = [of = cluster.get(), join, asked = false](const StepRecord& record) mutable {
      if (record.step >= Step{2} && !std::exchange(asked, true)) of->ask(join ? request("", 1) : request("parallelism.tensor_parallel_degree=1"));
    };
    const auto result = cluster->run();
    EXPECT_EQ(result.spreads, 1U);
    expect_same_run(knobs, *cluster, result, undisturbed(knobs));
    ASSERT_EQ(result.settled.size(), 1U) << "whoever asked must hear of it";
    EXPECT_NE(result.settled[0].find("not every host holds"), std::string::npos) << result.settled[0];
    EXPECT_EQ(result.epochs.back().members.size(), knobs.ranks);
    EXPECT_EQ(result.recoveries, 0U);
  }
}

}  // namespace
}  // namespace troupe
