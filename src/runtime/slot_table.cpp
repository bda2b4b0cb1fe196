#include "src/runtime/slot_table.hpp"

#include <fmt/format.h>

#include <cstring>

#include "src/runtime/send.hpp"

namespace troupe {
namespace {

constexpr int poison_byte = 0xcd;  // as fp32 -4.3e8, as bf16 the like: a reader of a freed slot cannot go unnoticed

}  // namespace

SlotTable::SlotTable(Runtime& runtime, Options options) : runtime_(runtime), options_(std::move(options)), slots_(options_.slots.size()) {
  for (std::uint32_t i = 0; i < count(); ++i) free_.emplace_back(i);
}

Lease SlotTable::take() {
  if (free_.empty()) return {};
  const SlotIndex index = free_.front();
  free_.erase(free_.begin());
  Slot& slot = slots_[index.value()];
  slot.out = true;
  slot.since = runtime_.clock.now();
  ++slot.generation;
  report();
  const Where where{options_.epoch, {}, {}, {}};
  auto release = [runtime = &runtime_, heading = Heading{options_.owner, options_.owner, where, {}, Nanos{0}, 0}, edge = options_.edge, index,
                  generation = slot.generation] {
    send<schema::SlotHome>(*runtime, heading, [&](auto body) {
      body.setEdge(static_cast<std::uint16_t>(edge));
      body.setSlot(index.value());
      body.setGeneration(generation);
    });
  };
  return Lease(index, options_.slots[index.value()], std::move(release));
}

bool SlotTable::home(SlotIndex index, std::uint64_t generation) {
  if (index.value() >= slots_.size()) return false;
  Slot& slot = slots_[index.value()];
  if (!slot.out || slot.generation != generation) return false;
  slot.out = false;
  if (options_.poison) std::memset(options_.slots[index.value()].data(), poison_byte, options_.slots[index.value()].size());
  free_.push_back(index);
  report();
  return true;
}

std::string SlotTable::describe() const {
  std::string text = fmt::format("{}: {} of {} slots out", name_of(options_.edge), in_use(), count());
  const Nanos now = runtime_.clock.now();
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (!slots_[i].out) continue;
    text += fmt::format(", slot {} for {:.1f} ms", i, std::chrono::duration<double, std::milli>(now - slots_[i].since).count());
  }
  return text;
}

void SlotTable::report() const {
  if (runtime_.tracer) runtime_.tracer->slots_in_use(options_.owner.rank, name_of(options_.edge), in_use(), runtime_.clock.now());
}

}  // namespace troupe
