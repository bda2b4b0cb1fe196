#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>

#include "messages/hashed_copy.hpp"
#include "src/base/clock.hpp"
#include "src/transport/shared_ring.hpp"
#include "src/transport/store_choice.hpp"

namespace troupe {

/// What a look at a ring brought. `broken`: its memory holds what cannot be, so the peer is broken or lies; the ring is of no use any more.
enum class RingStep : std::uint8_t { idle, moved, broken };

/// Payloads into a ring, in the order in which the receiver grants them. A payload is named by its letter's sequence number. The
/// transport's thread; never blocks: advance() copies some blocks, and is called again.
class RingSender {
 public:
  RingSender(std::unique_ptr<SharedRing> ring, const Clock& clock) : ring_(std::move(ring)), clock_(clock) {}
  /// The payload stays until `taken` named it.
  void add(std::uint64_t sequence, std::span<const std::byte> payload) { waiting_.emplace(sequence, payload); }

  struct Told {
    std::function<void(std::uint64_t bytes, std::uint64_t hash)> written;  ///< all of the next payload is in the ring
    std::function<void(std::uint64_t sequence)> taken;                     ///< it stands in the receiver's slot, or was refused
  };
  [[nodiscard]] RingStep advance(const Told& told);
  /// A granted payload is not all in the ring.
  [[nodiscard]] bool streaming() const noexcept { return !current_.empty(); }
  [[nodiscard]] bool empty() const noexcept { return waiting_.empty() && current_.empty() && written_.empty(); }
  /// Says that this side goes to sleep, or is awake. True: there is something to do, do not sleep.
  bool set_sleeping(bool sleeping);
  /// After a step that moved something. True: the receiver sleeps and was not rung for since.
  [[nodiscard]] bool must_ring();
  void established() noexcept { ring_->forget_descriptor(); }

 private:
  struct Current {
    std::uint64_t sequence;
    std::span<const std::byte> payload;
    std::size_t done;
    std::unique_ptr<HashedCopy> copy;
  };
  [[nodiscard]] RingStep hear(const Told& told);
  [[nodiscard]] RingStep settle(const Told& told);
  [[nodiscard]] RingStep write_blocks(const Told& told);
  void write_block(Current& current, std::uint64_t bytes);
  const std::unique_ptr<SharedRing> ring_;
  const Clock& clock_;
  StoreChoice choice_;
  std::map<std::uint64_t, std::span<const std::byte>> waiting_;  ///< not granted yet
  std::deque<Current> current_;                                  ///< granted; the first is being written
  std::deque<std::pair<std::uint64_t, std::uint64_t>> written_;  ///< sequence, position of its end
  std::uint64_t position_ = 0, heard_ = 0, taken_ = 0;
};

/// The other end: names slots for payloads and copies them there.
class RingReceiver {
 public:
  explicit RingReceiver(std::unique_ptr<SharedRing> ring) : ring_(std::move(ring)) {}
  /// A slot may be named: of the payloads granted so far at most the end of one is still to come. More would only spread over more memory.
  [[nodiscard]] bool may_grant() const;
  void grant(std::uint64_t sequence, std::span<std::byte> slot);
  /// No slot of this receiver can hold it.
  void refuse(std::uint64_t sequence) { tell(sequence * 2 + 1); }
  /// What the sender's MACed frame says of the payload after those already told of. False: that cannot be.
  [[nodiscard]] bool expect(std::uint64_t bytes, std::uint64_t hash);
  /// `arrived`: a payload is complete in its slot; intact or not.
  [[nodiscard]] RingStep advance(const std::function<void(std::uint64_t sequence, bool intact)>& arrived);
  [[nodiscard]] bool moving() const noexcept { return !granted_.empty(); }
  /// A granted payload is not all out of the ring.
  [[nodiscard]] bool streaming() const noexcept { return !granted_.empty() && granted_.front().done < granted_.front().slot.size(); }
  bool set_sleeping(bool sleeping);
  [[nodiscard]] bool must_ring();

 private:
  struct Granted {
    std::uint64_t sequence;
    std::span<std::byte> slot;
    std::size_t done;
    std::unique_ptr<HashedCopy> copy;
    std::optional<std::uint64_t> hash;
  };
  void tell(std::uint64_t grant);
  [[nodiscard]] std::uint64_t available() const;  ///< bytes in the ring; more than it holds if the sender lies
  [[nodiscard]] bool next_is_here() const;
  const std::unique_ptr<SharedRing> ring_;
  std::deque<Granted> granted_;
  std::uint64_t position_ = 0, grants_ = 0;
};

}  // namespace troupe
