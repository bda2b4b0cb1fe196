#include "tools/launcher/remote_hosts.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

/// Three hosts of two ranks each; what their agents are told, as text.
class RemoteHostsTest : public ::testing::Test {
 protected:
  void joins(std::uint32_t node) { hosts_.take({HostEvent::Kind::joined, node, "host-" + std::to_string(node)}); }
  void goes(std::uint32_t node) { hosts_.take({HostEvent::Kind::gone, node, {}}); }
  void tells(std::uint32_t node, const HostReport& report) { hosts_.take({HostEvent::Kind::told, node, write(report)}); }
  void note(std::uint32_t node, const std::string& text) {
    const auto order = read_host_order(text);
    ASSERT_TRUE(order.ok()) << order.error().message;
    const std::string to = std::to_string(node) + ": ";
    if (const auto* start = std::get_if<WorkerOrder>(&*order))
      sent_.push_back(to + "start " + std::to_string(start->rank.value()) + "." + std::to_string(start->incarnation.value()));
    if (const auto* copy = std::get_if<CopyOrder>(&*order))
      sent_.push_back(to + "copy " + std::to_string(copy->snapshot.rank.value()) + " to " + std::to_string(copy->to));
    if (const auto* asked = std::get_if<HoldingsOrder>(&*order)) {
      sent_.push_back(to + "what is there?");
      question_ = asked->question;
    }
    if (const auto* forget = std::get_if<ForgetOrder>(&*order)) sent_.push_back(to + "forget before " + std::to_string(forget->before.value()));
    if (std::holds_alternative<EndOrder>(*order)) sent_.push_back(to + "end");
  }
  std::vector<std::string> sent() { return std::exchange(sent_, {}); }

  /// A snapshot of this rank after the step, kept in slot 0.
  static SnapshotName name(std::uint32_t rank, std::uint64_t step) { return {Rank{rank}, 0, EpochId{1}, Step{step}}; }
  void holds(std::uint32_t node, const std::vector<SnapshotName>& snapshots) { tells(node, HoldingsReport{question_, snapshots}); }
  void came(std::uint32_t to, const SnapshotName& snapshot) { tells(to, CopyReport{.snapshot = snapshot, .to = to}); }

  std::vector<std::string> sent_, lost_, copied_;
  std::vector<WorkerEnd> ends_;
  std::vector<SnapshotName> held_here_;
  std::vector<std::uint32_t> spread_, returned_;
  std::uint64_t question_ = 0;
  std::unique_ptr<Log> log_ = make_null_log();
  RemoteHosts::Handler handler() {
    return {.send = [this](std::uint32_t node, const std::string& order) { note(node, order); },
            .ended = [this](WorkerEnd end) { ends_.push_back(std::move(end)); },
            .fired = [](const RankFiring&) {},
            .stop = [](const std::string&) {},
            .lost = [this](Rank, const std::string& cause, Incarnation) { lost_.push_back(cause); },
            .copied = [this](const CopyReport& report) { copied_.push_back(std::to_string(report.snapshot.rank.value()) + report.problem); },
            .send_copy = [this](const CopyOrder& order) { note(0, write(HostOrder{order})); },
            .held = [this] { return held_here_; },
            .spread = [this](std::uint32_t number) { spread_.push_back(number); },
            .returned = [this](std::uint32_t node) { returned_.push_back(node); }};
  }
  RemoteHosts hosts_{{.nodes = 3, .ranks_each = 2}, handler(), *log_};
};
using Texts = std::vector<std::string>;

TEST_F(RemoteHostsTest, RanksAreStartedWhenTheirAgentComes) {
  EXPECT_FALSE(hosts_.hosts(Rank{1}));
  EXPECT_TRUE(hosts_.hosts(Rank{2}) && hosts_.hosts(Rank{5}));
  EXPECT_FALSE(hosts_.hosts(Rank{6}));
  joins(2);
  EXPECT_EQ(sent(), (Texts{"2: start 4.0", "2: start 5.0"}));
  joins(1);
  EXPECT_EQ(sent(), (Texts{"1: start 2.0", "1: start 3.0"}));
  hosts_.obey({.rank = Rank{3}, .incarnation = Incarnation{1}});
  EXPECT_EQ(sent(), (Texts{"1: start 3.1"}));
}

TEST_F(RemoteHostsTest, AnAgentThatGoesTakesTheRanksThatHaveNotEndedAndTheNextOneStartsThem) {
  joins(1);
  tells(1, WorkerEnd{.first = Rank{3}, .pid = 9, .signal = 9, .log = "log"});
  ASSERT_EQ(ends_.size(), 1U);
  EXPECT_EQ(ends_[0].describe(), "rank 3 (pid 9 on host-1) was killed by signal 9 (Killed)");
  goes(1);
  EXPECT_EQ(lost_, (Texts{"rank 2 is gone with the agent of node 1 (host-1)"}));
  (void)sent();
  hosts_.obey({.rank = Rank{2}, .incarnation = Incarnation{1}});
  EXPECT_TRUE(sent().empty());
  joins(1);
  holds(1, {});
  EXPECT_EQ(sent(), (Texts{"1: what is there?", "1: start 2.1"}));
}

