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
    if (const auto* copy = std::get_if<CopyOrder>(&*order)) sent_.push_back(to + "copy " + std::to_string(copy->snapshot.rank.value()));
    if (const auto* back = std::get_if<ReturnOrder>(&*order)) sent_.push_back(to + "return " + std::to_string(back->node));
    if (std::holds_alternative<EndOrder>(*order)) sent_.push_back(to + "end");
  }
  std::vector<std::string> sent() { return std::exchange(sent_, {}); }

  std::vector<std::string> sent_, lost_, copied_;
  std::vector<WorkerEnd> ends_;
  std::size_t held_here_ = 0;
  std::unique_ptr<Log> log_ = make_null_log();
  RemoteHosts hosts_{3,
                     2,
                     {.send = [this](std::uint32_t node, const std::string& order) { note(node, order); },
                      .ended = [this](WorkerEnd end) { ends_.push_back(std::move(end)); },
                      .fired = [](const RankFiring&) {},
                      .stop = [](const std::string&) {},
                      .lost = [this](Rank, const std::string& cause, Incarnation) { lost_.push_back(cause); },
                      .copied = [this](const CopyReport& report) { copied_.push_back(std::to_string(report.snapshot.rank.value())); },
                      .give_back = [this](std::uint32_t) { return held_here_; }},
                     *log_};
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
  EXPECT_EQ(sent(), (Texts{"1: start 2.1"}));
}

TEST_F(RemoteHostsTest, AnAgentThatComesAnewHasBackItsRanksSnapshotsBeforeTheseStart) {
  joins(1);
  joins(2);
  hosts_.copy({Rank{4}, 0, EpochId{1}, Step{10}});
  goes(2);
  hosts_.obey({.rank = Rank{4}, .incarnation = Incarnation{1}});
  (void)sent();
  joins(2);
  EXPECT_EQ(sent(), (Texts{"1: return 2"}));
  tells(2, CopyReport{{Rank{4}, 0, EpochId{1}, Step{10}}, {}});
  tells(1, ReturnReport{2, 2});
  EXPECT_TRUE(sent().empty());
  hosts_.obey({.rank = Rank{5}, .incarnation = Incarnation{1}});
  EXPECT_TRUE(sent().empty());
  tells(2, CopyReport{{Rank{4}, 1, EpochId{1}, Step{20}}, {}});
  EXPECT_EQ(sent(), (Texts{"2: start 4.1", "2: start 5.1"}));
  EXPECT_TRUE(copied_.empty()) << "the Coordinator knows them";
  tells(1, CopyReport{{Rank{4}, 0, EpochId{2}, Step{30}}, {}});
  EXPECT_EQ(copied_, Texts{"4"});
}

TEST_F(RemoteHostsTest, WhatWasToComeBackFromAnAgentThatGoesIsNotWaitedFor) {
  joins(1);
  joins(2);
  goes(2);
  hosts_.obey({.rank = Rank{4}, .incarnation = Incarnation{1}});
  joins(2);
  (void)sent();
  goes(1);
  EXPECT_EQ(sent(), Texts{"2: start 4.1"});
}

TEST_F(RemoteHostsTest, TheFirstHostsAgentIsTheLauncherItself) {
  joins(1);
  goes(1);
  hosts_.obey({.rank = Rank{2}, .incarnation = Incarnation{1}});
  (void)sent();
  held_here_ = 1;
  joins(1);
  EXPECT_TRUE(sent().empty());
  tells(1, CopyReport{{Rank{2}, 1, EpochId{1}, Step{20}}, {}});
  EXPECT_EQ(sent(), Texts{"1: start 2.1"});
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
