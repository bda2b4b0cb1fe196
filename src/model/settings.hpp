#pragma once
#include <charconv>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/base/schema.hpp"

namespace troupe {

struct Extensions;

/// [model]: which family and flavour, and sizes that replace the flavour's own.
struct ModelSettings {
  std::string name = "llama3";
  std::string flavor = "debugmodel";
  std::vector<std::string> converters;  ///< "float8" switches [float8] on
  std::optional<std::string> hf_assets_path;
  std::optional<std::int64_t> dim, n_layers, n_heads, n_kv_heads, vocab_size, ffn_hidden, multiple_of;
  std::optional<double> ffn_dim_multiplier, norm_eps, rope_theta;
  std::optional<bool> tied_embeddings;
  std::optional<double> rope_scaling_factor;
  double rope_scaling_low_freq_factor = 1, rope_scaling_high_freq_factor = 4;
  std::int64_t rope_scaling_original_length = 8192;
  std::shared_ptr<const Extensions> extensions;  ///< of job.custom_import; not a key
  [[nodiscard]] bool float8() const noexcept {
    for (const auto& converter : converters) {
      if (converter == "float8" || converter == "quantize.linear.float8") return true;
    }
    return false;
  }
};

inline void describe(Schema& schema, ModelSettings& s) {
  schema.section("model", "Which model, and sizes that replace its flavour's own.");
  schema.key("name", &s.name, KeyClass::frozen, "family of the model").built_only({"llama3"}, "other families");
  schema.key("flavor", &s.flavor, KeyClass::frozen, "row of the family's table of sizes; an unknown one is refused with the list");
  schema.key("converters", &s.converters, KeyClass::epoch, "what is applied to the model; \"float8\" switches [float8] on")
      .one_of({"float8", "quantize.linear.float8", "mx", "quantize.linear.mx", "quantize.grouped_mm.float8", "quantize.grouped_mm.mx"})
      .built_only({"float8", "quantize.linear.float8"}, "other converters")
      .or_single();
  schema.key("dim", &s.dim, KeyClass::frozen, "width of the residual stream").at_least(1).at_most(1048576);
  schema.key("n_layers", &s.n_layers, KeyClass::frozen, "number of blocks").at_least(1).at_most(4096);
  schema.key("n_heads", &s.n_heads, KeyClass::frozen, "query heads").at_least(1).at_most(1048576);
  schema.key("n_kv_heads", &s.n_kv_heads, KeyClass::frozen, "key and value heads; divides n_heads").at_least(1).at_most(1048576);
  schema.key("vocab_size", &s.vocab_size, KeyClass::frozen, "rows of the embedding; unset: the tokenizer's").at_least(1).at_most(2147483647);
  schema.key("ffn_hidden", &s.ffn_hidden, KeyClass::frozen, "width of the feed-forward part; unset: 2·4·dim/3 × ffn_dim_multiplier, rounded up to multiple_of")
      .at_least(1)
      .at_most(4194304);
  schema.key("multiple_of", &s.multiple_of, KeyClass::frozen, "the feed-forward width is a multiple of this").at_least(1).at_most(4194304);
  schema.key("ffn_dim_multiplier", &s.ffn_dim_multiplier, KeyClass::frozen, "factor of the feed-forward width").above(0).at_most(64);
  schema.key("norm_eps", &s.norm_eps, KeyClass::frozen, "epsilon of the RMS norms").above(0);
  schema.key("rope_theta", &s.rope_theta, KeyClass::frozen, "base of the rotary frequencies").above(0);
  schema
      .key("rope_scaling_factor", &s.rope_scaling_factor, KeyClass::frozen,
           "long rotary wavelengths are divided by this (\"llama3\" of Hugging Face's rope_scaling; torchtitan 0.2.2 has 8 in every flavour); unset: none")
      .at_least(1);
  schema.key("rope_scaling_low_freq_factor", &s.rope_scaling_low_freq_factor, KeyClass::frozen, "wavelengths above original_length / this are divided in full")
      .above(0);
  schema.key("rope_scaling_high_freq_factor", &s.rope_scaling_high_freq_factor, KeyClass::frozen, "wavelengths below original_length / this stay").above(0);
  schema.key("rope_scaling_original_length", &s.rope_scaling_original_length, KeyClass::frozen, "context for which the frequencies were first trained")
      .at_least(1);
  schema.key("tied_embeddings", &s.tied_embeddings, KeyClass::frozen, "the head shares the embedding's weights");
  schema.ignored("print_after_conversion", false, "the model's units and sizes are always printed at start");
  schema
      .key("hf_assets_path", &s.hf_assets_path, KeyClass::frozen,
           "tokenizer: a folder with tokenizer.json or tokenizer.model, or one of these files; unset: tokens are bytes")
      .alias("model.tokenizer_path")
      .apart();
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
  schema.section("float8", "FP8 linear layers, dynamic scaling; in force when model.converters holds \"float8\". On a CPU the products are emulated.");
  const auto alias = [](const char* leaf) { return std::string("quantize.linear.float8.") + leaf; };
  schema.key("enable_fsdp_float8_all_gather", &s.enable_fsdp_float8_all_gather, KeyClass::epoch, "gather fp8 weights as one byte a value; tensor-wise only")
      .alias(alias("enable_fsdp_float8_all_gather"));
  schema
      .key("precompute_float8_dynamic_scale_for_fsdp", &s.precompute_float8_dynamic_scale_for_fsdp, KeyClass::epoch,
           "no effect: where fp8 weights are gathered, the scales of a unit's weights are always computed together, with one all-reduce")
      .alias(alias("precompute_float8_dynamic_scale_for_fsdp"));
  schema
      .key("recipe_name", &s.recipe_name, KeyClass::epoch,
           "granularity of the scales; unset means tensorwise; rowwise_with_gw_hp leaves weights' gradients in high precision")
      .alias(alias("recipe_name"))
      .one_of({"tensorwise", "rowwise", "rowwise_with_gw_hp"});
  schema
      .key("filter_fqns", &s.filter_fqns, KeyClass::epoch,
           "linear layers whose name contains one of these stay as they are; auto_filter_small_kn: and those too small to gain")
      .alias(alias("filter_fqns"))
      .or_single();
  schema.key("emulate", &s.emulate, KeyClass::epoch, "no effect: fp8 products are emulated wherever the device has none, so always on a CPU")
      .alias(alias("emulate"));
  schema.ignored("force_recompute_fp8_weight_in_bwd", false, "the backward pass gathers its weights again in any case")
      .alias(alias("force_recompute_fp8_weight_in_bwd"));
}

/// [training.guard]
struct GuardSettings {
  std::string nonfinite = "skip", spike = "rollback";
  double spike_factor = 0;
  std::int64_t spike_window = 64, rollback_steps = 10, rollbacks = 10;
  /// May training go back to an earlier state?
  [[nodiscard]] bool rolls_back() const { return nonfinite == "rollback" || (spike_factor > 0 && spike == "rollback"); }
};

inline void describe(Schema& schema, GuardSettings& s) {
  schema.section("training.guard", "What is watched in every step (docs/faults.md).");
  schema
      .key(
          "nonfinite", &s.nonfinite, KeyClass::live,
          "a step whose loss or gradients are not finite changes no weights; stop: the run ends with an error, skip: it goes on with the next batch, rollback: "
          "so it does, from an earlier state")
      .one_of({"stop", "skip", "rollback"});
  schema.key("spike_factor", &s.spike_factor, KeyClass::live, "a loss above so many times the median of the steps before is a spike; 0: none is").at_least(0);
  schema.key("spike_window", &s.spike_window, KeyClass::epoch, "steps of that median; before there are half as many nothing is a spike")
      .at_least(1)
      .at_most(1000000);
  schema.key("spike", &s.spike, KeyClass::live, "after a spike: rollback: go on with the next batch from an earlier state; stop: the run ends with an error")
      .one_of({"rollback", "stop"});
  schema
      .key("rollback_steps", &s.rollback_steps, KeyClass::epoch,
           "how many steps a rollback goes back, at least: to the newest snapshot in memory (elastic.memory_interval) or checkpoint that is so old, else to "
           "where the run began")
      .at_least(1)
      .at_most(1000000);
  schema.key("rollbacks", &s.rollbacks, KeyClass::live, "more rollbacks than these end the run with an error").at_least(1).at_most(1000000);
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
  std::string weight_gradients = "float32";
  std::string dtype = "float32";
  std::string loss = "cross_entropy";
  GuardSettings guard;
  bool enable_cpu_offload = false;
};

inline void describe(Schema& schema, TrainingSettings& s) {
  schema.section("training", "The run: batches, precision, clipping, length, data.");
  schema.key("local_batch_size", &s.local_batch_size, KeyClass::epoch, "rows of one micro-batch on one rank")
      .at_least(1)
      .at_most(1048576)
      .alias("training.batch_size");
  schema
      .key("global_batch_size", &s.global_batch_size, KeyClass::epoch,
           "rows of one step over all ranks, in as many micro-batches as hold them; what does not divide is dealt in turn and the last "
           "micro-batch padded with ignored rows; -1: local_batch_size × data-parallel ranks")
      .at_least(-1)
      .at_most(1073741824)
      .not_zero();
  schema.key("seq_len", &s.seq_len, KeyClass::frozen, "tokens of a row").at_least(1).at_most(16777216);
  schema.key("max_norm", &s.max_norm, KeyClass::live, "gradients are clipped to this global norm; 0: not at all").at_least(0);
  schema.key("steps", &s.steps, KeyClass::live, "the run ends after this step").at_least(1);
  schema.key("mixed_precision_param", &s.mixed_precision_param, KeyClass::epoch, "type of gathered weights and of activations").one_of({"bfloat16", "float32"});
  schema.key("mixed_precision_reduce", &s.mixed_precision_reduce, KeyClass::epoch, "type in which gradients are summed over ranks").one_of({"float32"});
  schema
      .key(
          "weight_gradients", &s.weight_gradients, KeyClass::epoch,
          "type in which the backward pass leaves the gradients of matrices; bfloat16, as torchtitan's products do, takes half the memory and less time, where "
          "nothing is added to them: one rank and one micro-batch a step, training.mixed_precision_param = \"bfloat16\", no early_step_in_backward")
      .one_of({"bfloat16", "float32"});
  schema.key("dtype", &s.dtype, KeyClass::frozen, "type of the master weights and of the optimizer's state")
      .one_of({"bfloat16", "float32"})
      .built_only({"float32"}, "a pure bfloat16 state");
  schema.key("enable_cpu_offload", &s.enable_cpu_offload, KeyClass::epoch,
             "master weights and optimizer state of a rank lie in the host's memory, where the device's kernels reach them; on a CPU only the account "
             "that they stand in differs");
  schema.key("loss", &s.loss, KeyClass::frozen, "what is minimised: cross_entropy, or a loss that the library of job.custom_import has")
      .built_only({"cross_entropy"}, "other losses come from a library, job.custom_import");
  schema.ignored("gc_freq", 50, "there is no garbage collector");
  schema.ignored("gc_debug", false, "there is no garbage collector");
  const std::string compiled = "operations are compiled ahead of time";
  describe(schema, s.guard);
  schema.section("compile", "torch.compile.");
  schema.ignored("enable", false, compiled).alias("training.compile");
  schema.ignored("components", std::vector<std::string>{"model", "loss"}, compiled).or_single();
  schema.ignored("backend", "inductor", compiled);
}

/// [activation_checkpoint]: what a block keeps of its forward pass for its backward pass.
struct ActivationCheckpointSettings {
  std::string mode = "none";
  std::string selective_ac_option = "2";
  std::vector<std::string> per_op_sac_force_recompute_mm_shapes_by_fqns{"moe.router.gate"};
  double memory_budget = 0.5;
  bool visualize_memory_budget_pareto = false;
  std::optional<double> memory_limit_gib;
  /// The n of "every n-th block"; nothing: `selective_ac_option` is no positive integer.
  [[nodiscard]] std::optional<std::uint32_t> every_nth_block() const noexcept {
    std::uint32_t n = 0;
    const char* const end = selective_ac_option.data() + selective_ac_option.size();
    const auto [read, error] = std::from_chars(selective_ac_option.data(), end, n);
    return error == std::errc{} && read == end && n > 0 ? std::optional(n) : std::nullopt;
  }
};

inline void describe(Schema& schema, ActivationCheckpointSettings& s) {
  schema.section(
      "activation_checkpoint",
      "What a block keeps of its forward pass for the backward pass, and what it computes again. Results are the same bits in every mode; see docs/memory.md.");
  schema
      .key("mode", &s.mode, KeyClass::epoch,
           "none: all that backward reads is kept; full: of each block its input alone; selective: see selective_ac_option; memory_budget: the fastest within "
           "memory_budget; auto: the fastest that fits memory_limit_gib")
      .one_of({"none", "full", "selective", "memory_budget", "auto"});
  schema.key("selective_ac_option", &s.selective_ac_option, KeyClass::epoch,
             "op: attention and every other matrix product are kept; a number n, as a string: every n-th block computes all again, the others nothing");
  schema
      .key("per_op_sac_force_recompute_mm_shapes_by_fqns", &s.per_op_sac_force_recompute_mm_shapes_by_fqns, KeyClass::epoch,
           "with op: matrix products whose weight has the shape of one whose name contains one of these are computed again and not counted")
      .or_single();
  schema.key("memory_budget", &s.memory_budget, KeyClass::epoch, "mode memory_budget: part of the way from the memory of full (0) to that of none (1)")
      .at_least(0)
      .at_most(1);
  schema
      .key("memory_limit_gib", &s.memory_limit_gib, KeyClass::epoch,
           "mode auto: device memory that a rank may plan, state and slots included; unset: 90 % of what the device has, on a CPU no limit")
      .above(0);
  schema.key("visualize_memory_budget_pareto", &s.visualize_memory_budget_pareto, KeyClass::frozen,
             "write what each memory_budget costs and saves for this model into job.dump_folder/memory_budget_pareto (CSV, SVG), whatever the mode");
  schema.ignored("early_stop", false, "what is computed again is a list of operations, without more");
  schema.ignored("preserve_rng_state", true, "no operation draws random numbers");
  schema.ignored("determinism_check", "default", "operations repeat bit for bit");
  schema.ignored("debug", false, "the list of operations is the same in every step");
}

}  // namespace troupe
