#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace troupe {

/// `beside_cache`: straight to memory, without asking other processors for the lines and without driving anything out of the cache.
enum class Stores : std::uint8_t { through_cache, beside_cache };

/// Copies a payload piece by piece and hashes it on the way, while it is in the cache: the hash costs next to nothing beside the copy.
/// A payload is copied in one of two ways. One thread at a time; never blocks.
class HashedCopy {
 public:
  /// `bytes`: of the whole payload, which the pieces add up to.
  explicit HashedCopy(std::uint64_t bytes);
  ~HashedCopy();
  HashedCopy(const HashedCopy&) = delete;
  HashedCopy& operator=(const HashedCopy&) = delete;

  /// The next piece; fastest in multiples of 1 KiB. What is hashed is what stands at `to` afterwards, also if `from` changes meanwhile.
  /// Stores go beside the cache only where `to` is a multiple of 64.
  void copy(std::byte* to, std::span<const std::byte> from, Stores stores = Stores::through_cache) noexcept;
  /// The next piece, to memory that another process reads, and may write. What is hashed is what stands at `from`.
  void copy_to_shared(std::byte* to, std::span<const std::byte> from, Stores stores = Stores::beside_cache) noexcept;
  /// payload_hash() of all that was copied.
  [[nodiscard]] std::uint64_t hash() const noexcept;

 private:
  struct State;
  std::size_t copy_blocks(Stores stores, std::byte* to, std::span<const std::byte> from) noexcept;
  std::unique_ptr<State> state_;
  std::uint64_t left_;
  bool whole_blocks_ = true;  ///< so far
};

}  // namespace troupe
