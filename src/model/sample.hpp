#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "src/device/device.hpp"
#include "src/model/training_model.hpp"

namespace troupe {

struct SampleOptions {
  std::uint32_t count = 100;  ///< tokens to add
  double temperature = 1.0;   ///< 0: always the likeliest (greedy)
  std::uint64_t seed = 0;
  std::uint32_t context = 256;   ///< the most tokens that are looked back on
  std::int32_t stop_token = -1;  ///< ends the text; -1: none
};

/// Continues `prompt` (at least one token) with the weights of `model`, which holds the whole state (world 1). Returns the new tokens.
/// The same seed gives the same tokens. The whole context is computed for each token, in the model's own precision. Blocks; throws
/// std::invalid_argument if the prompt is empty or has a token outside the vocabulary.
[[nodiscard]] std::vector<std::int32_t> sample(TrainingModel& model, Device& device, std::span<const std::int32_t> prompt, const SampleOptions& options);

}  // namespace troupe
