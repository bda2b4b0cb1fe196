// history_maker RUN STEPS: makes a run that has ended with a checkpoint look as if it had trained for STEPS steps: metrics.jsonl as the product writes it,
// and its newest checkpoint sealed as the one of step STEPS, so that `troupe train` goes on from there. For the tests in a browser.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "src/checkpoint/checkpoint_store.hpp"
#include "src/metrics/metrics_file.hpp"

namespace troupe {
namespace {

template <class T>
T checked(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}
void checked(const Result<void>& result) {
  if (!result) throw std::runtime_error(result.error().message);
}

constexpr std::uint64_t tokens_of_a_step = 64;

/// A loss that falls, with noise, and one spike at 77,777.
StepMetrics made_up(std::uint64_t step) {
  const double noise = static_cast<double>(step * 2654435761U % 1000) / 1000 - 0.5, x = static_cast<double>(step);
  StepMetrics metrics{.step = Step{step}, .epoch = EpochId{1}};
  metrics.loss = metrics.max_loss = step == 77777 ? 9.5 : 1.5 + 4 * std::exp(-x / 15000) + 0.2 * noise;
  metrics.grad_norm = 0.8 + 0.3 * noise;
  metrics.learning_rate = 1e-3 * (1 - x / 200000);
  metrics.step_tokens = tokens_of_a_step;
  metrics.total_tokens = step * tokens_of_a_step;
  metrics.ranks = 2;
  metrics.step_seconds = 0.004 + 0.001 * noise;
  metrics.digest = step * 0x9e3779b97f4a7c15U;
  metrics.arena_peak_bytes = 700'000;
  metrics.bytes_gathered = metrics.bytes_reduced = 100'000;
  return metrics;
}

void lengthen(const std::filesystem::path& run, Step last) {
  const auto storage = make_posix_storage();
  CheckpointStore store(run / "checkpoint", *storage);
  const FoundCheckpoint found = checked(store.open(checked(store.steps()).back()));
  RunPosition position = found.manifest.position;
  position.step = last;
  position.tokens = last.value() * tokens_of_a_step;
  const auto writing = store.writing_folder(position.step, position.epoch);
  std::filesystem::create_directories(writing);
  for (const SavedShard& shard : found.manifest.files) std::filesystem::copy_file(found.folder / shard.file, writing / shard.file);
  checked(store.seal(position, found.manifest.files));
  MetricsFile file = checked(MetricsFile::open(run / "metrics.jsonl", Step{0}, {}));
  for (std::uint64_t step = 1; step <= last.value(); ++step) checked(file.append(made_up(step)));
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    troupe::lengthen(argv[1], troupe::Step{std::strtoull(argv[2], nullptr, 10)});
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "history_maker: %s\n", problem.what());
    return 1;
  }
  return 0;
}
