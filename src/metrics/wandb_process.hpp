#pragma once
#include <sys/types.h>

#include <filesystem>
#include <memory>
#include <string>

#include "src/base/result.hpp"
#include "src/metrics/metric_sink.hpp"

namespace troupe {

/// Weights & Biases through its own client in a Python process of its own (src/metrics/wandb_client.py, carried in this library), which is fed a
/// JSON line for each logged step; nothing waits for it (a slow one is behind by up to 16 MiB of lines, then loses some). The process goes on when a rank dies,
/// and ends by itself with its input. Online or offline is the client's business (WANDB_MODE, WANDB_API_KEY, WANDB_PROJECT, WANDB_TEAM, WANDB_RUN_NAME, …); a
/// resumed run goes on in the same W&B run.
class WandbProcess final : public MetricSink {
 public:
  struct Options {
    std::string python = "python3";    ///< program with the client installed; TROUPE_PYTHON names another
    std::filesystem::path run_folder;  ///< RUN/wandb holds the client's files, RUN/logs/wandb.log what it prints
    std::string config;                ///< the merged configuration, TOML
  };
  /// Starts it and waits until it says whether the client is there. The error names the command that installs it.
  [[nodiscard]] static Result<std::unique_ptr<WandbProcess>> start(const Options& options);
  WandbProcess(const WandbProcess&) = delete;
  WandbProcess& operator=(const WandbProcess&) = delete;
  ~WandbProcess() override;
  [[nodiscard]] Result<void> write(Step step, double wall_time, std::span<const Scalar> scalars) override;
  /// Ends its input and waits at most a minute for it to hand everything over.
  [[nodiscard]] Result<void> close() override;

 private:
  WandbProcess(pid_t pid, int input, std::filesystem::path log) : pid_(pid), input_(input), log_(std::move(log)) {}
  [[nodiscard]] Result<void> send(const std::string& line);
  [[nodiscard]] Result<void> flush();
  pid_t pid_;
  int input_;
  std::filesystem::path log_;
  std::string waiting_;  ///< what the pipe had no room for
  bool broken_ = false;
};

}  // namespace troupe
