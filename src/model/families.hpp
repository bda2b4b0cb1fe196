#pragma once
#include <cstdint>
#include <optional>

#include "src/base/result.hpp"
#include "src/model/model_description.hpp"
#include "src/model/settings.hpp"

namespace troupe {

/// The `[model]` section as a table of units: the flavour's sizes with what the section replaces. `tokenizer_vocab` stands where the
/// section names no vocab_size. The error says which key cannot be and what can.
[[nodiscard]] Result<ModelDescription> describe_model(const ModelSettings& settings, std::optional<std::int64_t> tokenizer_vocab);

}  // namespace troupe
