#include "src/metrics/console_line.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace troupe {
namespace {

struct Palette {
  const char *red, *green, *orange, *turquoise, *blue, *cyan, *magenta, *reset;
};
constexpr Palette coloured{"\033[31m", "\033[32m", "\033[38;2;180;60;0m", "\033[38;2;54;234;195m", "\033[34m", "\033[36m", "\033[35m", "\033[39m"};
constexpr Palette plain{"", "", "", "", "", "", "", ""};

}  // namespace

std::string with_thousands(double value, int digits) {
  std::string text = fmt::format("{:.{}f}", value, digits);
  if (!std::isfinite(value)) return text;
  const std::size_t first = text.front() == '-' ? 1 : 0;
  for (std::size_t at = std::min(text.find('.'), text.size()); at > first + 3; at -= 3) text.insert(at - 3, 1, ',');
  return text;
}

std::optional<std::string> ConsoleReporter::add(const StepMetrics& metrics) {
  tokens_ += metrics.step_tokens;
  seconds_ += metrics.step_seconds;
  const bool first = !std::exchange(any_, true);
  if (!first && metrics.step.value() % static_cast<std::uint64_t>(settings_.log_freq) != 0) return std::nullopt;
  const double tps = tokens_per_second(std::exchange(tokens_, 0), std::exchange(seconds_, 0.0), metrics.ranks);
  return line(metrics, tps);
}

std::string ConsoleReporter::line(const StepMetrics& m, double tps) const {
  const Palette& c = colour_ ? coloured : plain;
  std::string memory = fmt::format("{:5.2f}GiB", static_cast<double>(m.arena_peak_bytes) / 1073741824.0);
  if (rates_.memory_bytes > 0) memory += fmt::format("({:.2f}%)", 100.0 * static_cast<double>(m.arena_peak_bytes) / static_cast<double>(rates_.memory_bytes));
  const double flops = rates_.flops_per_token * tps;
  const std::string mfu = rates_.peak_flops > 0 ? fmt::format("{:.2f}%", 100.0 * flops / rates_.peak_flops) : "N/A";
  return fmt::format("{}step: {:2}  {}loss: {:>7.4f}  {}grad_norm: {:>7.4f}  {}memory: {}  {}tps: {}  {}tflops: {}  {}mfu: {}{}", c.red, m.step.value(),
                     c.green, m.loss, c.orange, m.grad_norm, c.turquoise, memory, c.blue, with_thousands(tps, 0), c.cyan, with_thousands(flops / 1e12, 2),
                     c.magenta, mfu, c.reset) +
         (m.outcome == VerdictOutcome::skip ? "  (skipped)" : "");
}

}  // namespace troupe
