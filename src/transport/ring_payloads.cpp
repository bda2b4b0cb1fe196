#include "src/transport/ring_payloads.hpp"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

constexpr std::uint64_t block_bytes = std::uint64_t{32} << 10;  ///< handed over at once; two of them fit the first-level cache or nearly
constexpr int blocks_a_step = 4;                                ///< before the transport looks at its letters again
constexpr std::uint64_t alignment = 4096;                       ///< where a payload starts
/// From this size on a payload is written into its slot beside the cache: it would drive out what others work with, and be gone from there
/// itself before its reader comes.
constexpr std::size_t beside_cache_bytes = std::size_t{8} << 20;

/// Bytes of the next block of a payload of which `left` are to go, at this position. Both sides come to the same blocks.
std::uint64_t block_at(const SharedRing& ring, std::uint64_t position, std::uint64_t left) { return std::min({block_bytes, left, ring.data(position).size()}); }
/// What a block takes up in the ring.
std::uint64_t room_of(std::uint64_t block) { return (block + alignment - 1) / alignment * alignment; }

// A side says "sleeping" before it looks for the last time, the other writes its counter before it looks at "sleeping"; both in
// sequentially consistent order, so that one of the two sees the other and no wake-up is lost.
bool rings(std::atomic<std::uint32_t>& sleeps) { return sleeps.load(std::memory_order_seq_cst) != 0 && sleeps.exchange(0) != 0; }

}  // namespace

RingStep RingSender::advance(const Told& told) {
  const RingStep steps[] = {hear(told), settle(told), write_blocks(told)};
  if (std::ranges::find(steps, RingStep::broken) != std::end(steps)) return RingStep::broken;
  return std::ranges::find(steps, RingStep::moved) != std::end(steps) ? RingStep::moved : RingStep::idle;
}

/// What the receiver has granted or refused since.
RingStep RingSender::hear(const Told& told) {
  auto& header = ring_->header();
  const std::uint64_t granted = header.granted.load(std::memory_order_acquire);
  if (granted == heard_) return RingStep::idle;
  if (granted - heard_ > SharedRing::grants_at_once) return RingStep::broken;
  while (heard_ != granted) {
    const std::uint64_t grant = header.grants[heard_++ % SharedRing::grants_at_once].load(std::memory_order_relaxed);
    const auto found = waiting_.find(grant / 2);
    if (found == waiting_.end()) return RingStep::broken;
    const auto payload = found->second;
    waiting_.erase(found);
    if (grant % 2 == 0) {
      current_.push_back({grant / 2, payload, 0, std::make_unique<HashedCopy>(payload.size())});
    } else {
      told.taken(grant / 2);
    }
  }
  header.heard.store(heard_, std::memory_order_seq_cst);
  return RingStep::moved;
}

/// What the receiver has copied out since.
RingStep RingSender::settle(const Told& told) {
  const std::uint64_t taken = ring_->header().taken.load(std::memory_order_acquire);
  if (taken == taken_) return RingStep::idle;
  if (taken - taken_ > position_ - taken_) return RingStep::broken;
  taken_ = taken;
  while (!written_.empty() && written_.front().second <= taken_) {
    const std::uint64_t sequence = written_.front().first;
    written_.pop_front();
    told.taken(sequence);
  }
  return RingStep::moved;
}

RingStep RingSender::write_blocks(const Told& told) {
  auto result = RingStep::idle;
  for (int i = 0; i < blocks_a_step && !current_.empty(); ++i) {
    Current& current = current_.front();
    const std::uint64_t block = block_at(*ring_, position_, current.payload.size() - current.done);
    if (position_ + room_of(block) - taken_ > SharedRing::data_bytes) break;
    write_block(current, block);
    current.done += block;
    position_ += room_of(block);
    ring_->header().written.store(position_, std::memory_order_seq_cst);
    result = RingStep::moved;
    if (current.done < current.payload.size()) continue;
    written_.emplace_back(current.sequence, position_);
    const std::uint64_t bytes = current.payload.size(), hash = current.copy->hash();
    current_.pop_front();
    told.written(bytes, hash);
  }
  return result;
}

