#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <stdexcept>

#include "actors/rank_actors.hpp"
#include "src/plan/compiler.hpp"
#include "src/runtime/actor_system.hpp"
#include "src/runtime/directory.hpp"
#include "src/runtime/send.hpp"

/// The actors on CAF's own workers and on real lanes' threads. Every program writes what it is into its slot and checks what it reads:
/// a slot that is used by two at once, or after it went home (poisoned), shows.
namespace troupe {
namespace {

constexpr std::uint32_t unit_count = 4, micro_batches = 2;
constexpr std::size_t words = 512;

std::uint64_t stamp(OperationKind kind, Step step, Micro micro, Unit unit) {
  return (static_cast<std::uint64_t>(kind) << 56U) | (step.value() << 24U) | (std::uint64_t{micro.value()} << 16U) | unit.value();
}
void fill(std::span<std::byte> slot, std::uint64_t value) {
  for (std::size_t i = 0; i < words; ++i) std::memcpy(slot.data() + i * sizeof value, &value, sizeof value);
}
void expect(std::span<const std::byte> slot, std::uint64_t value, const char* what) {
  for (std::size_t i = 0; i < words; ++i) {
    std::uint64_t found = 0;
    std::memcpy(&found, slot.data() + i * sizeof found, sizeof found);
    if (found != value) throw std::runtime_error(std::string(what) + " holds another's bytes");
  }
}

struct StampingLoader final : LoaderProgram {
  BatchFacts load(Stream&, Step step, Micro micro, std::span<std::byte> batch) override {
    fill(batch, stamp(OperationKind::load, step, micro, Unit{}));
    return {words, step.value()};
  }
};

struct CheckingCompute final : ComputeProgram {
  void forward(Stream&, Step step, Micro micro, Unit unit, std::span<const std::byte> batch, std::span<const std::byte> weights) override {
    expect(batch, stamp(OperationKind::load, step, micro, Unit{}), "the batch of a forward");
    expect(weights, stamp(OperationKind::gather, step, Micro{}, unit), "the weights of a forward");
  }
  void backward(Stream&, Step step, Micro micro, Unit unit, std::span<const std::byte> batch, std::span<const std::byte> weights,
                std::span<std::byte> gradients) override {
    forward_checks(step, micro, unit, batch, weights);
    fill(gradients, stamp(OperationKind::backward, step, micro, unit));
  }
  static void forward_checks(Step step, Micro micro, Unit unit, std::span<const std::byte> batch, std::span<const std::byte> weights) {
    expect(batch, stamp(OperationKind::load, step, micro, Unit{}), "the batch of a backward");
    expect(weights, stamp(OperationKind::gather, step, Micro{}, unit), "the weights of a backward");
  }
};

/// Weights belong to the step after the unit's last optimized one.
struct CheckingShard final : ShardProgram {
  [[nodiscard]] std::size_t weights_bytes(Unit) const override { return words * sizeof(std::uint64_t); }
  [[nodiscard]] std::size_t gradients_bytes(Unit) const override { return words * sizeof(std::uint64_t); }
  void scales(Stream&, Unit, Communicator&) override {}
  void gather(Stream&, Unit unit, std::span<std::byte> weights, Communicator&) override {
    fill(weights, stamp(OperationKind::gather, Step{optimized[unit.value()] + 1}, Micro{}, unit));
  }
  void reduce(Stream&, Micro micro, Unit unit, std::span<std::byte> gradients, Communicator&) override {
    expect(gradients, stamp(OperationKind::backward, Step{optimized[unit.value()] + 1}, micro, unit), "the gradients of a reduce");
  }
  void accumulate(Stream&, Micro micro, Unit unit, std::span<std::byte> gradients) override {
    expect(gradients, stamp(OperationKind::backward, Step{optimized[unit.value()] + 1}, micro, unit), "the gradients of a sum");
  }
  void all_reduce(Stream&, Unit, Communicator&) override {}
  void verdict(Stream&, EpochId, Step, Communicator&) override {}
  void optimize(Stream&, Step step, Unit unit, double) override { optimized[unit.value()] = step.value(); }
  [[nodiscard]] StepNumbers numbers() const override {
    StepNumbers numbers;
    numbers.verdict.outcome = VerdictOutcome::commit;
    numbers.verdict.tokens = static_cast<double>(optimized.back());
    return numbers;
  }
  std::array<std::uint64_t, unit_count> optimized{};  ///< ordered by the plan alone: two lanes use it
};

/// Delivers, and lets the test's thread wait for what comes to the Supervisor.
class SupervisorsPost final : public PostOffice {
 public:
  explicit SupervisorsPost(Directory& directory) : directory_(directory) {}
  void post(std::shared_ptr<const Parcel> parcel) override {
    if (static_cast<ActorKind>(parcel->envelope().getTo().getActor()) != ActorKind::supervisor) return directory_.post(std::move(parcel));
    const std::lock_guard lock(mutex_);
    letters_.push_back(std::move(parcel));
    changed_.notify_all();
  }
  /// Waits for `count` letters of a kind, or a fault; false after a minute.
  bool wait_for(LetterKind kind, std::ptrdiff_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes{1}, [&] { return count_of(kind) >= count || count_of(LetterKind::FAULT_REPORT) > 0; });
  }
  std::vector<std::shared_ptr<const Parcel>> letters() {
    const std::lock_guard lock(mutex_);
    return letters_;
  }
  std::string first_fault() {
    for (const auto& parcel : letters()) {
      if (parcel->envelope().getBody().which() == LetterKind::FAULT_REPORT) return parcel->envelope().getBody().getFaultReport().getCause().cStr();
    }
    return {};
  }

