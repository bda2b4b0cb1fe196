#include "src/metrics/logged_metrics.hpp"

#include <cmath>
#include <string>
#include <utility>

namespace troupe {
namespace {

constexpr double gibibyte = 1073741824.0;

}  // namespace

std::optional<LoggedMetrics> LogWindow::add(const StepMetrics& metrics) {
  tokens_ += metrics.step_tokens;
  ++open_.steps;
  open_.seconds += metrics.step_seconds;
  open_.wait_batch_seconds += metrics.wait_batch_seconds;
  open_.wait_weights_seconds += metrics.wait_weights_seconds;
  open_.wait_gradients_seconds += metrics.wait_gradients_seconds;
  open_.wait_snapshots_seconds += metrics.wait_snapshots_seconds;
  const bool first = !std::exchange(any_, true);
  if (!first && metrics.step.value() % log_freq_ != 0) return std::nullopt;
  LoggedMetrics logged = std::exchange(open_, {});
  logged.step = metrics;
  logged.tps = tokens_per_second(std::exchange(tokens_, 0), logged.seconds, metrics.ranks);
  return logged;
}

std::vector<Scalar> scalars_of(const LoggedMetrics& logged, const DeviceRates& rates) {
  const StepMetrics& m = logged.step;
  const Utilisation used = utilisation(rates, logged.tps);
  const auto steps = static_cast<double>(logged.steps);
  const double memory = static_cast<double>(m.arena_peak_bytes);
  std::vector<Scalar> scalars{{"loss_metrics/global_avg_loss", m.loss},
                              {"loss_metrics/global_max_loss", m.max_loss},
                              {"grad_norm", m.grad_norm},
                              {"throughput(tps)", logged.tps},
                              {"tflops", used.tflops},
                              {"tflops_causal", used.tflops_causal},
                              {"time_metrics/end_to_end(s)", logged.seconds / steps},
                              {"time_metrics/data_loading(s)", logged.wait_batch_seconds / steps},
                              {"memory/max_active(GiB)", memory / gibibyte},
                              {"memory/max_reserved(GiB)", memory / gibibyte},
                              {"n_tokens_seen", static_cast<double>(m.total_tokens)},
                              {"lr", m.learning_rate},
                              {"wait/batches(s)", logged.wait_batch_seconds / steps},
                              {"wait/weights(s)", logged.wait_weights_seconds / steps},
                              {"wait/gradients(s)", logged.wait_gradients_seconds / steps},
                              {"wait/snapshots(s)", logged.wait_snapshots_seconds / steps}};
  const auto share = [&scalars](const char* tag, double part, double of) {
    if (of > 0) scalars.push_back({tag, 100.0 * part / of});
  };
  share("time_metrics/data_loading(%)", logged.wait_batch_seconds, logged.seconds);
  share("memory/max_active(%)", memory, static_cast<double>(rates.memory_bytes));
  share("memory/max_reserved(%)", memory, static_cast<double>(rates.memory_bytes));
  for (const auto& [tag, value] : {std::pair{"mfu(%)", used.mfu}, std::pair{"mfu_causal(%)", used.mfu_causal}, std::pair{"mfu_fp8(%)", used.mfu_fp8}})
    if (!std::isnan(value)) scalars.push_back({tag, value});
  for (std::size_t i = 0; i < m.sources.size(); ++i)
    if (m.sources[i].tokens > 0) scalars.push_back({"loss_metrics/source_" + std::to_string(i + 1) + "_loss", m.sources[i].loss});
  return scalars;
}

std::vector<Scalar> validation_scalars(const StepMetrics& m, const DeviceRates& rates) {
  const double memory = static_cast<double>(m.arena_peak_bytes);
  std::vector<Scalar> scalars{{"validation_metrics/loss", m.validation_loss},
                              {"validation_metrics/throughput(tps)", tokens_per_second(m.validation_tokens, m.validation_seconds, m.ranks)}};
  for (const char* kind : {"max_active", "max_reserved"}) {
    const std::string tag = std::string("validation_metrics/memory/") + kind;
    scalars.push_back({tag + "(GiB)", memory / gibibyte});
    if (rates.memory_bytes > 0) scalars.push_back({tag + "(%)", 100.0 * memory / static_cast<double>(rates.memory_bytes)});
  }
  return scalars;
}

}  // namespace troupe
