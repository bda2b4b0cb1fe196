#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

#include "src/plan/compiler.hpp"
#include "src/runtime/actor_system.hpp"
#include "tests/support/broken_programs.hpp"
#include "tools/foresight/simulated_cluster.hpp"

/// One mistake, in a rank on real threads and in a simulated job: both name the same edge.
namespace troupe {
namespace {

constexpr std::uint32_t units = 8;

std::shared_ptr<const PlanSet> plans(const SlotCounts& slots) {
  PlanShape shape;
  shape.units.assign(units, UnitShape{.gather_bytes = 32, .reduce_bytes = 16});
  return std::make_shared<const PlanSet>(compile_plans(shape, slots, false).value());
}

/// "waits for weights of L6" out of what an actor said.
std::string wait_in(const std::string& text, const std::string& actor) {
  const std::size_t who = text.find(actor), at = text.find("waits for ", who);
  if (who == std::string::npos || at == std::string::npos) return {};
  return text.substr(at, text.find_first_of(";\n", at) - at);
}

/// Compute's wait in a simulated job of one rank whose letters of this kind are lost from the `first` on.
std::string wait_of_a_simulated_run(schema::Envelope::Body::Which lost, int first) {
  SimulatedJobOptions job;
  job.slots = {2, 2, 2, 1};
  job.plans = plans(job.slots);
  job.units = units;
  job.cost = [](const PlannedOperation&) { return std::chrono::milliseconds{1}; };
  job.limit = std::chrono::seconds{30};
  std::unique_ptr<BrokenPostOffice> office;
  std::unique_ptr<Runtime> runtime;
  job.alter_parts = [&](Rank, RankParts& parts) {
    office = std::make_unique<BrokenPostOffice>(parts.runtime->post_office, lost, BrokenPostOffice::Fault::loses, first);
    runtime = std::make_unique<Runtime>(Runtime{parts.runtime->clock, parts.runtime->log, *office});
    parts.runtime = runtime.get();
  };
  const SimulatedOutcome outcome = simulate_job(job);
  EXPECT_NE(outcome.end.how, RunEnd::How::finished);
  return wait_in(outcome.end.report, "compute of rank 0");
}

/// Of a rank alone.
struct OwnCommunicator final : Communicator {
  [[nodiscard]] std::uint32_t rank() const noexcept override { return 0; }
  [[nodiscard]] std::uint32_t size() const noexcept override { return 1; }
  void all_gather(Stream&, std::span<const GatherPiece>) override {}
  void reduce_scatter(Stream&, std::span<const ReducePiece> pieces) override {
    for (const ReducePiece& piece : pieces) std::copy_n(piece.input, piece.count, piece.output);
  }
  void all_reduce(Stream&, TensorView, Reduction) override {}
  void broadcast(Stream&, std::span<std::byte>, std::uint32_t) override {}
  void all_to_all(Stream&, std::span<const std::byte>, std::span<std::byte>) override {}
  void abort(const std::string&) noexcept override {}
};

/// Delivers, and keeps what actors answer to Inspect.
class InspectingPost final : public PostOffice {
 public:
  explicit InspectingPost(Directory& directory) : directory_(directory) {}
  void post(std::shared_ptr<const Parcel> parcel) override {
    const auto body = parcel->envelope().getBody();
    if (body.isInspection()) {
      const std::lock_guard lock(mutex_);
      if (address_of(parcel->envelope().getFrom()).actor == ActorKind::compute)
        answers_.push_back(std::string("waits for ") + body.getInspection().getWaiting().cStr());
      if (body.isInspection()) changed_.notify_all();
    }
    directory_.post(std::move(parcel));
  }
  /// Compute's next answer; empty after a minute.
  std::string next_answer() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::minutes{1}, [&] { return answers_.size() > seen_; })) return {};
    return answers_[seen_++];
  }

 private:
  Directory& directory_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> answers_;
  std::size_t seen_ = 0;
};

/// The same mistake in a rank whose actors and lanes have threads of their own; asked until it says `expected`, or a thousand times.
std::string wait_of_a_real_run(schema::Envelope::Body::Which lost, int first, const std::string& expected) {
  const auto clock = make_system_clock();
  const auto log = make_null_log();
  Directory directory;
  InspectingPost post(directory);
  BrokenPostOffice office(post, lost, BrokenPostOffice::Fault::loses, first);
  Runtime runtime{*clock, *log, office};
  ActorSystem system;
  Findings findings;
  StampedModel model;
  model.units = units;
  StampedRank programs(model, 0, findings);
  RankParts parts;
  parts.runtime = &runtime;
  parts.directory = &directory;
  parts.system = &system.caf();
  parts.slots = {2, 2, 2, 1};
  parts.plans = plans(parts.slots);
  parts.batch = programs.batch();
  parts.units = units;
  parts.loader = programs.loader();
  parts.compute = programs.compute();
  parts.shard = programs.shard();
  parts.dp_shard = parts.world = std::make_shared<OwnCommunicator>();
  for (std::size_t i = 0; i < lane_count; ++i) parts.lanes[i] = make_thread_lane(static_cast<LaneKind>(i), Rank{0}, *clock, nullptr);
  RankActors rank = spawn_rank(std::move(parts));
  rank.begin_step(Step{1}, StepKind::train, 1e-3, true);
  std::string answer;
  for (int asked = 0; asked < 1000 && answer != expected; ++asked) {
    rank.inspect_all();
    answer = post.next_answer();
  }
  rank.halt("seen");
  rank.end_epoch_all("seen");
  rank.quit_and_join();
  return answer;
}

TEST(BrokenRun, ALostLetterOfWeightsIsNamedBySimulationAndRealRunAlike) {
  const std::string simulated = wait_of_a_simulated_run(LetterKind::WEIGHTS_GATHERED, 7);
  EXPECT_EQ(simulated, "waits for weights of L6, step 1");
  EXPECT_EQ(wait_of_a_real_run(LetterKind::WEIGHTS_GATHERED, 7, simulated), simulated);
}

TEST(BrokenRun, ALostLetterOfABatchIsNamedBySimulationAndRealRunAlike) {
  const std::string simulated = wait_of_a_simulated_run(LetterKind::BATCH_READY, 1);
  EXPECT_NE(simulated.find("batch"), std::string::npos) << simulated;
  EXPECT_EQ(wait_of_a_real_run(LetterKind::BATCH_READY, 1, simulated), simulated);
}

}  // namespace
}  // namespace troupe
