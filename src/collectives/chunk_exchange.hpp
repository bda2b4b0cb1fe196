#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/collectives/call_signature.hpp"

namespace troupe {

/// What a chunk is: the same bytes for every other member, or a part for each of them, in rank order and without the sender itself.
enum class ChunkKind : std::uint8_t { same, parts };

/// How the members of a communicator pass chunks: the seam between what a collective computes and what carries it. Chunks are numbered
/// over the communicator's life, alike on all members. One thread a member, but abort(). Every call throws CollectiveError when the
/// communicator is dead or a member stays silent for longer than the timeout.
class ChunkExchange {
 public:
  virtual ~ChunkExchange() = default;
  [[nodiscard]] virtual std::uint32_t rank() const noexcept = 0;
  [[nodiscard]] virtual std::uint32_t size() const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t chunk_bytes() const noexcept = 0;
  [[nodiscard]] virtual std::uint32_t chunks() const noexcept = 0;  ///< that may be on their way at once, at least one

  /// Tells the others what this member calls.
  virtual void begin(const CallSignature& signature) = 0;
  /// All members' calls by rank, when all have begun the same call number.
  [[nodiscard]] virtual std::vector<CallSignature> calls() = 0;
  /// Where to write chunk `round`; blocks until it is free.
  [[nodiscard]] virtual std::span<std::byte> outgoing(std::uint64_t round) = 0;
  /// What was written there goes out: `bytes` of it, or of each part. Zero: nobody will ask for it.
  virtual void send(std::uint64_t round, ChunkKind kind, std::uint64_t bytes) = 0;
  /// What `peer` sent this member as `round`, valid until release(round); blocks until it is there.
  [[nodiscard]] virtual std::span<const std::byte> incoming(std::uint32_t peer, std::uint64_t round, ChunkKind kind) = 0;
  /// This member has read all that it wants of `round`.
  virtual void release(std::uint64_t round) = 0;

  virtual void abort(const std::string& cause) noexcept = 0;
  /// Aborts and throws what then holds: the first cause.
  [[noreturn]] virtual void fail(const std::string& cause) = 0;

  /// Bytes of one member's part of a chunk of kind `parts`, a multiple of 64.
  [[nodiscard]] std::uint64_t part_bytes() const noexcept { return chunk_bytes() / (size() > 2 ? size() - 1 : 1) / 64 * 64; }
  /// Where the part for `to` starts in `from`'s chunk.
  [[nodiscard]] std::uint64_t part_offset(std::uint32_t from, std::uint32_t to) const noexcept { return part_bytes() * (to < from ? to : to - 1); }
};

/// The chunk size that holds a part for every other member and is a multiple of 64.
[[nodiscard]] constexpr std::uint64_t usable_chunk_bytes(std::uint64_t wanted, std::uint32_t members) noexcept {
  const std::uint64_t least = std::uint64_t{64} * (members > 2 ? members - 1 : 1);
  return ((wanted > least ? wanted : least) + 63) / 64 * 64;
}

}  // namespace troupe