 private:
  [[nodiscard]] std::ptrdiff_t count_of(LetterKind kind) const {
    return std::count_if(letters_.begin(), letters_.end(), [kind](const auto& parcel) { return parcel->envelope().getBody().which() == kind; });
  }
  Directory& directory_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<const Parcel>> letters_;
};

class ThreadsTest : public testing::TestWithParam<std::uint32_t> {
 protected:
  RankParts parts() {
    PlanShape shape;
    shape.micro_batches = micro_batches;
    shape.units.resize(unit_count);
    RankParts parts;
    parts.slots = {GetParam(), GetParam(), GetParam(), 1};
    parts.runtime = &runtime;
    parts.directory = &directory;
    parts.system = &system.caf();
    parts.plans = std::make_shared<PlanSet>(compile_plans(shape, parts.slots, false).value());
    parts.batch = {1, words};
    parts.units = unit_count;
    parts.loader = std::make_shared<StampingLoader>();
    parts.compute = std::make_shared<CheckingCompute>();
    parts.shard = std::make_shared<CheckingShard>();
    parts.poison_freed_slots = true;
    for (std::size_t i = 0; i < lane_count; ++i) parts.lanes[i] = make_thread_lane(static_cast<LaneKind>(i), Rank{0}, *clock, nullptr);
    return parts;
  }

  std::unique_ptr<Clock> clock = make_system_clock();
  std::unique_ptr<Log> log = make_null_log();
  Directory directory;
  SupervisorsPost post{directory};
  Runtime runtime{*clock, *log, post, nullptr};
  ActorSystem system;
};

// The fake shard dereferences no communicator.
struct NoCommunicator final : Communicator {
  [[nodiscard]] std::uint32_t rank() const noexcept override { return 0; }
  [[nodiscard]] std::uint32_t size() const noexcept override { return 1; }
  void all_gather(Stream&, std::span<const GatherPiece>) override {}
  void reduce_scatter(Stream&, std::span<const ReducePiece>) override {}
  void all_reduce(Stream&, TensorView, Reduction) override {}
  void broadcast(Stream&, std::span<std::byte>, std::uint32_t) override {}
  void all_to_all(Stream&, std::span<const std::byte>, std::span<std::byte>) override {}
  void abort(const std::string&) noexcept override {}
};

TEST_P(ThreadsTest, TrainOnRealThreadsAndNobodyReadsAnothersSlot) {
  constexpr std::uint64_t steps = 50;
  RankParts given = parts();
  given.dp_shard = given.world = std::make_shared<NoCommunicator>();
  RankActors rank = spawn_rank(std::move(given));
  for (std::uint64_t step = 1; step <= steps; ++step) rank.begin_step(Step{step}, StepKind::train, 1e-3, step == steps);
  rank.drain_all();
  ASSERT_TRUE(post.wait_for(LetterKind::STOPPED, 5)) << "the rank hangs";
  EXPECT_EQ(post.first_fault(), "");
  std::uint64_t reported = 0;
  for (const auto& parcel : post.letters()) {
    if (parcel->envelope().getBody().which() != LetterKind::STEP_REPORT) continue;
    EXPECT_EQ(parcel->envelope().getWhere().getStep(), ++reported);
    EXPECT_EQ(parcel->envelope().getBody().getStepReport().getTokens(), reported);
  }
  EXPECT_EQ(reported, steps);
  rank.quit_and_join();
  EXPECT_TRUE(rank.drain_lanes(std::chrono::seconds{10}));
}

TEST_P(ThreadsTest, AbortInTheMiddleLeavesAllFiveStopped) {
  RankParts given = parts();
  given.dp_shard = given.world = std::make_shared<NoCommunicator>();
  RankActors rank = spawn_rank(std::move(given));
  for (std::uint64_t step = 1; step <= 1000; ++step) rank.begin_step(Step{step}, StepKind::train, 1e-3, false);
  ASSERT_TRUE(post.wait_for(LetterKind::STEP_REPORT, 3));
  rank.halt("rank 1 died");
  rank.end_epoch_all("rank 1 died");
  ASSERT_TRUE(post.wait_for(LetterKind::STOPPED, 5)) << "an actor does not end";
  EXPECT_EQ(post.first_fault(), "");
  rank.quit_and_join();
}

INSTANTIATE_TEST_SUITE_P(Slots, ThreadsTest, testing::Values(1U, 2U, 3U), [](const auto& of) { return "SlotsOnEachEdge" + std::to_string(of.param); });

}  // namespace
}  // namespace troupe
