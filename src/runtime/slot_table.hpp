#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "messages/edge_kind.hpp"
#include "src/runtime/runtime.hpp"

namespace troupe {

/// The slots of one edge in one epoch; a member of the actor that produces into them, used by that actor alone. A free slot is the
/// permission to produce: `take` hands out its lease, whose end posts SlotHome to the owner, who calls `home`.
class SlotTable {
 public:
  struct Options {
    EdgeKind edge{};
    ActorAddress owner;
    EpochId epoch;
    std::vector<std::span<std::byte>> slots;  ///< memory of each; it outlives all leases
    bool poison = false;                      ///< tests: overwrite a slot when it comes home (host memory only)
  };
  SlotTable(Runtime& runtime, Options options);

  /// The lease of the slot that has been free for longest; an empty Lease when none is.
  [[nodiscard]] Lease take();
  /// A SlotHome arrived. False, and nothing happens, when the letter is of another taking of this slot (or of another table).
  bool home(SlotIndex slot, std::uint64_t generation);

  [[nodiscard]] bool any_free() const noexcept { return !free_.empty(); }
  [[nodiscard]] std::uint32_t count() const noexcept { return static_cast<std::uint32_t>(slots_.size()); }
  [[nodiscard]] std::uint32_t in_use() const noexcept { return count() - static_cast<std::uint32_t>(free_.size()); }
  /// "weights: 2 of 2 slots out, slot 0 for 3.2 ms, slot 1 for 1.0 ms"
  [[nodiscard]] std::string describe() const;

 private:
  struct Slot {
    std::uint64_t generation = 0;  ///< how often it was taken
    bool out = false;
    Nanos since{0};  ///< of `out`
  };
  void report() const;

  Runtime& runtime_;
  Options options_;
  std::vector<Slot> slots_;
  std::vector<SlotIndex> free_;  ///< oldest first
};

}  // namespace troupe
