#include "src/metrics/step_metrics.hpp"

#include <fmt/format.h>

#include <cmath>

namespace troupe {
namespace {

/// fmt's default for doubles is the shortest text that reads back exactly.
std::string json_number(double value) { return std::isfinite(value) ? fmt::format("{}", value) : "null"; }

std::string_view outcome_name(VerdictOutcome outcome) {
  switch (outcome) {
    case VerdictOutcome::commit: return "commit";
    case VerdictOutcome::skip: return "skip";
    case VerdictOutcome::void_: return "void";
  }
  return "?";
}

}  // namespace

double tokens_per_second(std::uint64_t tokens, double seconds, std::uint32_t ranks) noexcept {
  return seconds > 0 && ranks > 0 ? static_cast<double>(tokens) / seconds / ranks : 0;
}

std::string metrics_line(const StepMetrics& m, const DeviceRates& rates) {
  const double tps = tokens_per_second(m.step_tokens, m.step_seconds, m.ranks);
  return fmt::format(
      R"({{"step":{},"loss":{},"grad_norm":{},"lr":{},"tokens":{},"tps":{},"step_seconds":{},"epoch":{},"outcome":"{}","digest":"{:016x}","step_tokens":{},)"
      R"("tflops":{},"wait_batch_seconds":{},"arena_peak_bytes":{},"bytes_gathered":{},"bytes_reduced":{},"non_finite":{}}})",
      m.step.value(), json_number(m.loss), json_number(m.grad_norm), json_number(m.learning_rate), m.total_tokens, json_number(tps),
      json_number(m.step_seconds), m.epoch.value(), outcome_name(m.outcome), m.digest, m.step_tokens, json_number(rates.flops_per_token * tps / 1e12),
      json_number(m.wait_batch_seconds), m.arena_peak_bytes, m.bytes_gathered, m.bytes_reduced, m.non_finite);
}

}  // namespace troupe
