#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

#include "tests/cuda/twin.hpp"

namespace troupe::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Notes how each operation ended, in the order of the announcements.
class Ends {
 public:
  void note(const std::string& name, const Outcome& outcome) {
    const std::lock_guard lock(mutex_);
    ends_.push_back(name + (outcome.ok() ? " ok" : outcome.kind == Outcome::Kind::failed ? " failed: " + outcome.cause : " halted: " + outcome.cause));
    changed_.notify_all();
  }
  [[nodiscard]] std::vector<std::string> wait_for(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ends_.size() >= count; });
    return ends_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> ends_;
};

class CudaLanes : public ::testing::Test {
 protected:
  std::unique_ptr<Lane> lane(Device& device, LaneKind kind) { return device.open_lane(kind, Rank{0}, *clock_, nullptr); }
  LaneOperation operation(const std::string& name, std::function<void(Stream&)> work, std::uint32_t index = 0) {
    LaneOperation made;
    made.name = name;
    made.index = OperationIndex{index};
    made.work = std::move(work);
    made.done = [this, name](const Outcome& outcome) { ends_.note(name, outcome); };
    return made;
  }
  std::unique_ptr<Clock> clock_ = make_system_clock();
  Ends ends_;
};

TEST_F(CudaLanes, EndOperationsInOrderWhenTheDeviceIsDoneWithThem) {
  Devices devices;
  const Twin big(devices, DType::f32, {std::int64_t{1} << 26}), small(devices, DType::f32, {4});
  const std::unique_ptr<Lane> compute = lane(*devices.gpu, LaneKind::compute);
  for (int i = 0; i < 3; ++i) {
    compute->post(operation("fill " + std::to_string(i), [&, i](Stream& on) { devices.gpu->kernels().fill(on, big.on_gpu(), i); }));
  }
  std::vector<float> seen(4);
  compute->post(operation("read", [&](Stream& on) {
    devices.gpu->download(on, bytes_of(big.on_gpu()).subspan(bytes_of(big.on_gpu()).size() - 16), std::as_writable_bytes(std::span(seen)));
  }));
  EXPECT_THAT(ends_.wait_for(4), ElementsAre("fill 0 ok", "fill 1 ok", "fill 2 ok", "read ok"));
  EXPECT_THAT(seen, ::testing::Each(2.0F)) << "what was read is there once the operation is announced";
  EXPECT_TRUE(compute->drain(std::chrono::seconds{5}));
  EXPECT_EQ(compute->progress().completed, 4U);
}

TEST_F(CudaLanes, AFailedCollectiveHaltsWhatStandsBehindIt) {
  Devices devices;
  const std::unique_ptr<Lane> comm = lane(*devices.gpu, LaneKind::comm);
  LaneOperation bad = operation("gather", [](Stream&) { throw std::runtime_error("no peer"); });
  bad.failure_halts_lane = true;
  comm->post(std::move(bad));
  comm->post(operation("reduce", [](Stream&) { FAIL() << "must not run"; }));
  EXPECT_THAT(ends_.wait_for(2), ElementsAre("gather failed: gather: no peer", "reduce halted: gather: no peer"));
}

TEST_F(CudaLanes, AHaltedLaneEndsWhatRunsAndWhatIsPostedLater) {
  Devices devices;
  const Twin big(devices, DType::u8, {std::int64_t{1} << 28});
  const std::unique_ptr<Lane> compute = lane(*devices.gpu, LaneKind::compute);
  compute->post(operation("running", [&](Stream& on) {
    for (int i = 0; i < 200; ++i) devices.gpu->kernels().fill(on, big.on_gpu(), 1.0);
  }));
  compute->halt("rank 1 died");
  compute->post(operation("later", [](Stream&) { FAIL() << "must not run"; }));
  EXPECT_THAT(ends_.wait_for(2), ElementsAre("running halted: rank 1 died", "later halted: rank 1 died"));
}

/// compute writes k into a slot, comm adds the slot to a sum, twice as many rounds as slots: as the actors do, a lane posts when the other
/// has announced. With run-ahead the announcements come before the work is done, so the sum is right only if the device waited.
TEST_F(CudaLanes, RunningAheadKeepsEveryReadBehindItsWriteAndEveryWriteBehindItsReads) {
  Devices devices({.run_ahead = 3});
  Device& gpu = *devices.gpu;
  constexpr std::uint32_t rounds = 60;
  const std::int64_t size = std::int64_t{1} << 22;
  std::vector<Twin> slots;
  slots.reserve(2);
  for (int i = 0; i < 2; ++i) slots.emplace_back(devices, DType::f32, Shape{size});
  Twin sum(devices, DType::f32, {size});
  sum.set([](std::size_t) { return 0.0; });
  const std::unique_ptr<Lane> compute = lane(gpu, LaneKind::compute), comm = lane(gpu, LaneKind::comm);
  std::mutex mutex;
  std::condition_variable changed;
  std::uint32_t written = 0, added = 0;
  const auto post = [&](Lane& to, const char* name, std::uint32_t k, bool write, std::function<void(Stream&)> work, std::uint32_t& counter) {
    LaneOperation made;
    made.name = name;
    made.index = OperationIndex{2 * k + (write ? 0 : 1)};
    made.work = std::move(work);
    made.accesses = {{"gradients", 0, SlotIndex{k % 2}, write}};
    made.stays_on_device = true;
    made.done = [&](const Outcome& outcome) {
      EXPECT_TRUE(outcome.ok()) << outcome.cause;
      const std::lock_guard lock(mutex);
      ++counter;
      changed.notify_all();
    };
    to.post(std::move(made));
  };
  double expected = 0;
  for (std::uint32_t k = 0; k < rounds; ++k) {
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return k < 2 || added + 2 > k; });
    }
    const TensorView slot = slots[k % 2].on_gpu();
    post(
        *compute, "write", k, true,
        [&gpu, slot, k](Stream& on) {
          for (int i = 0; i < 20; ++i) gpu.kernels().fill(on, slot, -1.0);
          gpu.kernels().fill(on, slot, k);
        },
        written);
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return written > k; });
    }
    post(*comm, "add", k, false, [&gpu, slot, total = sum.on_gpu()](Stream& on) { gpu.kernels().add(on, total, slot, total); }, added);
    expected += k;
  }
  EXPECT_TRUE(compute->drain(std::chrono::seconds{20}));
  EXPECT_TRUE(comm->drain(std::chrono::seconds{20}));
  EXPECT_THAT(sum.found(), ::testing::Each(expected));
}

}  // namespace
}  // namespace troupe::test
