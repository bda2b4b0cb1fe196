#pragma once
#include <algorithm>
#include <utility>
#include <vector>

#include "src/base/ids.hpp"
#include "src/base/lease.hpp"

namespace troupe {

/// Leases that came with letters, until the operations that read them are posted. Used by one actor.
class HeldLeases {
 public:
  /// `producer`: the operation of `step` that filled the slot. After `close` the lease ends at once.
  void keep(Step step, OperationIndex producer, Lease lease) {
    if (!closed_ && lease) entries_.push_back({step, producer, std::move(lease)});
  }
  /// A copy; empty if there is none.
  [[nodiscard]] Lease peek(Step step, OperationIndex producer) const {
    const auto found = find(entries_, step, producer);
    return found == entries_.end() ? Lease{} : found->lease;
  }
  /// Hands it over: the last reader is being posted.
  [[nodiscard]] Lease take(Step step, OperationIndex producer) {
    const auto found = find(entries_, step, producer);
    if (found == entries_.end()) return {};
    Lease lease = std::move(found->lease);
    entries_.erase(found);
    return lease;
  }
  /// The epoch ended: lets go of everything, now and later.
  void close() {
    closed_ = true;
    entries_.clear();
  }
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }

 private:
  struct Entry {
    Step step;
    OperationIndex producer;
    Lease lease;
  };
  template <class Entries>
  static auto find(Entries& entries, Step step, OperationIndex producer) -> decltype(entries.begin()) {
    return std::find_if(entries.begin(), entries.end(), [&](const Entry& entry) { return entry.step == step && entry.producer == producer; });
  }

  std::vector<Entry> entries_;  // a handful: slots of two edges
  bool closed_ = false;
};

}  // namespace troupe
