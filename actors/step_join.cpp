#include "actors/step_join.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <iterator>

#include "src/runtime/join_digests.hpp"

namespace troupe {
namespace {

bool same(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }

}  // namespace

std::optional<std::string> difference(const RankReport& a, const RankReport& b) {
  if (a.outcome != b.outcome) return fmt::format("outcome {} and {}", static_cast<int>(a.outcome), static_cast<int>(b.outcome));
  if (!same(a.loss, b.loss)) return fmt::format("loss {} and {}", a.loss, b.loss);
  if (!same(a.grad_norm, b.grad_norm)) return fmt::format("grad_norm {} and {}", a.grad_norm, b.grad_norm);
  if (a.tokens != b.tokens) return fmt::format("tokens {} and {}", a.tokens, b.tokens);
  if (!same(a.learning_rate, b.learning_rate)) return fmt::format("learning rate {} and {}", a.learning_rate, b.learning_rate);
  if (!same(a.evaluation_loss, b.evaluation_loss)) return fmt::format("validation loss {} and {}", a.evaluation_loss, b.evaluation_loss);
  return std::nullopt;
}

bool same_sources(const RankReport& a, const RankReport& b) {
  return std::ranges::equal(a.sources, b.sources,
                            [](const SourceLoss& one, const SourceLoss& other) { return same(one.loss, other.loss) && one.tokens == other.tokens; });
}

namespace {

/// In the order of ranks, so that the sums repeat bit for bit.
void add_sources(std::vector<SourceLoss>& sums, const std::vector<SourceLoss>& more) {
  for (std::size_t i = 0; i < std::min(sums.size(), more.size()); ++i) {
    sums[i].loss += more[i].loss;
    sums[i].tokens += more[i].tokens;
  }
}

RankReport join(const std::map<Rank, RankReport>& reports) {
  RankReport all = reports.begin()->second;
  std::vector<std::uint64_t> digests;
  all.local_tokens = all.bytes_gathered = all.bytes_reduced = 0;
  for (const auto& [rank, report] : reports) {
    digests.push_back(report.digest);
    all.local_tokens += report.local_tokens;
    all.bytes_gathered += report.bytes_gathered;
    all.bytes_reduced += report.bytes_reduced;
    all.arena_peak_bytes = std::max(all.arena_peak_bytes, report.arena_peak_bytes);
    all.duration = std::max(all.duration, report.duration);
    all.evaluation_time = std::max(all.evaluation_time, report.evaluation_time);
    all.wait_batch = std::max(all.wait_batch, report.wait_batch);
    all.wait_weights = std::max(all.wait_weights, report.wait_weights);
    all.wait_gradients = std::max(all.wait_gradients, report.wait_gradients);
    all.wait_snapshots = std::max(all.wait_snapshots, report.wait_snapshots);
    all.own_loss = std::max(all.own_loss, report.own_loss);
  }
  all.digest = join_digests(digests);
  for (auto report = std::next(reports.begin()); report != reports.end(); ++report) add_sources(all.sources, report->second.sources);
  return all;
}

}  // namespace

std::string describe_nonfinite(const RankReport& report) {
  std::string what =
      report.non_finite > 0 ? fmt::format("{} losses are not finite", report.non_finite) : fmt::format("the gradients' norm is {}", report.grad_norm);
  if (report.float8_non_finite > 0) what += fmt::format(", and {} values of fp8 casts were not", report.float8_non_finite);
  return what;
}

StepJoin::Outcome StepJoin::add(EpochId epoch, Step step, Rank rank, const RankReport& report) {
  if (step <= joined_) return Mismatch{fmt::format("rank {} reports step {} again; all ranks are past step {}", rank.value(), step.value(), joined_.value())};
  auto& reports = open_[step];
  if (!reports.emplace(rank, report).second) return Mismatch{fmt::format("rank {} reports step {} twice", rank.value(), step.value())};
  const auto& [first_rank, first] = *reports.begin();
  for (const auto& [other_rank, other] : reports)
    if (auto what = difference(first, other))
      return Mismatch{
          fmt::format("the verdict of step {} differs: rank {} and rank {} report {}", step.value(), first_rank.value(), other_rank.value(), *what)};
  if (reports.size() < ranks_) return std::monostate{};
  if (step != joined_.next()) return Mismatch{fmt::format("all ranks reported step {}, but step {} is missing", step.value(), joined_.next().value())};
  joined_ = step;
  StepRecord record{.epoch = epoch, .step = step, .common = join(reports), .ranks = ranks_, .total_tokens = 0, .each = reports};
  total_tokens_ += record.common.tokens;
  record.total_tokens = total_tokens_;
  open_.erase(step);
  return record;
}

}  // namespace troupe
