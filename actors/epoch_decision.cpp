#include "actors/epoch_decision.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "src/runtime/describe.hpp"

namespace troupe {
namespace {

std::string name_of_place(const JoinedRank& rank) { return fmt::format("rank {} (pid {} on {})", rank.rank.value(), rank.pid, rank.host); }

std::optional<RefuseEpoch> refuse_member(const JoinedRank& member, const JoinedRank* earlier, const EpochOptions& options) {
  const auto refuse = [&](std::string problem) { return RefuseEpoch{member.rank, std::move(problem)}; };
  if (options.members.empty() && member.rank.value() >= options.world_size)
    return refuse(fmt::format("{} joined a job of {} ranks; ranks count from 0 to {}: start it with a rank in that range", name_of_place(member),
                              options.world_size, options.world_size - 1));
  if (earlier != nullptr)
    return refuse(fmt::format("rank {} joined twice: first pid {} on {}, then pid {} on {}; give each worker its own TROUPE_RANK (or RANK)",
                              member.rank.value(), earlier->pid, earlier->host, member.pid, member.host));
  if (member.world_size != options.world_size)
    return refuse(fmt::format("{} was started for a world of {} ranks, this job has {}: give all workers the same world size", name_of_place(member),
                              member.world_size, options.world_size));
  if (member.config_hash != options.config_hash)
    return refuse(fmt::format("{} has another configuration (hash {:016x}) than the job ({:016x}): give all workers the same file and the same overrides",
                              name_of_place(member), member.config_hash, options.config_hash));
  if (member.restored != options.restore_step)
    return refuse(fmt::format("the job resumes from the checkpoint of step {}, but {} sees {}: all ranks must see the same checkpoint folder",
                              options.restore_step.value(), name_of_place(member),
                              member.restored == Step{0} ? std::string{"none"} : fmt::format("step {}", member.restored.value())));
  return std::nullopt;
}

std::string absent_ranks(std::span<const JoinedRank> joined, std::span<const Rank> members) {
  std::set<Rank> present;
  for (const JoinedRank& member : joined) present.insert(member.rank);
  std::string names;
  std::size_t count = 0;
  for (const Rank rank : members) {
    if (present.contains(rank)) continue;
    if (++count > 16) return names + ", …";
    names += fmt::format("{}{}", names.empty() ? "" : ", ", rank.value());
  }
  return names;
}

}  // namespace

EpochDecision decide_epoch(Nanos waited, std::span<const JoinedRank> joined, const EpochOptions& options) {
  if (options.world_size > largest_world)
    return RefuseEpoch{std::nullopt,
                       fmt::format("a job of {} ranks: this version takes at most {}, as the letter that begins an epoch names all of them; start fewer",
                                   options.world_size, largest_world)};
  std::vector<Rank> wanted = options.members;
  for (Rank rank{0}; options.members.empty() && rank.value() < options.world_size; ++rank) wanted.push_back(rank);
  std::map<Rank, const JoinedRank*> members;
  for (const JoinedRank& member : joined) {
    const auto earlier = members.find(member.rank);
    if (auto refusal = refuse_member(member, earlier == members.end() ? nullptr : earlier->second, options)) return *refusal;
    if (std::ranges::binary_search(wanted, member.rank)) members[member.rank] = &member;
  }
  if (members.size() < wanted.size()) {
    if (waited < options.init_timeout) return KeepWaiting{};
    const std::string absent = absent_ranks(joined, wanted);
    return RefuseEpoch{
        std::nullopt,
        fmt::format("after {:.0f} s (comm.init_timeout_seconds) {} of {} ranks have joined; absent: rank {}. Look at their logs, or whether they were started",
                    std::chrono::duration<double>(options.init_timeout).count(), members.size(), wanted.size(), absent)};
  }
  const EpochId epoch = options.previous.next();
  BeginEpoch begin{.epoch = epoch,
                   .members = {},
                   .first_step = options.restore_step.next(),
                   .restore_step = options.restore_step,
                   .communicator_tag = fmt::format("{}-e{}", options.job, epoch.value()),
                   .restore = {}};
  for (const auto& [rank, member] : members) begin.members.push_back(rank);
  return begin;
}

std::optional<std::string> compare_plans(const std::map<Rank, PlanHashes>& ranks) {
  if (ranks.empty()) return std::nullopt;
  const auto& [first_rank, first] = *ranks.begin();
  for (const auto& [rank, hashes] : ranks) {
    for (const auto& [kind, hash] : first) {
      const auto other = hashes.find(kind);
      if (other != hashes.end() && other->second == hash) continue;
      return fmt::format(
          "rank {} and rank {} plan different sequences of collectives on communicator {} (hashes {:016x} and {}): same build and same config on all ranks?",
          first_rank.value(), rank.value(), name_of(kind), hash, other == hashes.end() ? std::string{"none"} : fmt::format("{:016x}", other->second));
    }
    if (hashes.size() == first.size()) continue;
    return fmt::format("rank {} plans {} communicators, rank {} plans {}: same build and same config on all ranks?", first_rank.value(), first.size(),
                       rank.value(), hashes.size());
  }
  return std::nullopt;
}

Step grants_allowed(Step granted, Step slowest_report, Step last, std::uint32_t run_ahead) noexcept {
  const Step horizon = std::min(Step{slowest_report.value() + run_ahead}, last);
  return std::max(granted, horizon);
}

}  // namespace troupe
