#include "src/simulation/slot_ledger.hpp"

#include <algorithm>

namespace troupe {
namespace {

std::string describe(const LaneOperation& operation, const std::string& place) {
  return "\"" + operation.name + "\" of step " + std::to_string(operation.where.step.value()) + " on the " + place;
}

/// The operation's own lease of that slot. Edges number their slots alike, so an operation with two edges may match the other's; it then holds both.
const Lease* lease_of(const LaneOperation& operation, SlotIndex slot) {
  const auto found = std::find_if(operation.leases.begin(), operation.leases.end(), [&](const Lease& lease) { return lease && lease.slot() == slot; });
  return found == operation.leases.end() ? nullptr : &*found;
}

/// Null when several edges' slots of this number are in hand: whose memory is whose shows at another operation.
const Lease* only_lease_of(const LaneOperation& operation, SlotIndex slot) {
  const auto same = [&](const Lease& lease) { return lease && lease.slot() == slot; };
  return std::count_if(operation.leases.begin(), operation.leases.end(), same) == 1 ? lease_of(operation, slot) : nullptr;
}

}  // namespace

void SlotLedger::check(const Touch& before, const SlotAccess& access, const std::string& what) {
  if (before.place == causality_.current()) return;  // a place does one thing after the other
  if (before.until != 0 && causality_.known().of(before.place) >= before.until) return;
  findings_.add(Invariant::ordered_slot_access, what + (access.write ? " writes" : " reads") + " slot " + std::to_string(access.slot.value()) + " of " +
                                                    std::string(access.edge) + " (rank " + std::to_string(access.owner) + ") without coming after " +
                                                    before.what + (before.until == 0 ? ", which is still at it" : ""));
}

void SlotLedger::begin(const LaneOperation& operation) {
  const std::string what = describe(operation, causality_.name_of(causality_.current()));
  for (const SlotAccess& access : operation.accesses) {
    ++accesses_;
    Slot& slot = slots_[key(access)];
    slot.out = true;
    if (const Lease* lease = only_lease_of(operation, access.slot)) slot.bytes = lease->bytes();
    for (const Touch& write : slot.writes) check(write, access, what);
    Touch touch{causality_.current(), 0, what};
    if (access.write) {
      for (const Touch& read : slot.reads) check(read, access, what);
      slot.reads.clear();
      slot.writes.assign(1, std::move(touch));
    } else {
      std::erase_if(slot.reads, [&](const Touch& read) { return read.place == touch.place; });
      slot.reads.push_back(std::move(touch));
    }
  }
}

void SlotLedger::end(const LaneOperation& operation) {
  const PlaceId place = causality_.current();
  const std::uint32_t moment = causality_.known().of(place);
  for (const SlotAccess& access : operation.accesses) {
    Slot& slot = slots_[key(access)];
    for (Touch& touch : access.write ? slot.writes : slot.reads) {
      if (touch.place == place) touch.until = moment;
    }
  }
}

void SlotLedger::release(const LaneOperation& operation) {
  for (const SlotAccess& access : operation.accesses) {
    if (lease_of(operation, access.slot)) slots_[key(access)].released.join(causality_.known());
  }
}

CausalStamp SlotLedger::home(std::uint32_t owner, EdgeKind edge, SlotIndex index) {
  Slot& slot = slots_[SlotKey{owner, name_of(edge), index.value()}];
  std::fill(slot.bytes.begin(), slot.bytes.end(), poison);
  slot.out = false;
  return slot.released;
}

void SlotLedger::expect_all_home(Rank owner) {
  for (const auto& [id, slot] : slots_)
    if (std::get<0>(id) == owner.value()) expect_home(id, slot);
}

void SlotLedger::expect_all_home() {
  for (const auto& [id, slot] : slots_) expect_home(id, slot);
}

void SlotLedger::expect_home(const SlotKey& id, const Slot& slot) {
  if (!slot.out) return;
  const Touch* last = !slot.reads.empty() ? &slot.reads.back() : slot.writes.empty() ? nullptr : &slot.writes.back();
  findings_.add(Invariant::leases_home, "slot " + std::to_string(std::get<2>(id)) + " of " + std::string(std::get<1>(id)) + " (rank " +
                                            std::to_string(std::get<0>(id)) + ") did not come home; last used by " + (last ? last->what : "nobody"));
}

void SlotLedger::forget(Rank owner) {
  std::erase_if(slots_, [&](const auto& entry) { return std::get<0>(entry.first) == owner.value(); });
}

}  // namespace troupe
