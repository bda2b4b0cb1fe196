#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "messages/edge_kind.hpp"
#include "src/device/lane.hpp"
#include "src/simulation/causality.hpp"
#include "src/simulation/findings.hpp"

namespace troupe {

/// The memory that real slots have only in spirit: who touched each slot last, and whether that came before what touches it now.
/// Accesses are told by lanes from LaneOperation::accesses; the end of the last lease by the post office, from SlotHome. One thread.
class SlotLedger {
 public:
  SlotLedger(Causality& causality, Findings& findings) : causality_(causality), findings_(findings) {}

  /// The current place begins what `operation` says it does to slots.
  void begin(const LaneOperation& operation);
  /// ... and is through with it.
  void end(const LaneOperation& operation);
  /// The operation's leases go, perhaps not as the last: whoever gets the slot next comes after the current place's doings.
  void release(const LaneOperation& operation);
  /// The slot is free: its bytes are overwritten, so that whoever still reads them is found out. The result joins the letter that says so.
  [[nodiscard]] CausalStamp home(std::uint32_t owner, EdgeKind edge, SlotIndex slot);
  /// After a drain.
  void expect_all_home();
  void expect_all_home(Rank owner);
  /// The rank's memory goes: an epoch ended.
  void forget(Rank owner);
  [[nodiscard]] std::uint64_t accesses() const noexcept { return accesses_; }

  static constexpr std::byte poison{0xdb};

 private:
  using SlotKey = std::tuple<std::uint32_t, std::string_view, std::uint32_t>;
  struct Touch {
    PlaceId place;
    std::uint32_t until = 0;  ///< the place's moment when it ended; 0: it has not
    std::string what;
  };
  struct Slot {
    std::vector<Touch> reads;   ///< since the last write
    std::vector<Touch> writes;  ///< none or one
    CausalStamp released;
    std::span<std::byte> bytes;
    bool out = false;  ///< touched since it was last free
  };

  void expect_home(const SlotKey& id, const Slot& slot);
  void check(const Touch& before, const SlotAccess& access, const std::string& what);
  static SlotKey key(const SlotAccess& access) { return {access.owner, access.edge, access.slot.value()}; }

  Causality& causality_;
  Findings& findings_;
  std::map<SlotKey, Slot> slots_;
  std::uint64_t accesses_ = 0;
};

}  // namespace troupe
