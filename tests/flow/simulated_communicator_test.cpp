#include "src/simulation/simulated_communicator.hpp"

#include <gtest/gtest.h>

#include <array>

#include "src/simulation/simulated_lane.hpp"
#include "src/simulation/virtual_world.hpp"

namespace troupe {
namespace {

using std::chrono::milliseconds;

/// Three ranks with a comm lane each.
class SimulatedCommunicatorTest : public ::testing::Test {
 protected:
  SimulatedCommunicatorTest() {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      lanes.push_back(std::make_unique<SimulatedLane>(world, Rank{rank}, LaneKind::comm, LaneModel{.collectives = true}));
      members.push_back(group.member(rank));
    }
  }
  ~SimulatedCommunicatorTest() override { world.close(); }
  void post(std::uint32_t rank, Nanos cost, std::function<void(Stream&, Communicator&)> work) {
    LaneOperation operation;
    operation.name = "collective";
    operation.cost = cost;
    operation.work = [this, rank, work = std::move(work)](Stream& on) { work(on, *members[rank]); };
    operation.done = [this, rank](const Outcome& outcome) { ended[rank].push_back({world.clock().now(), outcome}); };
    lanes[rank]->post(std::move(operation));
  }
  RunEnd run(std::size_t each) {
    return world.run([&] { return std::all_of(ended.begin(), ended.end(), [&](const auto& list) { return list.size() >= each; }); }, std::chrono::seconds{1});
  }

  static constexpr std::uint32_t ranks = 3;
  VirtualWorld world{{}};
  SimulatedGroup group{world, "dp_shard", ranks};
  std::vector<std::unique_ptr<Communicator>> members;
  std::vector<std::unique_ptr<SimulatedLane>> lanes;
  std::array<std::vector<std::pair<Nanos, Outcome>>, ranks> ended;
};

TEST_F(SimulatedCommunicatorTest, EveryoneIsBusyUntilTheLastHasComeAndTheLongestTimeHasPassed) {
  std::array<std::array<float, 3>, ranks> values{};
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    world.clock().after(milliseconds{10 * rank}, [&, rank] {
      post(rank, milliseconds{rank == 1 ? 5 : 2}, [&, rank](Stream& on, Communicator& of) {
        values[rank][rank] = static_cast<float>(rank + 1);
        const GatherPiece piece{reinterpret_cast<std::byte*>(values[rank].data()), sizeof(float)};
        of.all_gather(on, {&piece, 1});
      });
    });
  }
  EXPECT_EQ(run(1).how, RunEnd::How::finished);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ(ended[rank][0].first, milliseconds{25});
    EXPECT_TRUE(ended[rank][0].second.ok());
    EXPECT_EQ(values[rank], (std::array<float, 3>{1, 2, 3}));
  }
}

TEST_F(SimulatedCommunicatorTest, ReducesScattersAndSumsInOneOperation) {
  std::array<float, ranks> scattered{};
  std::array<double, ranks> sums{};
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    post(rank, milliseconds{1}, [&, rank](Stream& on, Communicator& of) {
      const std::array<float, ranks> input{1.0F, 10.0F, 100.0F};
      const ReducePiece piece{input.data(), &scattered[rank], 1};
      of.reduce_scatter(on, {&piece, 1});
      sums[rank] = scattered[rank];
      of.all_reduce(on, TensorView::contiguous(&sums[rank], DType::f64, {1}), Reduction::sum);
    });
  }
  EXPECT_EQ(run(1).how, RunEnd::How::finished);
  EXPECT_EQ(scattered, (std::array<float, ranks>{3, 30, 300}));
  EXPECT_EQ(sums, (std::array<double, ranks>{333, 333, 333}));
  EXPECT_EQ(ended[0][0].first, milliseconds{1}) << "an operation's time passes once, however many collectives it has";
}

TEST_F(SimulatedCommunicatorTest, DifferentCallsFailForAllAndNameBothSides) {
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    post(rank, milliseconds{1}, [rank](Stream& on, Communicator& of) {
      std::array<float, 4> data{};
      of.all_reduce(on, TensorView::contiguous(data.data(), DType::f32, {rank == 2 ? 4 : 3}), Reduction::sum);
    });
  }
  EXPECT_EQ(run(1).how, RunEnd::How::finished);
  for (const auto& list : ended) {
    EXPECT_EQ(list[0].second.kind, Outcome::Kind::failed);
    EXPECT_NE(list[0].second.cause.find("rank 0 calls all-reduce of 12 bytes (float32 sum), rank 2 calls all-reduce of 16 bytes (float32 sum)"),
              std::string::npos)
        << list[0].second.cause;
  }
}

TEST_F(SimulatedCommunicatorTest, AnAbortEndsWhoWaitsAndWhoComesLater) {
  const auto reduce = [](Stream& on, Communicator& of) {
    float value = 0;
    of.all_reduce(on, TensorView::contiguous(&value, DType::f32, {1}), Reduction::max);
  };
  post(0, milliseconds{1}, reduce);
  post(1, milliseconds{1}, reduce);
  world.clock().after(milliseconds{7}, [&] {
    EXPECT_EQ(group.waiting(), "dp_shard, all-reduce: ranks 0, 1 are here, 2 missing");
    members[1]->abort("rank 2 is gone");
    post(2, milliseconds{1}, reduce);
  });
  EXPECT_EQ(run(1).how, RunEnd::How::finished);
  EXPECT_EQ(ended[0][0].first, milliseconds{7});
  for (const auto& list : ended) EXPECT_NE(list[0].second.cause.find("rank 2 is gone"), std::string::npos);
}

TEST_F(SimulatedCommunicatorTest, WorkThatStillWaitsIsUnwoundWithItsLane) {
  bool unwound = false;
  struct Witness {
    bool& seen;
    ~Witness() { seen = true; }
  };
  post(0, milliseconds{1}, [&](Stream& on, Communicator& of) {
    const Witness witness{unwound};
    float value = 0;
    of.all_reduce(on, TensorView::contiguous(&value, DType::f32, {1}), Reduction::max);
  });
  EXPECT_EQ(run(1).how, RunEnd::How::stuck);
  world.close();
  EXPECT_FALSE(unwound);
  lanes.clear();
  EXPECT_TRUE(unwound);
}

}  // namespace
}  // namespace troupe
