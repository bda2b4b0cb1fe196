#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/schema.hpp"

namespace troupe {

/// [checkpoint]
struct CheckpointSettings {
  bool enable = false;
  std::string folder = "checkpoint";
  std::int64_t interval = 500;
  bool enable_first_step_checkpoint = false;
  bool last_save_model_only = true;
  std::string export_dtype = "float32";
  std::string async_mode = "disabled";
  bool last_save_ema = false;
  std::int64_t keep_latest_k = 10;
  std::int64_t load_step = -1;
  bool load_only = false;
  std::optional<std::string> initial_load_path;
  bool initial_load_model_only = true;
  bool initial_load_in_hf = false;
  bool initial_load_in_hf_quantized = false;
  std::int64_t initial_data_row = -1;
  bool last_save_in_hf = false;
  std::vector<std::string> exclude_from_loading;
  bool create_seed_checkpoint = false;
  bool skip_damaged = true;
  bool check_before_load = true;

  [[nodiscard]] bool saves() const noexcept { return enable && !load_only; }
  [[nodiscard]] bool waits_for_saves() const noexcept { return async_mode == "disabled"; }
  [[nodiscard]] bool excludes(std::string_view part) const { return std::ranges::find(exclude_from_loading, part) != exclude_from_loading.end(); }
};

inline void describe(Schema& schema, CheckpointSettings& s) {
  schema.section("checkpoint", "Sealed checkpoints: written beside, checked, then renamed into place.");
  schema.key("enable", &s.enable, KeyClass::live, "save, and resume from what was saved").alias("checkpoint.enable_checkpoint");
  schema.key("folder", &s.folder, KeyClass::frozen, "inside job.dump_folder").apart();
  schema.key("interval", &s.interval, KeyClass::live, "steps between saves; the last step is always saved").at_least(1);
  schema.key("enable_first_step_checkpoint", &s.enable_first_step_checkpoint, KeyClass::frozen, "also save after step 1");
  schema.key("last_save_model_only", &s.last_save_model_only, KeyClass::live, "the last save holds weights in place of all that a resume needs")
      .alias("checkpoint.model_weights_only");
  schema.key("export_dtype", &s.export_dtype, KeyClass::live, "type of the weights in a last save of the model alone")
      .one_of({"float16", "bfloat16", "float32"});
  schema
      .key(
          "async_mode", &s.async_mode, KeyClass::frozen,
          "disabled: no step begins until a checkpoint is sealed; async and async_with_pinned_mem, here the same: the state is copied beside the training into "
          "a slot of `snapshots` (pinned on a GPU) and written while steps go on, and only the next optimizer step waits for the copy")
      .one_of({"disabled", "async", "async_with_pinned_mem"});
  schema.key("last_save_ema", &s.last_save_ema, KeyClass::live,
             "the last save, where it holds weights alone, holds their moving averages (optimizer.ema_decay) in their place");
  schema.key("keep_latest_k", &s.keep_latest_k, KeyClass::live, "older ones are deleted; 0: none; 1 would leave nothing if the newest were damaged")
      .at_least(0);
  schema.key("load_step", &s.load_step, KeyClass::frozen, "resume from this step; -1: the newest good one").at_least(-1);
  schema.key("load_only", &s.load_only, KeyClass::frozen, "resume, but save nothing");
  schema
      .key("initial_load_path", &s.initial_load_path, KeyClass::frozen,
           "checkpoint of another run (its step-N, or the folder that holds them: the newest) to begin from while this run has none of its own; torchtitan's "
           "(with a .metadata) are read too, and Hugging Face's with initial_load_in_hf")
      .apart();
  schema.key("initial_load_in_hf", &s.initial_load_in_hf, KeyClass::frozen,
             "initial_load_path is a folder of Hugging Face (config.json, safetensors): its weights, at step 1; docs/huggingface.md");
  schema.key("initial_load_in_hf_quantized", &s.initial_load_in_hf_quantized, KeyClass::frozen,
             "its weights are fp8 (e4m3) with a scale for each block (NAME_scale_inv), as quantization_config says: they become fp32 as they are read");
  schema.key("initial_load_model_only", &s.initial_load_model_only, KeyClass::frozen,
             "take the weights alone from there, and begin at step 1; false: go on at its step with optimizer and data position");
  schema
      .key("initial_data_row", &s.initial_data_row, KeyClass::frozen,
           "row of the data with which a run begins that starts from initial_load_path; -1: that after the checkpoint's, or 0 with weights alone or from "
           "torchtitan")
      .at_least(-1);
  schema
      .key("exclude_from_loading", &s.exclude_from_loading, KeyClass::frozen,
           "parts that no load takes: optimizer (moments begin at zero), dataloader (data begins at row 0), lr_scheduler (the schedule begins at the first "
           "step), "
           "train_state (steps begin at 1; only with initial_load_path), model")
      .one_of({"model", "optimizer", "lr_scheduler", "dataloader", "train_state"})
      .or_single();
  schema.key("create_seed_checkpoint", &s.create_seed_checkpoint, KeyClass::frozen, "write the initial weights as the checkpoint of step 0 and end; one rank");
  schema.key("skip_damaged", &s.skip_damaged, KeyClass::frozen,
             "a damaged checkpoint is passed over for the next older one; false: the run stops and names it");
  schema.key("check_before_load", &s.check_before_load, KeyClass::frozen,
             "read all of a checkpoint before the ranks start; false: they check what they read, and a damaged piece ends the start");
  schema.key("last_save_in_hf", &s.last_save_in_hf, KeyClass::frozen,
             "the last save, where it holds weights alone, is also written as a folder that transformers loads: step-N-hf, beside it");
  schema.ignored("enable_ft_dataloader_checkpoints", true, "the data's position is part of every checkpoint");
}

}  // namespace troupe
