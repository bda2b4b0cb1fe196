#include "src/transport/payload_slots.hpp"

#include <algorithm>

namespace troupe {

struct PayloadSlots::Table {
  mutable std::mutex mutex;
  std::vector<std::vector<std::byte>> memory;
  std::vector<bool> used;
  std::uint32_t in_use = 0, peak = 0;
  std::function<void(SlotIndex)> freed;
};

PayloadSlots::PayloadSlots(std::uint32_t count, std::size_t bytes, std::function<void(SlotIndex)> freed) : table_(std::make_shared<Table>()) {
  table_->memory.assign(count, std::vector<std::byte>(bytes));
  table_->used.assign(count, false);
  table_->freed = std::move(freed);
}

Lease PayloadSlots::take(std::uint64_t bytes) {
  const std::lock_guard lock(table_->mutex);
  const auto found = std::find(table_->used.begin(), table_->used.end(), false);
  if (found == table_->used.end()) return {};
  const auto index = static_cast<std::size_t>(found - table_->used.begin());
  if (bytes > table_->memory[index].size()) return {};
  *found = true;
  table_->peak = std::max(table_->peak, ++table_->in_use);
  const SlotIndex slot{static_cast<std::uint32_t>(index)};
  return Lease{slot, table_->memory[index], [table = table_, slot] {
                 std::function<void(SlotIndex)> freed;
                 {
                   const std::lock_guard inner(table->mutex);
                   table->used[slot.value()] = false;
                   --table->in_use;
                   freed = table->freed;
                 }
                 if (freed) freed(slot);
               }};
}

std::uint32_t PayloadSlots::in_use() const {
  const std::lock_guard lock(table_->mutex);
  return table_->in_use;
}

std::uint32_t PayloadSlots::peak() const {
  const std::lock_guard lock(table_->mutex);
  return table_->peak;
}

void PayloadSlots::close() {
  const std::lock_guard lock(table_->mutex);
  table_->freed = nullptr;
}

bool SlotCredit::take() {
  const std::lock_guard lock(mutex_);
  if (free_ == 0) return false;
  --free_;
  return true;
}

bool SlotCredit::give_back() {
  const std::lock_guard lock(mutex_);
  if (free_ == slots_) return false;
  ++free_;
  return true;
}

std::uint32_t SlotCredit::free() const {
  const std::lock_guard lock(mutex_);
  return free_;
}

}  // namespace troupe
