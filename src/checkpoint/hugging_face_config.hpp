#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "src/checkpoint/stored_type.hpp"
#include "src/model/model_description.hpp"

namespace troupe {

/// What Hugging Face's config.json says of a model, and we can say of ours.
struct ModelFacts {
  std::int64_t vocab_size = 0, hidden_size = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn_size = 0;
  double norm_eps = 1e-5, rope_theta = 10000;
  bool tied = false;
  std::optional<RotaryScaling> scaling;
  std::int64_t max_positions = 0;  ///< 0: not said
  std::optional<std::int64_t> bos;
  std::vector<std::int64_t> eos;  ///< each ends a text
};

/// Of a model whose blocks are named as llama3's are; the error names what it has not.
[[nodiscard]] Result<ModelFacts> facts_of(const ModelDescription& model);

/// Reads config.json's text. `file` stands in messages. Refuses what the family `family` cannot be: another architecture, biases, another
/// activation, an unknown kind of rope scaling, heads that do not divide.
[[nodiscard]] Result<ModelFacts> read_model_facts(const std::string& text, const std::string& family, const std::string& file);

/// The ids under eos_token_id of generation_config.json's text: what transformers' generate ends a text with, before those of config.json. Empty: none.
[[nodiscard]] std::vector<std::int64_t> stop_tokens_of_generation_config(const std::string& text);

/// One line for each fact in which they differ, with the key to set.
[[nodiscard]] std::vector<std::string> differences(const ModelFacts& ours, const ModelFacts& theirs);

/// The [model] section that makes ours like these.
[[nodiscard]] std::string model_section(const ModelFacts& facts, const std::string& family);

/// config.json for transformers.
[[nodiscard]] std::string write_model_facts(const ModelFacts& facts, const std::string& family, StoredType dtype);

}  // namespace troupe
