#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "src/base/schema.hpp"

namespace troupe {

/// [metrics]. metrics.jsonl has every step, whatever log_freq says.
struct MetricsSettings {
  std::int64_t log_freq = 10;
  bool disable_color_printing = false;
  std::vector<std::int64_t> log_ranks{0};
  bool enable_tensorboard = false;
  std::string save_tb_folder = "tb";
  bool save_for_all_ranks = false;
  bool enable_wandb = false;
  double peak_flops = 0, peak_flops_fp8 = 0;
};

inline void describe(Schema& schema, MetricsSettings& s) {
  schema.section("metrics", "What is reported. metrics.jsonl has one line for every step in any case.");
  schema.key("log_freq", &s.log_freq, KeyClass::live, "steps between lines on the console; step 1 has one too").at_least(1).apart();
  schema.key("disable_color_printing", &s.disable_color_printing, KeyClass::live, "no colours on a terminal either").apart();
  schema
      .key("log_ranks", &s.log_ranks, KeyClass::frozen, "ranks whose log lines are shown on the console too; warnings and errors of all ranks are in any case")
      .at_least(0)
      .or_single()
      .apart();
  schema.key("enable_tensorboard", &s.enable_tensorboard, KeyClass::frozen, "write TensorBoard's event files").apart();
  schema.key("save_tb_folder", &s.save_tb_folder, KeyClass::frozen, "their folder, inside job.dump_folder").apart();
  schema.key("save_for_all_ranks", &s.save_for_all_ranks, KeyClass::frozen, "beside the job's numbers also each rank's own, in a folder rank_N of that")
      .apart();
  schema
      .key("enable_wandb", &s.enable_wandb, KeyClass::frozen,
           "report to Weights & Biases through its own client, in a Python process of its own; the client's variables (WANDB_MODE, WANDB_PROJECT, …) apply")
      .apart();
  schema
      .key("peak_flops", &s.peak_flops, KeyClass::frozen,
           "dense bf16 FLOP/s of one device, which mfu is a share of; 0: as the device's data sheet says, if it is known")
      .at_least(0.0)
      .apart();
  schema.key("peak_flops_fp8", &s.peak_flops_fp8, KeyClass::frozen, "the same in fp8, for mfu_fp8").at_least(0.0).apart();
}

}  // namespace troupe
