#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "src/collectives/communicator.hpp"

namespace troupe {

enum class CollectiveKind : std::uint32_t { none, all_gather, reduce_scatter, all_reduce, broadcast, all_to_all };

/// What a member's call looks like; members of a communicator compare these before any result is used. A value that lies in
/// memory shared by processes or travels between hosts, so fixed-size and trivially copyable. All sizes are 64-bit.
struct CallSignature {
  CollectiveKind kind = CollectiveKind::none;
  std::uint32_t dtype = 0;   ///< a DType
  std::uint32_t detail = 0;  ///< all_reduce: the Reduction; broadcast: the root
  std::uint32_t pieces = 0;  ///< of a grouped call
  std::uint64_t bytes = 0;   ///< one member's part, all pieces together
  std::uint64_t layout = 0;  ///< hash of the pieces' sizes in order
  std::uint64_t call = 0;    ///< number of the call on this communicator, from 1
  bool operator==(const CallSignature&) const = default;
};

[[nodiscard]] CallSignature signature_of(std::span<const GatherPiece> pieces) noexcept;
[[nodiscard]] CallSignature signature_of(std::span<const ReducePiece> pieces) noexcept;

/// "all_reduce(sum, float32, 1 piece, 1024 bytes)"
[[nodiscard]] std::string describe(const CallSignature& signature);

/// The error text when the members' calls differ: names the first member whose call is not member 0's, and both calls. Empty if all
/// agree. `members[r]` is member r's call; the text is the same whoever computes it.
[[nodiscard]] std::string describe_mismatch(std::span<const CallSignature> members);

}  // namespace troupe
