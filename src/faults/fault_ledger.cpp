#include "src/faults/fault_ledger.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <stdexcept>

namespace troupe {
namespace {

struct Entry {
  std::uint32_t rule, micro, unit, reserved;
  std::uint64_t epoch, step;
  std::array<char, 40> operation;
};

}  // namespace

/// Lies in shared memory: no pointers, and a reader sees an entry only after its count.
struct FaultLedger::Page {
  std::atomic<std::uint64_t> count;
  std::array<std::atomic<std::uint64_t>, most_rules> fired;
  std::array<Entry, most_firings> entries;
};

FaultLedger::FaultLedger(std::span<std::byte> memory) : page_(reinterpret_cast<Page*>(memory.data())) {
  static_assert(sizeof(Page) <= bytes && std::atomic<std::uint64_t>::is_always_lock_free);
  if (memory.size() < sizeof(Page)) throw std::invalid_argument("a fault ledger needs " + std::to_string(sizeof(Page)) + " bytes");
}

void FaultLedger::note(const FaultFiring& firing) {
  const std::lock_guard lock(mutex_);
  if (firing.rule < most_rules) page_->fired[firing.rule].fetch_add(1);
  const std::uint64_t number = page_->count.load();
  Entry& entry = page_->entries[number % most_firings];
  entry = Entry{static_cast<std::uint32_t>(firing.rule),
                firing.where.micro.value(),
                firing.where.unit.value(),
                0,
                firing.where.epoch.value(),
                firing.where.step.value(),
                {}};
  std::memcpy(entry.operation.data(), firing.operation.data(), std::min(firing.operation.size(), entry.operation.size() - 1));
  page_->count.store(number + 1);
}

std::vector<std::uint64_t> FaultLedger::fired() const {
  std::vector<std::uint64_t> counts(most_rules);
  for (std::size_t rule = 0; rule < most_rules; ++rule) counts[rule] = page_->fired[rule].load();
  return counts;
}

std::uint64_t FaultLedger::count() const { return page_->count.load(); }

std::vector<FaultFiring> FaultLedger::since(std::uint64_t seen) const {
  std::vector<FaultFiring> firings;
  const std::uint64_t count = page_->count.load();
  for (std::uint64_t number = std::max(seen, count > most_firings ? count - most_firings : 0); number < count; ++number) {
    const Entry& entry = page_->entries[number % most_firings];
    firings.push_back({entry.rule,
                       {EpochId{entry.epoch}, Step{entry.step}, Micro{entry.micro}, Unit{entry.unit}},
                       std::string(entry.operation.data(), ::strnlen(entry.operation.data(), entry.operation.size()))});
  }
  return firings;
}

}  // namespace troupe
