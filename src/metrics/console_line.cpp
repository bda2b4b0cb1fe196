#include "src/metrics/console_line.hpp"

#include <fmt/format.h>

#include <cmath>

namespace troupe {
namespace {

struct Palette {
  const char *red, *green, *orange, *turquoise, *blue, *cyan, *magenta, *reset;
};
constexpr Palette coloured{"\033[31m", "\033[32m", "\033[38;2;180;60;0m", "\033[38;2;54;234;195m", "\033[34m", "\033[36m", "\033[35m", "\033[39m"};
constexpr Palette plain{"", "", "", "", "", "", "", ""};

/// A NaN has a sign that means nothing.
double unsigned_nan(double value) { return std::isnan(value) ? std::nan("") : value; }

}  // namespace

std::string with_thousands(double value, int digits) {
  std::string text = fmt::format("{:.{}f}", value, digits);
  if (!std::isfinite(value)) return text;
  const std::size_t first = text.front() == '-' ? 1 : 0;
  for (std::size_t at = std::min(text.find('.'), text.size()); at > first + 3; at -= 3) text.insert(at - 3, 1, ',');
  return text;
}

std::optional<std::string> ConsoleReporter::add(const StepMetrics& metrics) {
  auto due = window_.add(metrics);
  if (!due) return std::nullopt;
  logged_ = *due;
  return line(metrics, logged_.tps);
}

std::string ConsoleReporter::memory(const StepMetrics& m) const {
  const auto bytes = static_cast<double>(m.arena_peak_bytes);
  const std::string share = rates_.memory_bytes > 0 ? fmt::format("({:.2f}%)", 100.0 * bytes / static_cast<double>(rates_.memory_bytes)) : std::string{};
  return fmt::format("{:5.2f}GiB", bytes / 1073741824.0) + share;
}

std::string ConsoleReporter::validation(const StepMetrics& m) const {
  const Palette& c = colour_ ? coloured : plain;
  return fmt::format("{}validate step: {:2}  {}loss: {:>7.4f}  {}memory: {}  {}tps: {}{}", c.orange, m.step.value(), c.green, unsigned_nan(m.validation_loss),
                     c.turquoise, memory(m), c.blue, with_thousands(tokens_per_second(m.validation_tokens, m.validation_seconds, m.ranks), 0), c.reset);
}

std::string ConsoleReporter::line(const StepMetrics& m, double tps) const {
  const Palette& c = colour_ ? coloured : plain;
  const Utilisation used = utilisation(rates_, tps);
  const std::string mfu = std::isnan(used.mfu) ? "N/A" : fmt::format("{:.2f}%", used.mfu);
  return fmt::format("{}step: {:2}  {}loss: {:>7.4f}  {}grad_norm: {:>7.4f}  {}memory: {}  {}tps: {}  {}tflops: {}  {}mfu: {}{}", c.red, m.step.value(),
                     c.green, unsigned_nan(m.loss), c.orange, unsigned_nan(m.grad_norm), c.turquoise, memory(m), c.blue, with_thousands(tps, 0), c.cyan,
                     with_thousands(used.tflops, 2), c.magenta, mfu, c.reset) +
         (m.outcome == VerdictOutcome::skip ? "  (skipped)" : "");
}

}  // namespace troupe
