#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "src/base/lease.hpp"

namespace troupe {

/// The receiver's half of an edge that crosses processes: a fixed number of equal slots of host memory, taken for arriving payloads.
/// Any thread; never blocks. Leases may outlive it.
class PayloadSlots {
 public:
  /// `freed` runs after each slot's return, on the thread of its last holder: tell the transport (slot_available) and the sender (SlotHome).
  PayloadSlots(std::uint32_t count, std::size_t bytes, std::function<void(SlotIndex)> freed);
  /// An empty lease if all are in use or the payload is longer than a slot.
  [[nodiscard]] Lease take(std::uint64_t bytes);
  [[nodiscard]] std::uint32_t in_use() const;
  [[nodiscard]] std::uint32_t peak() const;  ///< most slots in use at once
  /// No `freed` is called any more; for the owner's end.
  void close();

 private:
  struct Table;
  std::shared_ptr<Table> table_;
};

/// The sender's half: how many of the receiver's slots are free. A SlotHome letter gives one back. Any thread.
class SlotCredit {
 public:
  explicit SlotCredit(std::uint32_t slots) : free_(slots), slots_(slots) {}
  /// False: no slot is free at the receiver, do not send.
  [[nodiscard]] bool take();
  /// False: more came home than were taken; the letter is ignored.
  bool give_back();
  [[nodiscard]] std::uint32_t free() const;

 private:
  mutable std::mutex mutex_;
  std::uint32_t free_;
  const std::uint32_t slots_;
};

}  // namespace troupe
