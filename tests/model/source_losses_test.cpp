// The losses of a blend's sources, counted apart: against autograd, and however the batch is cut.
#include <gtest/gtest.h>

#include "tests/model/autograd.hpp"
#include "tests/model/ranks.hpp"

namespace troupe::test {
namespace {

constexpr std::uint32_t sources = 3;
constexpr std::uint64_t rows_of_a_step = 7;  // the eighth place is padding
constexpr double rate = 1e-3;

std::uint32_t source_of(Step step, std::uint64_t row) { return static_cast<std::uint32_t>((row + step.value()) % sources); }

/// Row `r` has r ignored labels, so that no two rows weigh the same.
FillRow uneven_rows() {
  return [fill = markov_rows(64)](Step step, std::uint64_t row, std::span<std::int32_t> tokens, std::span<std::int32_t> labels) {
    fill(step, row, tokens, labels);
    for (std::size_t i = 0; i < row; ++i) labels[i] = -100;
  };
}

TrainingOptions cut(std::uint32_t world, std::uint32_t micro_batches, std::uint32_t rows, std::uint32_t replicas = 1) {
  TrainingOptions o;
  o.batch = {rows, 16};
  o.micro_batches = micro_batches;
  o.world = world;
  o.replicas = replicas;
  return o;
}

/// As `deal` deals the rows.
RowSources sources_of(const TrainingOptions& o) {
  const auto of = [rows = o.batch.rows, ranks = o.data_ranks(), rank = o.data_rank()](Step step, Micro micro) {
    std::vector<std::optional<std::uint32_t>> all;
    for (std::uint32_t i = 0; i < rows; ++i) {
      const std::uint64_t row = (std::uint64_t{micro.value()} * ranks + rank) * rows + i;
      all.push_back(row < rows_of_a_step ? std::optional(source_of(step, row)) : std::nullopt);
    }
    return all;
  };
  return {.count = sources, .micro_batches = o.micro_batches, .rows = o.batch.rows, .of = of};
}

using Steps = std::vector<StepNumbers>;

/// Three steps; the numbers of each rank.
std::vector<Steps> train_apart(TrainingOptions options, bool apart = true) {
  std::vector<Steps> numbers(options.data_ranks());
  on_ranks(llama3("tiny"), options, [&](RankContext& rank) {
    TrainingOptions mine = rank.model.options();
    if (apart) mine.sources = sources_of(mine);
    TrainingModel model(llama3("tiny"), mine, rank.device, &rank.halt);
    model.initialise(1);
    PlainStep plain(model, rank.device, {rank.communicator, rank.world, rank.dp_replicate}, deal(mine, uneven_rows(), rows_of_a_step));
    for (Step step{1}; step <= Step{3}; ++step) numbers[rank.rank].push_back(plain.run(EpochId{1}, step, rate));
  });
  return numbers;
}

std::vector<LossSum> sums_of(const std::vector<Steps>& ranks, std::size_t step) {
  std::vector<LossSum> sums(sources);
  for (const Steps& rank : ranks)
    for (std::size_t s = 0; s < sources; ++s) {
      sums[s].loss += rank[step].sources.at(s).loss;
      sums[s].tokens += rank[step].sources.at(s).tokens;
    }
  return sums;
}

TEST(SourceLosses, AreThoseOfAutogradInFp64) {
  TrainingOptions options = cut(1, 2, 4);
  options.compute = DType::f64;
  options.sources = sources_of(options);
  on_ranks(llama3("tiny"), options, [&](RankContext& rank) {
    std::map<std::string, torch::Tensor> parameters;
    for (const StateTensor& state : rank.model.state()) {
      if (!state.model) continue;
      const std::vector<std::int64_t> sizes(state.global_shape.size.begin(), state.global_shape.size.begin() + state.global_shape.rank);
      parameters[state.name] = torch::from_blob(state.view.data, sizes, torch::kFloat32).to(torch::kFloat64);
    }
    std::vector<double> losses(sources, 0), tokens(sources, 0);
    for (std::uint64_t row = 0; row < rows_of_a_step; ++row) {
      std::vector<std::int32_t> ids(16), labels(16);
      uneven_rows()(Step{1}, row, ids, labels);
      const auto tensor = [](std::vector<std::int32_t>& values) { return torch::from_blob(values.data(), {1, 16}, torch::kInt32).to(torch::kInt64); };
      losses[source_of(Step{1}, row)] += reference_loss(rank.model.description(), parameters, tensor(ids), tensor(labels)).item<double>();
      tokens[source_of(Step{1}, row)] += static_cast<double>(16 - row);
    }
    PlainStep plain(rank.model, rank.device, rank.communicator, deal(rank.model.options(), uneven_rows(), rows_of_a_step));
    const StepNumbers found = plain.run(EpochId{1}, Step{1}, rate);
    ASSERT_EQ(found.sources.size(), sources);
    for (std::size_t s = 0; s < sources; ++s) {
      EXPECT_NEAR(found.sources[s].loss / losses[s], 1, 1e-12) << "source " << s;
      EXPECT_EQ(found.sources[s].tokens, tokens[s]) << "source " << s;
    }
  });
}

TEST(SourceLosses, AreTheSameHoweverTheBatchIsCut) {
  const auto whole = train_apart(cut(1, 1, 8));
  for (const TrainingOptions& other : {cut(1, 4, 2), cut(1, 8, 1), cut(2, 2, 2), cut(4, 1, 2), cut(2, 1, 2, 2)}) {
    const auto found = train_apart(other);
    for (std::size_t step = 0; step < 3; ++step) {
      const auto sums = sums_of(found, step), expected = sums_of(whole, step);
      double loss = 0, tokens = 0;
      for (std::size_t s = 0; s < sources; ++s) {
        EXPECT_NEAR(sums[s].loss / expected[s].loss, 1, 1e-5);
        EXPECT_EQ(sums[s].tokens, expected[s].tokens);
        loss += sums[s].loss;
        tokens += sums[s].tokens;
      }
      const Verdict& verdict = found.front()[step].verdict;
      EXPECT_EQ(tokens, verdict.tokens);
      EXPECT_NEAR(loss / (verdict.mean_loss * verdict.tokens), 1, 1e-12);
    }
  }
}

TEST(SourceLosses, CountingThemChangesNoBitOfTheTraining) {
  const auto apart = train_apart(cut(2, 2, 2)), together = train_apart(cut(2, 2, 2), false);
  for (std::size_t step = 0; step < 3; ++step) {
    EXPECT_EQ(apart[0][step].verdict.mean_loss, together[0][step].verdict.mean_loss);
    EXPECT_EQ(apart[0][step].verdict.grad_norm, together[0][step].verdict.grad_norm);
    EXPECT_TRUE(together[0][step].sources.empty());
  }
}

}  // namespace
}  // namespace troupe::test