TEST_F(RemoteHostsTest, AnAgentThatComesAnewHasBackItsRanksSnapshotsBeforeTheseStart) {
  joins(1);
  joins(2);
  goes(2);
  hosts_.obey({.rank = Rank{4}, .incarnation = Incarnation{1}});
  (void)sent();
  joins(2);
  EXPECT_EQ(sent(), (Texts{"1: what is there?", "2: what is there?"}));
  holds(2, {});
  holds(1, {name(2, 20), name(4, 10), name(5, 10)});
  EXPECT_EQ(sent(), (Texts{"1: copy 4 to 2", "1: copy 5 to 2"}));
  hosts_.obey({.rank = Rank{5}, .incarnation = Incarnation{1}});
  came(2, name(4, 10));
  came(2, name(4, 10));  // told twice: it is not taken for the other
  EXPECT_TRUE(sent().empty());
  came(2, name(5, 10));
  EXPECT_EQ(sent(), (Texts{"2: start 4.1", "2: start 5.1"}));
  EXPECT_TRUE(copied_.empty()) << "the Coordinator knows them";
}

TEST_F(RemoteHostsTest, WhatWasToComeBackFromAnAgentThatGoesIsNotWaitedFor) {
  joins(1);
  joins(2);
  goes(2);
  hosts_.obey({.rank = Rank{4}, .incarnation = Incarnation{1}});
  joins(2);
  holds(1, {name(4, 10)});
  holds(2, {});
  (void)sent();
  goes(1);
  EXPECT_EQ(sent(), Texts{"2: what is there?"});
  holds(2, {});
  EXPECT_EQ(sent(), Texts{"2: start 4.1"});
}

TEST_F(RemoteHostsTest, TheFirstHostsAgentIsTheLauncherItself) {
  joins(1);
  goes(1);
  hosts_.obey({.rank = Rank{2}, .incarnation = Incarnation{1}});
  (void)sent();
  held_here_ = {name(0, 20), name(2, 20)};
  joins(1);
  holds(1, {});
  EXPECT_EQ(sent(), (Texts{"1: what is there?", "0: copy 2 to 1"}));
  came(1, name(2, 20));
  EXPECT_EQ(sent(), Texts{"1: start 2.1"});
}

TEST_F(RemoteHostsTest, ASnapshotIsCopiedToTheNearestHostBeforeItsOwnThatHasAnAgent) {
  joins(1);
  joins(2);
  (void)sent();
  hosts_.copy(name(4, 10));
  hosts_.copy(name(2, 10));
  EXPECT_EQ(sent(), (Texts{"2: copy 4 to 1", "1: copy 2 to 0"}));
  tells(1, CopyReport{.snapshot = name(4, 10), .to = 1});
  hosts_.copied({.snapshot = name(2, 10), .to = 0});
  EXPECT_EQ(copied_, (Texts{"4", "2"}));
  goes(1);
  hosts_.copy(name(4, 20));
  EXPECT_EQ(sent(), Texts{"2: copy 4 to 0"});
}

TEST_F(RemoteHostsTest, ACopyThatDoesNotComeWholeIsSentOnceMoreAndThenGivenUpByName) {
  const SnapshotCopies::Time start{};
  joins(1);
  (void)sent();
  hosts_.copy(name(2, 10));
  tells(1, CopyReport{.snapshot = name(2, 10), .to = 0, .sent = true});
  hosts_.look(start + SnapshotCopies::arrives_within);
  EXPECT_EQ(sent(), (Texts{"1: copy 2 to 0", "1: copy 2 to 0"}));
  EXPECT_TRUE(copied_.empty());
  tells(1, CopyReport{.snapshot = name(2, 10), .to = 0, .sent = true});
  hosts_.look(start + 3 * SnapshotCopies::arrives_within);
  EXPECT_EQ(copied_, Texts{"2the copy of the snapshot of rank 2 after step 10 for node 0 has left twice, and did not come whole"});
  hosts_.copied({.snapshot = name(2, 10), .to = 0});  // after all, too late
  EXPECT_EQ(copied_.size(), 1U);
}

TEST_F(RemoteHostsTest, ACopyThatCannotBeSentIsTriedAgainAfterAMoment) {
  joins(1);
  (void)sent();
  hosts_.copy(name(2, 10));
  tells(1, CopyReport{.snapshot = name(2, 10), .to = 0, .problem = "no link"});
  hosts_.look(SnapshotCopies::Time{} + std::chrono::seconds{1});
  EXPECT_EQ(sent(), (Texts{"1: copy 2 to 0", "1: copy 2 to 0"}));
  tells(1, CopyReport{.snapshot = name(2, 10), .to = 0, .problem = ": no link"});
  EXPECT_EQ(copied_, Texts{"2: no link"});
}