void RingSender::write_block(Current& current, std::uint64_t bytes) {
  const auto piece = current.payload.subspan(current.done, bytes);
  std::byte* const to = ring_->data(position_).data();
  if (bytes < block_bytes) return current.copy->copy_to_shared(to, piece);
  const StoreChoice::Block block = choice_.next();
  const Nanos start = block.timed ? clock_.now() : Nanos{0};
  current.copy->copy_to_shared(to, piece, block.stores);
  if (block.timed) choice_.took(block.stores, clock_.now() - start);
}

bool RingSender::set_sleeping(bool sleeping) {
  auto& header = ring_->header();
  header.sender_sleeps.store(sleeping ? 1 : 0, std::memory_order_seq_cst);
  if (!sleeping) return false;
  const bool work = header.granted.load(std::memory_order_seq_cst) != heard_ || header.taken.load(std::memory_order_seq_cst) != taken_;
  if (work) header.sender_sleeps.store(0, std::memory_order_seq_cst);
  return work;
}

bool RingSender::must_ring() { return rings(ring_->header().receiver_sleeps); }

bool RingReceiver::must_ring() { return rings(ring_->header().sender_sleeps); }

std::uint64_t RingReceiver::available() const { return ring_->header().written.load(std::memory_order_acquire) - position_; }

bool RingReceiver::may_grant() const {
  if (grants_ - ring_->header().heard.load(std::memory_order_seq_cst) >= SharedRing::grants_at_once) return false;
  if (granted_.empty()) return true;
  const Granted& last = granted_.back();
  return granted_.size() == 1 && available() >= last.slot.size() - last.done;
}

void RingReceiver::grant(std::uint64_t sequence, std::span<std::byte> slot) {
  granted_.push_back({sequence, slot, 0, std::make_unique<HashedCopy>(slot.size()), std::nullopt});
  tell(sequence * 2);
}

void RingReceiver::tell(std::uint64_t grant) {
  auto& header = ring_->header();
  header.grants[grants_ % SharedRing::grants_at_once].store(grant, std::memory_order_relaxed);
  header.granted.store(++grants_, std::memory_order_seq_cst);
}

bool RingReceiver::expect(std::uint64_t bytes, std::uint64_t hash) {
  const auto next = std::ranges::find_if(granted_, [](const Granted& granted) { return !granted.hash; });
  if (next == granted_.end() || next->slot.size() != bytes) return false;
  next->hash = hash;
  return true;
}

/// The next block of the first payload that is not complete is in the ring.
bool RingReceiver::next_is_here() const {
  if (granted_.empty()) return false;
  const Granted& first = granted_.front();
  return first.done < first.slot.size() && available() >= room_of(block_at(*ring_, position_, first.slot.size() - first.done));
}

RingStep RingReceiver::advance(const std::function<void(std::uint64_t sequence, bool intact)>& arrived) {
  if (available() > SharedRing::data_bytes) return RingStep::broken;
  auto result = RingStep::idle;
  for (int i = 0; i < blocks_a_step; ++i) {
    if (next_is_here()) {
      Granted& first = granted_.front();
      const std::uint64_t block = block_at(*ring_, position_, first.slot.size() - first.done);
      first.copy->copy(first.slot.data() + first.done, ring_->data(position_).first(block),
                       first.slot.size() >= beside_cache_bytes ? Stores::beside_cache : Stores::through_cache);
      first.done += block;
      position_ += room_of(block);
      ring_->header().taken.store(position_, std::memory_order_seq_cst);
      result = RingStep::moved;
    }
    if (granted_.empty() || granted_.front().done < granted_.front().slot.size() || !granted_.front().hash) continue;
    const std::uint64_t sequence = granted_.front().sequence;
    const bool intact = granted_.front().copy->hash() == *granted_.front().hash;
    granted_.pop_front();
    arrived(sequence, intact);
    result = RingStep::moved;
  }
  return result;
}

bool RingReceiver::set_sleeping(bool sleeping) {
  auto& header = ring_->header();
  header.receiver_sleeps.store(sleeping ? 1 : 0, std::memory_order_seq_cst);
  if (sleeping && next_is_here()) header.receiver_sleeps.store(0, std::memory_order_seq_cst);
  return sleeping && header.receiver_sleeps.load(std::memory_order_relaxed) == 0;
}

}  // namespace troupe
