#include "tools/dashboard/metrics_history.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

namespace troupe {
namespace {

using nlohmann::json;
constexpr std::array<const char*, 6> names{"loss", "grad_norm", "tps", "step_seconds", "lr", "arena_peak_bytes"};

json number(double value) { return std::isfinite(value) ? json(value) : json(); }

}  // namespace

void MetricsHistory::read_on() {
  std::error_code problem;
  const auto size = std::filesystem::file_size(file_, problem);
  if (problem) return;
  if (size < reached_) {  // cut: a run that resumed from an earlier checkpoint
    reached_ = 0;
    steps_.clear();
    for (auto& column : values_) column.clear();
    newest_.clear();
    not_committed_ = 0;
  }
  std::ifstream in(file_, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(reached_));
  for (std::string line; std::getline(in, line) && !in.eof();) {  // at the end of the file a line is not whole
    reached_ += line.size() + 1;
    take(line);
  }
}

void MetricsHistory::take(const std::string& line) {
  const json read = json::parse(line, nullptr, false);
  if (!read.is_object() || !read.contains("step")) return;
  steps_.push_back(read["step"].get<std::uint64_t>());
  for (std::size_t i = 0; i < columns; ++i) {
    const auto found = read.find(names[i]);
    values_[i].push_back(found != read.end() && found->is_number() ? found->get<double>() : std::numeric_limits<double>::quiet_NaN());
  }
  if (read.value("outcome", "commit") != "commit") ++not_committed_;
  newest_ = line;
}

std::string MetricsHistory::newest() {
  const std::lock_guard lock(mutex_);
  read_on();
  return newest_;
}

std::uint64_t MetricsHistory::not_committed() {
  const std::lock_guard lock(mutex_);
  return not_committed_;
}

std::string MetricsHistory::chart_json(std::size_t points) {
  const std::lock_guard lock(mutex_);
  read_on();
  const std::size_t count = steps_.size(), buckets = std::min(count, std::max<std::size_t>(points, 1));
  json told{{"steps", count}, {"first", count > 0 ? steps_.front() : 0}, {"last", count > 0 ? steps_.back() : 0}};
  json steps = json::array();
  std::array<json, columns> mean, least, most;
  for (std::size_t i = 0; i < columns; ++i) mean[i] = least[i] = most[i] = json::array();
  for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
    const std::size_t from = bucket * count / buckets, until = (bucket + 1) * count / buckets;
    steps.push_back(steps_[until - 1]);
    for (std::size_t i = 0; i < columns; ++i) {
      double sum = 0, low = std::numeric_limits<double>::infinity(), high = -low;
      std::size_t finite = 0;
      for (std::size_t k = from; k < until; ++k) {
        const double value = values_[i][k];
        if (!std::isfinite(value)) continue;
        sum += value;
        low = std::min(low, value);
        high = std::max(high, value);
        ++finite;
      }
      mean[i].push_back(finite > 0 ? number(sum / static_cast<double>(finite)) : json());
      least[i].push_back(number(low));
      most[i].push_back(number(high));
    }
  }
  json all{{"step", steps}};
  for (std::size_t i = 0; i < columns; ++i) all[names[i]] = {{"mean", mean[i]}, {"least", least[i]}, {"most", most[i]}};
  told["columns"] = all;
  return told.dump();
}

}  // namespace troupe