TEST_F(RemoteHostsTest, ACopyForAnAgentThatGoesIsTold) {
  joins(1);
  joins(2);
  hosts_.copy(name(4, 10));
  goes(1);
  EXPECT_EQ(copied_, Texts{"4the copy of the snapshot of rank 4 after step 10 for node 1: the agent of node 1 is gone"});
}

const EpochOrigin state_after_10{.place = EpochOrigin::Place::memory, .step = Step{10}, .epoch = EpochId{1}, .slot = 0};

TEST_F(RemoteHostsTest, AStateIsSpreadFromWhoeverHoldsItToAllThatLackIt) {
  joins(1);
  joins(2);
  goes(1);  // what its ranks kept lies here
  (void)sent();
  held_here_ = {name(0, 10), name(1, 10), name(2, 10), name(3, 10), name(0, 8)};
  hosts_.spread(state_after_10, {Rank{0}, Rank{1}, Rank{4}, Rank{5}}, 7);
  EXPECT_EQ(sent(), Texts{"2: what is there?"});
  holds(2, {name(4, 10), name(5, 10)});
  EXPECT_EQ(sent(), (Texts{"0: copy 0 to 2", "0: copy 1 to 2", "0: copy 2 to 2", "0: copy 3 to 2", "2: copy 4 to 0", "2: copy 5 to 0"}));
  for (const std::uint32_t rank : {0U, 1U, 2U, 3U}) came(2, name(rank, 10));
  hosts_.copied({.snapshot = name(4, 10), .to = 0});
  EXPECT_TRUE(spread_.empty());
  hosts_.copied({.snapshot = name(5, 10), .to = 0});
  EXPECT_EQ(spread_, std::vector{7U});
}

TEST_F(RemoteHostsTest, WhatIsSpreadIsAskedAnewWhenAnAgentGoesMeanwhile) {
  joins(1);
  joins(2);
  held_here_ = {name(0, 10), name(2, 10)};
  hosts_.spread(state_after_10, {Rank{0}, Rank{2}, Rank{4}}, 1);
  holds(1, {name(2, 10), name(4, 10)});
  holds(2, {name(4, 10)});
  (void)sent();
  goes(2);
  EXPECT_EQ(sent(), Texts{"1: what is there?"});
  holds(1, {name(2, 10), name(4, 10)});
  EXPECT_EQ(sent(), (Texts{"0: copy 0 to 1", "1: copy 4 to 0"}));
  came(1, name(0, 10));
  hosts_.copied({.snapshot = name(4, 10), .to = 0});
  EXPECT_EQ(spread_, std::vector{1U});
}

TEST_F(RemoteHostsTest, WhereTheRunHasGoneOnWithoutAHostItsNextAgentIsToldOf) {
  RemoteHosts hosts({.nodes = 3, .ranks_each = 2, .shrinks = true}, handler(), *log_);
  hosts.take({HostEvent::Kind::joined, 1, "host-1"});
  EXPECT_TRUE(hosts.can_start(Rank{3}) && hosts.can_start(Rank{0}));
  EXPECT_FALSE(hosts.can_start(Rank{4}) || hosts.can_start(Rank{6}));
  hosts.take({HostEvent::Kind::gone, 1, {}});
  EXPECT_FALSE(hosts.can_start(Rank{3}));
  (void)sent();
  hosts.take({HostEvent::Kind::joined, 1, "host-1"});
  EXPECT_EQ(returned_, std::vector{1U});
  EXPECT_TRUE(sent().empty());
}

TEST_F(RemoteHostsTest, AnAgentThatComesWhenTheJobIsOverIsToldSo) {
  joins(1);
  (void)sent();
  hosts_.end({.ok = true, .cause = {}, .patience = {}});
  EXPECT_EQ(sent(), Texts{"1: end"});
  goes(1);
  EXPECT_TRUE(lost_.empty());
  EXPECT_TRUE(hosts_.all_gone());
  joins(2);
  EXPECT_EQ(sent(), Texts{"2: end"});
}

TEST_F(RemoteHostsTest, NonsenseIsNoReportAndNoOrder) {
  EXPECT_FALSE(read_host_report("{\"say\":\"sing\"}").ok());
  EXPECT_FALSE(read_host_report("[").ok());
  EXPECT_FALSE(read_host_order("{\"say\":\"start\"}").ok());
  EXPECT_FALSE(read_host_order("{\"say\":\"ended\"}").ok());
  joins(1);
  hosts_.take({HostEvent::Kind::told, 1, "nonsense"});
  EXPECT_TRUE(ends_.empty());
}

}  // namespace
}  // namespace troupe
