#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "src/faults/fault_ledger.hpp"
#include "src/faults/fault_rule.hpp"

namespace troupe {

/// What to do at a site.
struct Fault {
  FaultAction action = FaultAction::none;
  Nanos duration{0};         ///< of a delay or stall
  std::size_t rule = 0;      ///< index in the plan, for journal and trace
  std::uint64_t random = 0;  ///< for the action's own choices: which byte to corrupt, where to tear
  [[nodiscard]] explicit operator bool() const noexcept { return action != FaultAction::none; }
};

/// The faults of one rank. What is decided depends on seed, rules and the sequence of questions of the same name and place alone, not on
/// how threads interleave, so a run with its seed repeats. Any thread. Asking an empty plan costs one branch.
class FaultPlan {
 public:
  FaultPlan() = default;
  /// Each firing is noted in `ledger` before it strikes, and what stands there of an earlier incarnation of the process has fired; null: none is kept. Rules
  /// may be added while the run goes on.
  FaultPlan(std::shared_ptr<FaultLedger> ledger, Rank rank, std::uint64_t seed, std::vector<FaultRule> rules);
  /// `fired`: how often each rule has fired before, on this rank, in an earlier incarnation of the process; missing entries are 0.
  FaultPlan(Rank rank, std::uint64_t seed, std::vector<FaultRule> rules, std::vector<std::uint64_t> fired = {});

  /// `name`: a letter's kind, an operation's name, a file's name. The first rule that matches and fires wins; its count goes up.
  [[nodiscard]] Fault decide(FaultSite site, std::string_view name, const Where& where) {
    return any_.load(std::memory_order_relaxed) ? search(site, name, where) : Fault{};
  }
  /// Asked from now on; its place is behind those that are there.
  void add(FaultRule rule);
  /// May rules come later?
  [[nodiscard]] bool grows() const noexcept { return grows_; }

  [[nodiscard]] std::vector<FaultRule> rules() const;
  /// Firings of each rule so far, the earlier incarnations' included; what the journal keeps.
  [[nodiscard]] std::vector<std::uint64_t> fired() const;

 private:
  struct Counts {
    std::vector<std::uint64_t> fired;
    std::map<std::uint64_t, std::uint64_t> asked;  ///< by hash of rule, name and place; of the newest step only
    Step step;
  };
  [[nodiscard]] Fault search(FaultSite site, std::string_view name, const Where& where);
  [[nodiscard]] bool matches(const FaultRule& rule, FaultSite site, std::string_view name, const Where& where) const;

  Rank rank_;
  std::uint64_t seed_ = 0;
  std::atomic<bool> any_ = false;
  mutable std::mutex mutex_;
  std::vector<FaultRule> rules_;
  std::shared_ptr<FaultLedger> ledger_;
  bool grows_ = false;
  Counts counts_;
};

}  // namespace troupe
