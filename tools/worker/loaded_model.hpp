#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "src/checkpoint/storage.hpp"
#include "src/device/cached_attention.hpp"
#include "src/device/device.hpp"
#include "src/model/training_model.hpp"
#include "src/tokenizer/tokenizer.hpp"

namespace troupe {

/// A model with weights, on one device.
struct LoadedModel {
  std::unique_ptr<Device> device;
  std::unique_ptr<TrainingModel> model;
  std::unique_ptr<CachedAttention> attention;
  std::int64_t longest = 0;                    ///< positions that it was trained for; 0: not said
  std::shared_ptr<const Tokenizer> tokenizer;  ///< null: tokens are bytes
  std::vector<std::int32_t> stop_tokens;       ///< what ends a text
};

/// From a sealed checkpoint (…/step-N: the model is that of its configuration) or a folder of Hugging Face (that of its config.json, in fp32).
/// `overrides`: keys of the configuration, "--section.key", "value", … Blocks. The error says what the folder is not, or what does not fit.
[[nodiscard]] Result<std::unique_ptr<LoadedModel>> load_model(const std::filesystem::path& folder, const std::vector<std::string>& overrides, Storage& storage);

}  // namespace troupe
