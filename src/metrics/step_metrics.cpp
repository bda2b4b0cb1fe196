#include "src/metrics/step_metrics.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

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

Utilisation utilisation(const DeviceRates& rates, double tps) noexcept {
  const auto percent = [tps](double flops, double peak) { return peak > 0 ? 100.0 * flops * tps / peak : std::numeric_limits<double>::quiet_NaN(); };
  return {.tflops = rates.flops_per_token * tps / 1e12,
          .tflops_causal = rates.flops_per_token_causal * tps / 1e12,
          .mfu = percent(rates.flops_per_token, rates.peak_flops),
          .mfu_causal = percent(rates.flops_per_token_causal, rates.peak_flops),
          .mfu_fp8 = percent(rates.flops_per_token, rates.peak_flops_fp8)};
}

std::string metrics_line(const StepMetrics& m, const DeviceRates& rates) {
  const double tps = tokens_per_second(m.step_tokens, m.step_seconds, m.ranks);
  std::string validation;
  if (m.validation_tokens > 0)
    validation = fmt::format(R"(,"validation_loss":{},"validation_tokens":{},"validation_seconds":{})", json_number(m.validation_loss), m.validation_tokens,
                             json_number(m.validation_seconds));
  const Utilisation used = utilisation(rates, tps);
  std::string losses, tokens;
  for (const StepMetrics::Source& source : m.sources) {
    losses += (losses.empty() ? "" : ",") + json_number(source.loss);
    tokens += (tokens.empty() ? "" : ",") + std::to_string(source.tokens);
  }
  const std::string sources = m.sources.empty() ? "" : fmt::format(R"(,"source_loss":[{}],"source_tokens":[{}])", losses, tokens);
  return fmt::format(R"({{"step":{},"loss":{},"grad_norm":{},"lr":{},"tokens":{},"tps":{},"step_seconds":{},"epoch":{},"outcome":"{}","digest":"{:016x}",)"
                     R"("step_tokens":{},"max_loss":{},)",
                     m.step.value(), json_number(m.loss), json_number(m.grad_norm), json_number(m.learning_rate), m.total_tokens, json_number(tps),
                     json_number(m.step_seconds), m.epoch.value(), outcome_name(m.outcome), m.digest, m.step_tokens, json_number(m.max_loss)) +
         fmt::format(R"("tflops":{},"tflops_causal":{},"mfu":{},"mfu_causal":{},"mfu_fp8":{},)", json_number(used.tflops), json_number(used.tflops_causal),
                     json_number(used.mfu), json_number(used.mfu_causal), json_number(used.mfu_fp8)) +
         fmt::format(R"("wait_batch_seconds":{},"wait_weights_seconds":{},"wait_gradients_seconds":{},"wait_snapshots_seconds":{},"arena_peak_bytes":{},)"
                     R"("bytes_gathered":{},"bytes_reduced":{},"non_finite":{},"float8_saturated":{},"float8_non_finite":{}{}{}}})",
                     json_number(m.wait_batch_seconds), json_number(m.wait_weights_seconds), json_number(m.wait_gradients_seconds),
                     json_number(m.wait_snapshots_seconds), m.arena_peak_bytes, m.bytes_gathered, m.bytes_reduced, m.non_finite, m.float8_saturated,
                     m.float8_non_finite, sources, validation);
}

}  // namespace troupe
