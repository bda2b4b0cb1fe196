#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/model/family_llama3.hpp"
#include "tests/cuda/course.hpp"
#include "tests/model/ranks.hpp"

// Whole training steps of one rank on a GPU, against the same steps on the CPU.
namespace troupe::test {
namespace {

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
  const TrainingOptions options = small_options(precision.compute, precision.float8);
  Devices devices;
  const Course cpu = train_on(*devices.cpu, model, options), gpu = train_on(*devices.gpu, model, options);
  for (std::size_t i = 0; i < cpu.losses.size(); ++i) {
    std::printf("step %zu: loss %.6f on the CPU, %.6f on the GPU; gradient norm %.5f, %.5f\n", i + 1, cpu.losses[i], gpu.losses[i], cpu.norms[i], gpu.norms[i]);
    EXPECT_NEAR(gpu.losses[i], cpu.losses[i], precision.tolerance * cpu.losses[i]) << "step " << i + 1;
  }
  EXPECT_LT(gpu.losses.back(), gpu.losses.front());
}

TEST_P(CudaModel, RepeatsItselfBitForBitWhereThatIsAsked) {
  const Precision& precision = GetParam();
  const ModelDescription model = llama3("quickstart");
  const TrainingOptions options = small_options(precision.compute, precision.float8);
  Devices devices({.deterministic = true});
  const Course first = train_on(*devices.gpu, model, options, {.steps = 4}), second = train_on(*devices.gpu, model, options, {.steps = 4});
  EXPECT_EQ(first.losses, second.losses);
  EXPECT_TRUE(first.state == second.state) << "masters, moments or step counts differ";
}

}  // namespace
}  // namespace troupe::test
