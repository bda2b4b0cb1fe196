#pragma once
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <vector>

#include "src/device/cached_attention.hpp"
#include "src/device/device.hpp"
#include "src/model/training_model.hpp"

namespace troupe {

struct GenerateOptions {
  std::uint32_t count = 100;  ///< the most tokens to add
  double temperature = 0;     ///< 0: always the likeliest (greedy)
  double top_p = 1;           ///< the likeliest tokens that hold this much of the probability are drawn from; 1: all
  std::uint64_t seed = 0;
  std::vector<std::int32_t> stop_tokens = {};   ///< each ends the text, as its last token
  std::function<void(std::int32_t)> told = {};  ///< each new token, as soon as it is drawn
};

/// Continues `prompt` (at least one token) with the weights of `model`, which holds the whole state (world 1), token by token: keys and
/// values of the tokens before are kept, so that each new token costs one pass over the weights. Returns the new tokens. The same seed gives the same
/// tokens. In the model's own precision. Blocks. Throws std::invalid_argument if the prompt is empty or has a token outside the vocabulary,
/// or top_p is not in (0, 1]. `attention` is that of `device`.
[[nodiscard]] std::vector<std::int32_t> generate(TrainingModel& model, Device& device, CachedAttention& attention, std::span<const std::int32_t> prompt,
                                                 const GenerateOptions& options);

/// Logits that follow the last of `tokens`, on the host; what `generate` draws its first token from. Blocks; throws as `generate`.
[[nodiscard]] std::vector<double> next_logits(TrainingModel& model, Device& device, CachedAttention& attention, std::span<const std::int32_t> tokens);

/// Draws from softmax(logits / temperature), cut to top_p, with one uniform number in [0, 1). Of equal logits the first wins.
[[nodiscard]] std::int32_t draw_token(std::span<const double> logits, double temperature, double top_p, double uniform);

}  // namespace troupe
