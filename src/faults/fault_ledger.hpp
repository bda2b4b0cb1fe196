#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "src/base/ids.hpp"

namespace troupe {

/// A fault rule that fired.
struct FaultFiring {
  std::size_t rule = 0;  ///< its place among the rules, from 0
  Where where;
  std::string operation;  ///< name of what it struck, cut to what fits
};

/// Which rules have fired on a rank, in memory that outlives its process: a rule that kills has fired all the same, and does not fire again in
/// the process that follows. One process writes, from any of its threads; another may read at any time.
class FaultLedger {
 public:
  static constexpr std::size_t most_rules = 256, most_firings = 256;  ///< older firings are overwritten; counts stay exact
  static constexpr std::size_t bytes = std::size_t{64} << 10U;
  /// `memory`: `bytes` of it, shared, zero or written by an earlier FaultLedger; outlives this.
  explicit FaultLedger(std::span<std::byte> memory);
  /// Before the fault strikes.
  void note(const FaultFiring& firing);
  /// How often each rule has fired.
  [[nodiscard]] std::vector<std::uint64_t> fired() const;
  /// Firings in all.
  [[nodiscard]] std::uint64_t count() const;
  /// Those after the first `seen`, as far as they are still there.
  [[nodiscard]] std::vector<FaultFiring> since(std::uint64_t seen) const;

 private:
  struct Page;
  std::mutex mutex_;
  Page* page_;
};

}  // namespace troupe
