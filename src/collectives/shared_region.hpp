#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "src/base/clock.hpp"
#include "src/collectives/call_signature.hpp"

namespace troupe {

/// What all members must agree on before they share memory.
struct RegionShape {
  std::uint32_t members = 1;
  std::uint32_t slots = 4;        ///< chunks of a member that may be on their way at once
  std::uint64_t chunk_bytes = 0;  ///< a multiple of 64
  bool operator==(const RegionShape&) const = default;
  [[nodiscard]] std::uint64_t bytes() const noexcept;
};

/// The memory that the members of one communicator share, as threads of one process or as processes of one host: for each member
/// counters, its current call's signature and a ring of chunks; for all a latch that says "aborted" and why.
/// Counters only grow and are written by their member alone, so there are no locks, and a member may die at any instruction.
class SharedRegion {
 public:
  /// Memory of this process alone, for threads. Throws std::bad_alloc.
  [[nodiscard]] static std::shared_ptr<SharedRegion> anonymous(const RegionShape& shape);
  /// Maps a file of shape.bytes() zeroed bytes; the caller keeps the descriptor. Throws std::system_error.
  [[nodiscard]] static std::shared_ptr<SharedRegion> of_file(int descriptor, const RegionShape& shape);
  ~SharedRegion();
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  /// Counters of one member; each means "done so far", over the communicator's whole life.
  struct alignas(64) Member {
    std::atomic<std::uint64_t> joined;                ///< 1: has mapped the region
    std::atomic<std::uint64_t> called;                ///< calls begun; its signature is in signatures[call % 2]
    std::atomic<std::uint64_t> published;             ///< chunks written
    alignas(64) std::atomic<std::uint64_t> consumed;  ///< chunks of every other member read
    alignas(64) std::atomic<std::uint32_t> doorbell;  ///< futex word: rung when anything changed that this member may wait for
    std::atomic<std::uint32_t> sleeping;
    CallSignature signatures[2];
  };
  using Counter = std::atomic<std::uint64_t> Member::*;

  [[nodiscard]] const RegionShape& shape() const noexcept { return shape_; }
  [[nodiscard]] Member& member(std::uint32_t rank) const noexcept { return members_[rank]; }
  [[nodiscard]] std::span<std::byte> slot(std::uint32_t rank, std::uint64_t chunk) const noexcept;

  /// Raises rank's own counter and wakes whoever sleeps.
  void advance(std::uint32_t rank, Counter counter, std::uint64_t value) noexcept;

  enum class Wait { reached, aborted, late };
  /// Until `of`'s counter is at least `value`, an abort, or `limit` later by the clock. Spins briefly, then sleeps.
  [[nodiscard]] Wait wait(std::uint32_t rank, std::uint32_t of, Counter counter, std::uint64_t value, const Clock& clock, Nanos limit) const;

  /// The first cause stays. Any thread of any member.
  void abort(const std::string& cause) noexcept;
  [[nodiscard]] bool aborted() const noexcept;
  [[nodiscard]] std::string cause() const;

 private:
  struct Header;
  SharedRegion(void* memory, const RegionShape& shape);
  static void sleep_on(std::atomic<std::uint32_t>& word, std::uint32_t seen, Nanos limit) noexcept;

  RegionShape shape_;
  std::byte* memory_;
  Header* header_;
  Member* members_;
  std::byte* chunks_;
};

}  // namespace troupe
