#include "src/collectives/call_signature.hpp"

#include <type_traits>

#include "src/base/fnv.hpp"

namespace troupe {
namespace {

static_assert(std::is_trivially_copyable_v<CallSignature>);

const char* name_of(CollectiveKind kind) noexcept {
  switch (kind) {
    case CollectiveKind::none: return "nothing";
    case CollectiveKind::all_gather: return "all_gather";
    case CollectiveKind::reduce_scatter: return "reduce_scatter";
    case CollectiveKind::all_reduce: return "all_reduce";
    case CollectiveKind::broadcast: return "broadcast";
    case CollectiveKind::all_to_all: return "all_to_all";
  }
  return "unknown";
}

}  // namespace

CallSignature signature_of(std::span<const GatherPiece> pieces) noexcept {
  CallSignature signature{.kind = CollectiveKind::all_gather, .dtype = static_cast<std::uint32_t>(DType::u8), .layout = fnv_start};
  signature.pieces = static_cast<std::uint32_t>(pieces.size());
  for (const auto& piece : pieces) {
    signature.bytes += piece.bytes;
    signature.layout = fnv1a(std::uint64_t{piece.bytes}, signature.layout);
  }
  return signature;
}

CallSignature signature_of(std::span<const ReducePiece> pieces) noexcept {
  CallSignature signature{.kind = CollectiveKind::reduce_scatter, .dtype = static_cast<std::uint32_t>(DType::f32), .layout = fnv_start};
  signature.pieces = static_cast<std::uint32_t>(pieces.size());
  for (const auto& piece : pieces) {
    signature.bytes += std::uint64_t{piece.count} * sizeof(float);
    signature.layout = fnv1a(std::uint64_t{piece.count}, signature.layout);
  }
  return signature;
}

std::string describe(const CallSignature& signature) {
  std::string text = std::string(name_of(signature.kind)) + "(";
  if (signature.kind == CollectiveKind::all_reduce) text += signature.detail == static_cast<std::uint32_t>(Reduction::max) ? "max, " : "sum, ";
  if (signature.kind == CollectiveKind::broadcast) text += "root " + std::to_string(signature.detail) + ", ";
  text += std::string(troupe::name_of(static_cast<DType>(signature.dtype))) + ", " + std::to_string(signature.pieces) +
          (signature.pieces == 1 ? " piece, " : " pieces, ") + std::to_string(signature.bytes) + " bytes a rank)";
  return text;
}

std::string describe_mismatch(std::span<const CallSignature> members) {
  for (std::size_t rank = 1; rank < members.size(); ++rank) {
    if (members[rank] == members[0]) continue;
    std::string text = "call " + std::to_string(members[0].call) + " differs between members: rank 0 calls " + describe(members[0]) + ", rank " +
                       std::to_string(rank) + " calls " + describe(members[rank]);
    if (members[rank].call != members[0].call) text += " as its call " + std::to_string(members[rank].call);
    if (describe(members[rank]) == describe(members[0])) text += ", with other sizes of the single pieces";
    return text + "; all members must call the same operations in the same order with the same sizes";
  }
  return {};
}

}  // namespace troupe
