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
  std::int64_t ffn_hidden = 0;  ///< width that replaces the rule's; 0: by the rule
  bool tied = false;            ///< the head is the embedding
  double rope_theta = 500000;
  double norm_eps = 1e-5;
};

/// What a run may set beside the flavour.
struct Llama3Options {
  std::optional<RotaryScaling> rope_scaling;
  bool depth_init = true;  ///< std of residual outputs by the layer's depth; false: by the number of layers
};

[[nodiscard]] const std::vector<Llama3Flavour>& llama3_flavours();
/// The error names the flavours that there are.
[[nodiscard]] Result<Llama3Flavour> llama3_flavour(std::string_view name);
/// int(2·4·dim/3), times the multiplier, rounded up to `multiple_of`.
[[nodiscard]] std::int64_t llama3_ffn_width(const Llama3Flavour& flavour);
/// Throws std::invalid_argument if heads do not divide dim, kv_heads do not divide heads, or a head is of odd width.
[[nodiscard]] ModelDescription describe_llama3(const Llama3Flavour& flavour, const Llama3Options& options = {});

}  // namespace troupe
