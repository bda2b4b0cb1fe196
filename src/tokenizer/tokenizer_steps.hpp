#pragma once
#include <vector>

#include "src/tokenizer/json_place.hpp"
#include "src/tokenizer/tokenizer.hpp"

/// The sections of a tokenizer.json before and after its model. Each throws JsonProblem, which names what is not supported and what is.
namespace troupe {

[[nodiscard]] std::vector<NormalizerStep> read_normalizer(const JsonPlace& section);
/// `byte_level`: the last step is the byte alphabet, which is left to the model.
[[nodiscard]] std::vector<PreTokenizerStep> read_pre_tokenizer(const JsonPlace& section, bool& byte_level);
[[nodiscard]] std::vector<DecoderStep> read_decoder(const JsonPlace& section);
/// Sets `before` and `after`.
void read_post_processor(const JsonPlace& section, TokenizerParts& parts);

}  // namespace troupe
