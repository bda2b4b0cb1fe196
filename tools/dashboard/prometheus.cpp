#include "tools/dashboard/prometheus.hpp"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

namespace troupe {
namespace {

using nlohmann::json;

class Text {
 public:
  void head(const char* name, const char* type, const char* help) { text_ += fmt::format("# HELP troupe_{0} {2}\n# TYPE troupe_{0} {1}\n", name, type, help); }
  void value(const char* name, const json& number, const std::string& labels = {}) {
    text_ += fmt::format("troupe_{}{} {}\n", name, labels, number.is_number() ? number.dump() : "NaN");
  }
  void one(const char* name, const char* type, const char* help, const json& number) {
    head(name, type, help);
    value(name, number);
  }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

struct OfStep {
  const char *name, *type, *help, *key;
};
constexpr std::array<OfStep, 10> of_step{{
    {"loss", "gauge", "Mean over the valid tokens of the global batch, of the newest step.", "loss"},
    {"grad_norm", "gauge", "Global norm of the gradients before clipping.", "grad_norm"},
    {"learning_rate", "gauge", "Used in the newest step.", "lr"},
    {"tokens_total", "counter", "Valid tokens since step 1.", "tokens"},
    {"tokens_per_second", "gauge", "Valid tokens a second and rank.", "tps"},
    {"step_seconds", "gauge", "Length of the newest step.", "step_seconds"},
    {"mfu_percent", "gauge", "Of the device's bf16 peak; NaN where that is unknown.", "mfu"},
    {"arena_peak_bytes", "gauge", "Planned device memory of a rank.", "arena_peak_bytes"},
    {"step_bytes_gathered", "gauge", "Moved by all-gathers in the newest step.", "bytes_gathered"},
    {"step_bytes_reduced", "gauge", "Moved by reduce-scatters in the newest step.", "bytes_reduced"},
}};

std::string rank_label(const json& rank) { return fmt::format("{{rank=\"{}\"}}", rank.get<std::uint32_t>()); }

}  // namespace

std::string prometheus_text(const std::string& view, const std::string& newest, std::uint64_t not_committed, const std::vector<StepTimes::Entry>& times) {
  Text text;
  const json job = json::parse(view).at("view"), step = newest.empty() ? json::object() : json::parse(newest);
  text.one("step", "gauge", "The newest step that all ranks have told of.", job.at("step"));
  text.one("last_step", "gauge", "The step that the run ends with.", job.at("last_step"));
  text.one("epoch", "gauge", "Of the runtime; a fault begins a new one.", job.at("epoch"));
  text.one("respawns_total", "counter", "Processes that were started again.", job.at("respawns"));
  text.one("rollbacks_total", "counter", "Times that training went back to an earlier state (training.guard).", job.at("rollbacks"));
  text.one("steps_not_committed_total", "counter", "Steps that were skipped or void.", not_committed);
  text.one("seconds_since_step", "gauge", "Since the newest step was told.", job.at("seconds_since_step"));
  for (const OfStep& metric : of_step)
    if (step.contains(metric.key)) text.one(metric.name, metric.type, metric.help, step[metric.key]);
  if (!step.empty()) {
    text.head("wait_seconds", "gauge", "How long compute stood idle in the newest step, the longest of a rank, by what it waited for.");
    for (const char* what : {"batch", "weights", "gradients", "snapshots"})
      text.value("wait_seconds", step.value(fmt::format("wait_{}_seconds", what), json()), fmt::format("{{for=\"{}\"}}", what));
  }
  if (step.contains("source_loss")) {
    const auto by_source = [&](const char* name, const char* help, const char* key) {
      text.head(name, "gauge", help);
      std::size_t source = 0;
      for (const json& number : step.at(key)) text.value(name, number, fmt::format("{{source=\"{}\"}}", ++source));
    };
    by_source("source_loss", "Mean over the valid tokens of the newest step that are of a source of the blend, by its place in training.dataset_path.",
              "source_loss");
    by_source("source_tokens", "Those tokens.", "source_tokens");
  }
  const json& ranks = job.at("ranks");
  const auto each = [&](const char* name, const char* help, const char* key) {
    text.head(name, "gauge", help);
    for (const json& rank : ranks) text.value(name, rank.at(key), rank_label(rank.at("rank")));
  };
  each("rank_step", "The step that a rank is at.", "step");
  each("rank_resident_bytes", "Resident memory of a rank's process.", "resident_bytes");
  each("rank_silent_seconds", "Since a rank was heard.", "silent_seconds");
  if (!times.empty()) {
    text.head("rank_step_seconds", "gauge", "Length of the newest step as a rank saw it.");
    for (const auto& [rank, length] : times.back().ranks)
      text.value("rank_step_seconds", static_cast<double>(length.count()) / 1e9, fmt::format("{{rank=\"{}\"}}", rank.value()));
  }
  return text.take();
}

}  // namespace troupe
