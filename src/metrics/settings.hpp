#pragma once
#include <cstdint>

#include "src/base/schema.hpp"

namespace troupe {

/// [metrics]. metrics.jsonl has every step, whatever log_freq says.
struct MetricsSettings {
  std::int64_t log_freq = 10;
  bool disable_color_printing = false;
};

inline void describe(Schema& schema, MetricsSettings& s) {
  schema.section("metrics", "What is reported. metrics.jsonl has one line for every step in any case.");
  schema.key("log_freq", &s.log_freq, KeyClass::live, "steps between lines on the console; step 1 has one too").at_least(1).apart();
  schema.key("disable_color_printing", &s.disable_color_printing, KeyClass::live, "no colours on a terminal either").apart();
  schema.not_built("enable_tensorboard", false, "write TensorBoard's event files", "TensorBoard");
  schema.not_built("save_tb_folder", "tb", "folder of the event files, inside job.dump_folder", "TensorBoard").part_of("metrics.enable_tensorboard");
  schema.not_built("save_for_all_ranks", false, "event files of every rank", "TensorBoard").part_of("metrics.enable_tensorboard");
  schema.not_built("enable_wandb", false, "report to Weights & Biases", "Weights & Biases");
}

}  // namespace troupe
