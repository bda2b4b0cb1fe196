#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/device/state_copies.hpp"
#include "src/model/family_llama3.hpp"
#include "src/model/plain_step.hpp"
#include "src/model/training_model.hpp"
#include "tests/cuda/twin.hpp"
#include "tests/model/ranks.hpp"

// Whole training steps of one rank on a GPU, against the same steps on the CPU.
namespace troupe::test {
namespace {

TrainingOptions options_of(DType compute, bool float8) {
  TrainingOptions options;
  options.batch = {2, 64};
  options.micro_batches = 2;
  options.compute = compute;
  options.float8 = {.enable = float8, .filter_fqns = {"output"}, .all_gather = true};
  return options;
}

struct Course {
  std::vector<double> losses, norms;
  std::vector<std::byte> state;
};

Course train_on(Device& device, const ModelDescription& model, const TrainingOptions& options, std::uint64_t steps) {
  Alone meeting;
  const std::unique_ptr<Communicator> alone = device.host_visible() ? std::make_unique<Alone>() : plugin().open_communicator("dp_shard", device, meeting);
  const std::unique_ptr<Buffer> halt = device.allocate(sizeof(HaltWord), Placement::host);
  TrainingModel training(model, options, device, new (halt->bytes().data()) HaltWord(0));
  training.initialise(1);
  EXPECT_EQ(training.allocated_bytes(), training.estimate().resident_bytes());
  PlainStep plain(training, device, *alone, deal(options, markov_rows(static_cast<std::int32_t>(model.vocab_size))));
  Course run;
  for (Step step{1}; step.value() <= steps; ++step) {
    const StepNumbers numbers = plain.run(EpochId{1}, step, 5e-3);
    EXPECT_EQ(numbers.verdict.outcome, VerdictOutcome::commit) << "step " << step.value();
    run.losses.push_back(numbers.verdict.mean_loss);
    run.norms.push_back(numbers.verdict.grad_norm);
  }
  for (const StateTensor& tensor : training.state()) {
    const std::size_t at = run.state.size();
    run.state.resize(at + tensor.view.bytes());
    device.download_now(bytes_of(tensor.view), std::span(run.state).subspan(at));
  }
  return run;
}

struct Precision {
  const char* name;
  DType compute;
  bool float8;
  double tolerance;  ///< of a loss
};

class CudaModel : public ::testing::TestWithParam<Precision> {};
INSTANTIATE_TEST_SUITE_P(Precisions, CudaModel,
                         ::testing::Values(Precision{"fp32", DType::f32, false, 2e-5}, Precision{"bf16", DType::bf16, false, 1e-2},
                                           Precision{"fp8", DType::bf16, true, 2e-2}),
                         [](const auto& test) { return test.param.name; });

TEST_P(CudaModel, LearnsAsTheCpuDoes) {
  const Precision& precision = GetParam();
  const ModelDescription model = llama3("quickstart");
  const TrainingOptions options = options_of(precision.compute, precision.float8);
  Devices devices;
  const Course cpu = train_on(*devices.cpu, model, options, 8), gpu = train_on(*devices.gpu, model, options, 8);
  for (std::size_t i = 0; i < cpu.losses.size(); ++i) {
    std::printf("step %zu: loss %.6f on the CPU, %.6f on the GPU; gradient norm %.5f, %.5f\n", i + 1, cpu.losses[i], gpu.losses[i], cpu.norms[i], gpu.norms[i]);
    EXPECT_NEAR(gpu.losses[i], cpu.losses[i], precision.tolerance * cpu.losses[i]) << "step " << i + 1;
  }
  EXPECT_LT(gpu.losses.back(), gpu.losses.front());
}

TEST_P(CudaModel, RepeatsItselfBitForBitWhereThatIsAsked) {
  const Precision& precision = GetParam();
  const ModelDescription model = llama3("quickstart");
  const TrainingOptions options = options_of(precision.compute, precision.float8);
  Devices devices({.deterministic = true});
  const Course first = train_on(*devices.gpu, model, options, 4), second = train_on(*devices.gpu, model, options, 4);
  EXPECT_EQ(first.losses, second.losses);
  EXPECT_TRUE(first.state == second.state) << "masters, moments or step counts differ";
}

}  // namespace
}  // namespace troupe::test
