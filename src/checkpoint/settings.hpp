#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/base/schema.hpp"

namespace troupe {

/// [checkpoint]
struct CheckpointSettings {
  bool enable = false;
  std::string folder = "checkpoint";
  std::int64_t interval = 500;
  bool last_save_model_only = true;
  std::int64_t keep_latest_k = 10;
  std::int64_t load_step = -1;
  bool enable_first_step_checkpoint = false;
};

inline void describe(Schema& schema, CheckpointSettings& s) {
  schema.section("checkpoint", "Sealed checkpoints: written beside, checked, then renamed into place.");
  schema.key("enable", &s.enable, KeyClass::live, "save, and resume from what was saved").alias("checkpoint.enable_checkpoint");
  schema.key("folder", &s.folder, KeyClass::frozen, "inside job.dump_folder").apart();
  schema.key("interval", &s.interval, KeyClass::live, "steps between saves").at_least(1);
  schema.key("last_save_model_only", &s.last_save_model_only, KeyClass::live, "the last save holds weights in place of all that a resume needs")
      .alias("checkpoint.model_weights_only");
  schema.key("keep_latest_k", &s.keep_latest_k, KeyClass::live, "older ones are deleted; 0: none; 1 would leave nothing if the newest were damaged")
      .at_least(0);
  schema.key("load_step", &s.load_step, KeyClass::frozen, "resume from this step; -1: the newest good one").at_least(-1).not_zero();
  schema.key("enable_first_step_checkpoint", &s.enable_first_step_checkpoint, KeyClass::frozen, "also save after step 1");
  using Text = std::optional<std::string>;
  schema.not_built("create_seed_checkpoint", false, "save the initial weights and end", "seed checkpoints");
  schema.not_built("export_dtype", "float32", "type of the weights of a last save of the model alone", "weights are saved as they are kept")
      .one_of({"float16", "bfloat16", "float32"});
  schema.ignored("async_mode", "disabled", "saving never stops the training: a copy is taken, and written while steps go on")
      .one_of({"disabled", "async", "async_with_pinned_mem"});
  schema.not_built("exclude_from_loading", std::vector<std::string>{}, "parts of the state that are not loaded", "all of the state is loaded").or_single();
  schema.not_built("initial_load_path", Text{}, "checkpoint to begin from", "a run begins from initial weights or its own checkpoints");
  schema.not_built("initial_load_model_only", true, "take the weights alone from there", "initial_load_path");
  schema.not_built("initial_load_in_hf", false, "that folder is Hugging Face's", "weights of Hugging Face").part_of("checkpoint.initial_load_path");
  schema.not_built("initial_load_in_hf_quantized", false, "its weights are quantized", "weights of Hugging Face").part_of("checkpoint.initial_load_path");
  schema.not_built("last_save_in_hf", false, "the last save is Hugging Face's", "weights of Hugging Face");
  schema.not_built("load_only", false, "resume, but save nothing", "a run that loads also saves");
  schema.ignored("enable_ft_dataloader_checkpoints", true, "the data's position is part of every checkpoint");
}

}  // namespace troupe
