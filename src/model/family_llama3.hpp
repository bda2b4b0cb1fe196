#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.hpp"
#include "src/model/model_description.hpp"

namespace troupe {

/// A row of the Llama 3 family's table. Sources: torchtitan `models/llama3`; docs of each flavour.
struct Llama3Flavour {
  std::string_view name;
  std::int64_t dim, layers, heads, kv_heads;
  double ffn_multiplier;  ///< 1: none
  std::int64_t multiple_of;
  std::int64_t vocab_size;
  bool tied = false;  ///< the head is the embedding
  double rope_theta = 500000;
  double norm_eps = 1e-5;
};

/// What a run may set beside the flavour.
struct Llama3Options {
  std::optional<std::int64_t> vocab_size;  ///< of the tokenizer; none: the flavour's
  std::optional<RotaryScaling> rope_scaling;
  bool depth_init = true;  ///< std of residual outputs by the layer's depth; false: by the number of layers
};

[[nodiscard]] const std::vector<Llama3Flavour>& llama3_flavours();
/// int(2·4·dim/3), times the multiplier, rounded up to `multiple_of`.
[[nodiscard]] std::int64_t llama3_ffn_width(const Llama3Flavour& flavour);
[[nodiscard]] ModelDescription describe_llama3(const Llama3Flavour& flavour, const Llama3Options& options);
/// The error names the flavours that there are.
[[nodiscard]] Result<ModelDescription> describe_llama3(std::string_view flavour, const Llama3Options& options = {});

}  // namespace troupe
