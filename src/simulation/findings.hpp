#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/clock.hpp"

namespace troupe {

/// What must hold in every run; DESIGN §10.
enum class Invariant : std::uint8_t {
  ordered_slot_access,  ///< accesses to a slot, one of them a write, have a happens-before path
  issue_order,          ///< each lane gets its operations in plan order, none left out
  leases_home,          ///< after a drain every slot is free
  step_ledger,          ///< steps without gap or repeat, each batch once
  equal_verdicts,       ///< all ranks report the same outcome and numbers of a step
  one_epoch,            ///< nothing of an older epoch takes effect
  progress,             ///< the run finishes, or stops with a cause, in bounded virtual time
  live_data,            ///< nobody reads what was never written, was freed or belongs to another step
  repeatable_trace,     ///< a seed gives the same run twice
};
[[nodiscard]] std::string_view name_of(Invariant invariant) noexcept;

struct Finding {
  Invariant invariant;
  std::string text;
};

/// Collects what was found wrong, the first of each invariant in full, later ones counted. One thread.
class Findings {
 public:
  void add(Invariant invariant, std::string text);
  [[nodiscard]] bool empty() const noexcept { return found_.empty(); }
  [[nodiscard]] bool has(Invariant invariant) const noexcept;
  [[nodiscard]] const std::vector<Finding>& all() const noexcept { return found_; }
  [[nodiscard]] std::string text() const;  ///< one line each

 private:
  static constexpr std::size_t limit = 20;  ///< kept in full
  std::vector<Finding> found_;
  std::uint64_t dropped_ = 0;
};

/// Digests of a run: `order` over who did what in which sequence, `timed` also over when.
class TraceHash {
 public:
  void add(Nanos time, std::string_view what, std::uint64_t a, std::uint64_t b, std::uint64_t c) noexcept;
  [[nodiscard]] std::uint64_t order() const noexcept { return order_; }
  [[nodiscard]] std::uint64_t timed() const noexcept { return timed_; }
  [[nodiscard]] std::uint64_t events() const noexcept { return events_; }

 private:
  std::uint64_t order_ = 0x9e3779b97f4a7c15U, timed_ = 0x2545f4914f6cdd1dU, events_ = 0;
};

}  // namespace troupe
