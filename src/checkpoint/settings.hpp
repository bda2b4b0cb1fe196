#pragma once
#include <cstdint>
#include <string>

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
}

}  // namespace troupe
