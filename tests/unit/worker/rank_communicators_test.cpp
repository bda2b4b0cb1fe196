#include "tools/worker/rank_communicators.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace troupe {
namespace {

Peer process(std::uint32_t first, std::uint32_t ranks, const std::string& host) {
  return {.first = Rank{first}, .ranks = ranks, .pid = 1, .host = host, .address = {}};
}

const std::vector<Rank> two{Rank{0}, Rank{1}};

TEST(ChooseCollectives, TakesSharedMemoryOnOneHostAndTheTransportBetweenTwo) {
  const std::vector<Peer> together{process(0, 1, "a"), process(1, 1, "a")}, apart{process(0, 1, "a"), process(1, 1, "b")};
  EXPECT_EQ(choose_collectives("auto", together, two).value(), CollectivePath::shared_memory);
  EXPECT_EQ(choose_collectives("auto", apart, two).value(), CollectivePath::transport);
  EXPECT_EQ(choose_collectives("transport", together, two).value(), CollectivePath::transport);
}

TEST(ChooseCollectives, LooksAtTheMembersAlone) {
  const std::vector<Peer> peers{process(0, 2, "a"), process(2, 1, "b")};  // rank 2: a loader process on another host
  EXPECT_EQ(choose_collectives("auto", peers, two).value(), CollectivePath::shared_memory);
}

TEST(ChooseCollectives, RefusesSharedMemoryBetweenHostsAndNamesThem) {
  const std::vector<Peer> apart{process(0, 1, "a"), process(1, 1, "b")};
  const auto path = choose_collectives("shared_memory", apart, two);
  ASSERT_FALSE(path.ok());
  EXPECT_EQ(path.error().message,
            "comm.collectives = \"shared_memory\" joins the ranks of one host, but rank 0 is on a and rank 1 on b: use \"auto\" or \"transport\"");
}

TEST(ChooseCollectives, RefusesTwoRanksOfOneProcessOverTheTransport) {
  const std::vector<Peer> peers{process(0, 2, "a"), process(2, 1, "b")};
  const auto path = choose_collectives("auto", peers, std::vector<Rank>{Rank{0}, Rank{1}, Rank{2}});
  ASSERT_FALSE(path.ok());
  EXPECT_NE(path.error().message.find("ranks 0 and 1 share one: start them without --ranks-in-process"), std::string::npos) << path.error().message;
}

TEST(ChooseCollectives, NamesAMemberThatNoProcessHosts) {
  const std::vector<Peer> peers{process(0, 1, "a")};
  const auto path = choose_collectives("auto", peers, two);
  ASSERT_FALSE(path.ok());
  EXPECT_EQ(path.error().message, "no process of the job hosts rank 1, a member of the epoch");
}

TEST(JobPeers, WaitsForAListWithAllMembersInTheLivesThatAreWanted) {
  JobPeers peers;
  const std::stop_source stop;
  const auto knows = [&](std::vector<Rank> members, std::uint64_t lives) { return peers.wait(stop.get_token(), Nanos{1000000}, members, lives).ok(); };
  Peer first, second;
  first.first = Rank{0};
  second.first = Rank{4};  // joined later
  second.incarnation = Incarnation{1};
  peers.set({first});
  EXPECT_TRUE(knows({Rank{0}}, 0));
  EXPECT_FALSE(knows({Rank{0}, Rank{4}}, 0));
  peers.set({first, second});
  EXPECT_TRUE(knows({Rank{0}, Rank{4}}, 1));
  EXPECT_FALSE(knows({Rank{0}, Rank{4}}, 2)) << "the list is of before the second was started again";
}

TEST(JobPeers, GivesUpAtTheLimitAndWhenStopped) {
  const JobPeers peers;
  std::stop_source stop;
  EXPECT_NE(peers.wait(stop.get_token(), Nanos{1000000}, {}, 0).error().message.find("has not told the addresses"), std::string::npos);
  stop.request_stop();
  EXPECT_NE(peers.wait(stop.get_token(), std::chrono::seconds{60}, {}, 0).error().message.find("stopped before"), std::string::npos);
}

}  // namespace
}  // namespace troupe
