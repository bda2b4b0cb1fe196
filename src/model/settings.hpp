#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/base/schema.hpp"

namespace troupe {

/// [model]: which family and flavour, and sizes that replace the flavour's own.
struct ModelSettings {
  std::string name = "llama3";
  std::string flavor = "debugmodel";
  std::vector<std::string> converters;  ///< "float8" switches [float8] on
  std::optional<std::int64_t> dim, n_layers, n_heads, n_kv_heads, vocab_size, ffn_hidden, multiple_of;
  std::optional<double> ffn_dim_multiplier, norm_eps, rope_theta;
  std::optional<bool> tied_embeddings;
  [[nodiscard]] bool float8() const noexcept {
    for (const auto& converter : converters) {
      if (converter == "float8" || converter == "quantize.linear.float8") return true;
    }
    return false;
  }
};

inline void describe(Schema& schema, ModelSettings& s) {
  schema.section("model", "Which model, and sizes that replace its flavour's own.");
  schema.key("name", &s.name, KeyClass::frozen, "family of the model").one_of({"llama3"}, "other families are not available in this version");
  schema.key("flavor", &s.flavor, KeyClass::frozen, "row of the family's table of sizes; an unknown one is refused with the list");
  schema.key("converters", &s.converters, KeyClass::epoch, "what is applied to the model; \"float8\" switches [float8] on")
      .one_of({"float8", "quantize.linear.float8"}, "other converters are not available in this version")
      .or_single();
  schema.key("dim", &s.dim, KeyClass::frozen, "width of the residual stream").at_least(1);
  schema.key("n_layers", &s.n_layers, KeyClass::frozen, "number of blocks").at_least(1);
  schema.key("n_heads", &s.n_heads, KeyClass::frozen, "query heads").at_least(1);
  schema.key("n_kv_heads", &s.n_kv_heads, KeyClass::frozen, "key and value heads; divides n_heads").at_least(1);
  schema.key("vocab_size", &s.vocab_size, KeyClass::frozen, "rows of the embedding; unset: the tokenizer's").at_least(1).at_most(2147483647);
  schema.key("ffn_hidden", &s.ffn_hidden, KeyClass::frozen, "width of the feed-forward part; unset: 2·4·dim/3 × ffn_dim_multiplier, rounded up to multiple_of")
      .at_least(1);
  schema.key("multiple_of", &s.multiple_of, KeyClass::frozen, "the feed-forward width is a multiple of this").at_least(1);
  schema.key("ffn_dim_multiplier", &s.ffn_dim_multiplier, KeyClass::frozen, "factor of the feed-forward width").above(0);
  schema.key("norm_eps", &s.norm_eps, KeyClass::frozen, "epsilon of the RMS norms").above(0);
  schema.key("rope_theta", &s.rope_theta, KeyClass::frozen, "base of the rotary frequencies").above(0);
  schema.key("tied_embeddings", &s.tied_embeddings, KeyClass::frozen, "the head shares the embedding's weights");
  schema.ignored("print_after_conversion", "the model's units and sizes are always printed at start");
  schema.ignored("tokenizer_path", "tokens are bytes in this version").alias("model.hf_assets_path");
}

/// [float8]: what model.converters = ["float8"] does. Also spelled [quantize.linear.float8].
struct Float8Settings {
  bool enable_fsdp_float8_all_gather = false;
  bool precompute_float8_dynamic_scale_for_fsdp = false;
  std::optional<std::string> recipe_name;  ///< unset means tensorwise
  std::vector<std::string> filter_fqns;
  bool emulate = false;
};

inline void describe(Schema& schema, Float8Settings& s) {
  schema.section("float8", "FP8 linear layers, tensor-wise dynamic scaling; in force when model.converters holds \"float8\".");
  const auto alias = [](const char* leaf) { return std::string("quantize.linear.float8.") + leaf; };
  schema.key("enable_fsdp_float8_all_gather", &s.enable_fsdp_float8_all_gather, KeyClass::epoch, "gather fp8 weights as one byte a value")
      .alias(alias("enable_fsdp_float8_all_gather"));
  schema
      .key("precompute_float8_dynamic_scale_for_fsdp", &s.precompute_float8_dynamic_scale_for_fsdp, KeyClass::epoch,
           "no effect: where fp8 weights are gathered, all their scales are always computed together, with one all-reduce")
      .alias(alias("precompute_float8_dynamic_scale_for_fsdp"));
  schema.key("recipe_name", &s.recipe_name, KeyClass::epoch, "granularity of the scales; unset means tensorwise")
      .alias(alias("recipe_name"))
      .one_of({"tensorwise"}, "other recipes are not available in this version");
  schema.key("filter_fqns", &s.filter_fqns, KeyClass::epoch, "linear layers whose name contains one of these stay as they are")
      .alias(alias("filter_fqns"))
      .or_single();
  schema.key("emulate", &s.emulate, KeyClass::epoch, "no effect: fp8 products are emulated wherever the device has none, so always on a CPU")
      .alias(alias("emulate"));
  schema.ignored("force_recompute_fp8_weight_in_bwd", "the backward pass gathers its weights again in any case");
}

/// [training], what compute needs: batch, sequence, precision, clipping, length of the run.
struct TrainingSettings {
  std::int64_t local_batch_size = 8;    ///< rows of one micro-batch of one rank
  std::int64_t global_batch_size = -1;  ///< rows of a step over all ranks; -1: local_batch_size × data-parallel ranks
  std::int64_t seq_len = 2048;
  double max_norm = 1.0;
  std::int64_t steps = 10000;
  std::string mixed_precision_param = "bfloat16";
  std::string mixed_precision_reduce = "float32";
  std::string dtype = "float32";
};

inline void describe(Schema& schema, TrainingSettings& s) {
  schema.section("training", "The run: batches, precision, clipping, length, data.");
  schema.key("local_batch_size", &s.local_batch_size, KeyClass::epoch, "rows of one micro-batch on one rank").at_least(1).alias("training.batch_size");
  schema
      .key("global_batch_size", &s.global_batch_size, KeyClass::epoch,
           "rows of one step over all ranks, a multiple of local_batch_size × data-parallel ranks; -1: one micro-batch")
      .at_least(-1)
      .not_zero();
  schema.key("seq_len", &s.seq_len, KeyClass::frozen, "tokens of a row").at_least(1).at_most(16777216);
  schema.key("max_norm", &s.max_norm, KeyClass::live, "gradients are clipped to this global norm; 0: not at all").at_least(0);
  schema.key("steps", &s.steps, KeyClass::live, "the run ends after this step").at_least(1);
  schema.key("mixed_precision_param", &s.mixed_precision_param, KeyClass::epoch, "type of gathered weights and of activations").one_of({"bfloat16", "float32"});
  schema.key("mixed_precision_reduce", &s.mixed_precision_reduce, KeyClass::epoch, "type in which gradients are summed over ranks").one_of({"float32"});
  schema.key("dtype", &s.dtype, KeyClass::frozen, "type of the master weights and of the optimizer's state").one_of({"float32"});
  schema.ignored("compile", "operations are compiled ahead of time");
  schema.ignored("gc_freq", "there is no garbage collector");
  schema.ignored("gc_debug", "there is no garbage collector");
  schema.section("compile");
  schema.ignored("enable", "operations are compiled ahead of time");
  schema.ignored("components", "operations are compiled ahead of time");
  schema.ignored("backend", "operations are compiled ahead of time");
}

}  // namespace troupe
