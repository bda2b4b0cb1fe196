#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <mutex>

#include "tests/model/ranks.hpp"

namespace troupe::test {
namespace {

TrainingOptions float8(std::uint32_t world) {
  TrainingOptions o;
  o.batch = {4 / world, 16};
  o.world = world;
  o.compute = DType::bf16;
  o.float8 = {.enable = true, .filter_fqns = {"output"}, .all_gather = true};
  return o;
}

/// Whole tensors by name, put together from all ranks' rows.
class SavedState {
 public:
  void save(TrainingModel& model) {
    const std::lock_guard lock(mutex_);
    for (const StateTensor& t : model.state()) {
      std::vector<std::byte>& whole = tensors_[t.name];
      whole.resize(static_cast<std::size_t>(t.global_shape.elements()) * size_of(t.view.dtype));
      std::memcpy(whole.data() + offset(t), t.view.data, t.view.bytes());
    }
  }
  void restore(TrainingModel& model) {
    for (const StateTensor& t : model.state()) std::memcpy(t.view.data, tensors_.at(t.name).data() + offset(t), t.view.bytes());
    model.after_restore();
  }

 private:
  static std::size_t offset(const StateTensor& t) {
    return static_cast<std::size_t>(t.first_row * (t.global_shape.elements() / t.global_shape[0])) * size_of(t.view.dtype);
  }
  std::mutex mutex_;
  std::map<std::string, std::vector<std::byte>> tensors_;
};

std::vector<StepNumbers> steps(RankContext& rank, std::uint64_t first, std::uint64_t last) {
  PlainStep plain(rank.model, rank.device, rank.communicator, deal(rank.model.options(), markov_rows(64)));
  std::vector<StepNumbers> numbers;
  for (std::uint64_t step = first; step <= last; ++step) numbers.push_back(plain.run(EpochId{1}, Step{step}, 1e-2));
  return numbers;
}

/// Steps 3 and 4 of two ranks, after steps 1 and 2 on `world` ranks, whose state was saved and restored in between.
std::vector<StepNumbers> resumed_from(std::uint32_t world) {
  SavedState saved;
  on_ranks(llama3("tiny"), float8(world), [&](RankContext& rank) {
    (void)steps(rank, 1, 2);
    saved.save(rank.model);
  });
  std::vector<StepNumbers> numbers;
  on_ranks(llama3("tiny"), float8(2), [&](RankContext& rank) {
    rank.model.initialise(99);
    saved.restore(rank.model);
    const auto found = steps(rank, 3, 4);
    if (rank.rank == 0) numbers = found;
  });
  return numbers;
}

TEST(Restore, AResumedRunRepeatsTheLossesOfTheUndisturbedOneBitForBit) {
  const auto whole = train(llama3("tiny"), float8(2), markov_rows(64), 4, 1e-2);
  const auto resumed = resumed_from(2);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(resumed[i].verdict.mean_loss, whole[i + 2].verdict.mean_loss);
    EXPECT_EQ(resumed[i].verdict.grad_norm, whole[i + 2].verdict.grad_norm);
  }
}

TEST(Restore, TheStateOfOneRankFitsTwo) {
  const auto whole = train(llama3("tiny"), float8(2), markov_rows(64), 4, 1e-2);
  const auto resumed = resumed_from(1);
  // One rank scaled its activations over all four rows, so the first two steps differ by fp8 rounding.
  for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(resumed[i].verdict.mean_loss / whole[i + 2].verdict.mean_loss, 1.0, 5e-3);
}

}  // namespace
}  // namespace troupe::test
