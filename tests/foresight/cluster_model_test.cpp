#include "src/simulation/cluster_model.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

NetworkModel hosts_of_eight() {
  NetworkModel network;
  network.ranks_per_host = 8;
  network.intra_host_gbps = 100;
  network.intra_host_us = 0;
  network.nics_per_host = 4;
  network.nic_gbps = 10;
  network.inter_host_us = 0;
  return network;
}

double milliseconds(Nanos time) { return static_cast<double>(time.count()) / 1e6; }

TEST(ClusterModel, ARankAloneWaitsForNobody) { EXPECT_EQ(time_of(hosts_of_eight(), CollectiveKind::all_gather, {1, 1}, 1e9), Nanos{0}); }

TEST(ClusterModel, ARingInsideAHostMovesAllButTheOwnPartPastEachRank) {
  EXPECT_NEAR(milliseconds(time_of(hosts_of_eight(), CollectiveKind::all_gather, {4, 1}, 1e9)), 7.5, 1e-6);
  EXPECT_NEAR(milliseconds(time_of(hosts_of_eight(), CollectiveKind::all_reduce, {4, 1}, 1e9)), 15, 1e-6) << "there and back";
}

TEST(ClusterModel, BetweenHostsTheSlowerOfCardsAndHostCounts) {
  EXPECT_NEAR(milliseconds(time_of(hosts_of_eight(), CollectiveKind::reduce_scatter, {16, 1}, 1e9)), 1e3 * 15 / 16 / 40, 1e-5);
  NetworkModel fast = hosts_of_eight();
  fast.nic_gbps = 1000;
  EXPECT_NEAR(milliseconds(time_of(fast, CollectiveKind::reduce_scatter, {16, 1}, 1e9)), 1e3 * 15 / 16 / 100, 1e-5);
}

TEST(ClusterModel, GroupsThatLeaveAHostTogetherShareItsCards) {
  // Two hosts of eight shards each: every rank has its partner on the other host, so eight groups of two share four cards.
  EXPECT_NEAR(milliseconds(time_of(hosts_of_eight(), CollectiveKind::all_reduce, {2, 8}, 1e8)), 1e3 * 2 * 0.1 / 2 * 8 / 40, 1e-5);
}

TEST(ClusterModel, HopsCostTheirLatency) {
  NetworkModel network = hosts_of_eight();
  network.intra_host_us = 2;
  network.inter_host_us = 10;
  EXPECT_NEAR(milliseconds(time_of(network, CollectiveKind::all_gather, {16, 1}, 0)), 1e-3 * (14 * 2 + 1 * 10), 1e-6);
}

TEST(ClusterModel, AnUnknownDeviceIsRefusedWithTheKnownOnes) {
  const auto cluster = cluster_of("h300");
  ASSERT_FALSE(cluster);
  EXPECT_NE(cluster.error().message.find("known are h200, h100, a100, b200, cpu"), std::string::npos) << cluster.error().message;
}

}  // namespace
}  // namespace troupe
