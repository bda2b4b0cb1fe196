#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "src/model/plain_step.hpp"
#include "src/model/training_model.hpp"
#include "tests/cuda/twin.hpp"

namespace troupe::test {

/// What steps of one rank came to.
struct Course {
  std::vector<double> losses, norms, evaluations;
  std::vector<std::byte> state;     ///< masters, moments, step counts
  std::vector<std::byte> averages;  ///< of the weights
  std::size_t arena = 0;            ///< planned bytes of activations and working memory
  Float8Counts activations, weights;
};

struct CourseOptions {
  std::uint64_t steps = 8;
  double learning_rate = 5e-3;
  bool evaluates = false;                              ///< after every other step
  std::function<void(std::uint64_t step)> after = {};  ///< each step, on the thread of the test
};

/// One rank's steps on `device`, in the order of the actors, on made-up text that can be learnt; weights from seed 1.
[[nodiscard]] Course train_on(Device& device, const ModelDescription& model, const TrainingOptions& options, const CourseOptions& course = {});

/// Two micro-batches of 2 × 64 tokens, in fp8 but for the head if `float8`.
[[nodiscard]] TrainingOptions small_options(DType compute, bool float8);

/// How one number lies from the other, relative.
[[nodiscard]] double apart(double found, double expected);
/// ‖a − b‖ / ‖b‖ of fp32 values.
[[nodiscard]] double apart(const std::vector<std::byte>& found, const std::vector<std::byte>& expected);

}  // namespace troupe::test
