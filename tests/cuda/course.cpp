#include "tests/cuda/course.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/model/ranks.hpp"

namespace troupe::test {
namespace {

std::vector<std::byte> bytes_on(Device& device, const StateTensors& tensors) {
  std::vector<std::byte> all;
  for (const StateTensor& tensor : tensors) {
    const std::size_t at = all.size();
    all.resize(at + tensor.view.bytes());
    device.download_now(bytes_of(tensor.view), std::span(all).subspan(at));
  }
  return all;
}

/// Rows as `deal`'s, and where documents are told apart their begins: three to a row, of uneven lengths.
PlainStep::Load load_for(const TrainingOptions& options, std::int32_t vocabulary) {
  return [of_batch = deal(options, markov_rows(vocabulary)), options](Step step, Micro micro, std::span<std::byte> batch) {
    of_batch(step, micro, batch);
    if (!options.batch.documents) return;
    auto* const starts = reinterpret_cast<std::int32_t*>(batch.data()) + 2 * options.batch.tokens();
    const auto length = static_cast<std::int32_t>(options.batch.seq_len);
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(options.batch.tokens()); ++i) {
      const std::int32_t at = i % length;
      starts[i] = at < length / 5 ? 0 : at < length * 3 / 4 ? length / 5 : length * 3 / 4;
    }
  };
}

}  // namespace

TrainingOptions small_options(DType compute, bool float8) {
  TrainingOptions options;
  options.batch = {2, 64};
  options.micro_batches = 2;
  options.compute = compute;
  options.float8 = {.enable = float8, .filter_fqns = {"output"}, .all_gather = true};
  return options;
}

Course train_on(Device& device, const ModelDescription& model, const TrainingOptions& options, const CourseOptions& course) {
  Alone meeting;
  const std::unique_ptr<Communicator> alone = device.host_visible() ? std::make_unique<Alone>() : plugin().open_communicator("dp_shard", device, meeting);
  const std::unique_ptr<Buffer> halt = device.allocate(sizeof(HaltWord), Placement::host);
  TrainingModel training(model, options, device, new (halt->bytes().data()) HaltWord(0));
  training.initialise(1);
  EXPECT_EQ(training.allocated_bytes(), training.estimate().resident_bytes());
  PlainStep plain(training, device, *alone, load_for(options, static_cast<std::int32_t>(model.vocab_size)));
  Course run;
  run.arena = training.estimate().tapes.arena_bytes;
  for (Step step{1}; step.value() <= course.steps; ++step) {
    const StepNumbers numbers = plain.run(EpochId{1}, step, course.learning_rate);
    EXPECT_EQ(numbers.verdict.outcome, VerdictOutcome::commit) << "step " << step.value();
    run.losses.push_back(numbers.verdict.mean_loss);
    run.norms.push_back(numbers.verdict.grad_norm);
    run.activations = numbers.verdict.activations;
    run.weights = numbers.verdict.weights;
    if (course.evaluates && step.value() % 2 == 0) run.evaluations.push_back(plain.evaluate(step, 2).evaluation_loss);
    if (course.after) course.after(step.value());
  }
  run.state = bytes_on(device, training.state());
  run.averages = bytes_on(device, training.averages());
  return run;
}

double apart(double found, double expected) { return std::abs(found / expected - 1); }

double apart(const std::vector<std::byte>& found, const std::vector<std::byte>& expected) {
  EXPECT_EQ(found.size(), expected.size());
  double difference = 0, size = 0;
  for (std::size_t i = 0; i + sizeof(float) <= std::min(found.size(), expected.size()); i += sizeof(float)) {
    float a = 0, b = 0;
    std::memcpy(&a, found.data() + i, sizeof a);
    std::memcpy(&b, expected.data() + i, sizeof b);
    difference += (static_cast<double>(a) - static_cast<double>(b)) * (static_cast<double>(a) - static_cast<double>(b));
    size += static_cast<double>(b) * static_cast<double>(b);
  }
  return std::sqrt(difference / size);
}

}  // namespace troupe::test
