#pragma once
#include <memory>
#include <string>

#include "src/collectives/communicator.hpp"
#include "src/device/kernels.hpp"

namespace troupe {

struct NcclOptions {
  std::string name;  ///< "dp_shard", for errors
  int device = 0;    ///< CUDA's number of this rank's device
  Kernels* kernels = nullptr;
};

/// Collectives of GPUs over NCCL, for memory of Placement::device (and pinned host memory). Every member makes it at the same time:
/// `meeting` is a communicator of the same members that works on host memory, and brings NCCL's id from member 0 to the others; it is not
/// used after that.
///
/// What differs from other communicators: reduce_scatter may overwrite the own part of its input where it accumulates; sums are fp32 in
/// NCCL's order, which repeats for one topology and size but is not rank order; members' calls are not compared (the plans' hashes are,
/// before the epoch), and a dead or silent member is not noticed: whoever sees it calls abort on all, from a thread that is not inside a
/// call. After an abort the stream goes on as if all had been well, so what the collectives wrote must not be used (the verdict's tag and
/// the halt word see to that).
/// Blocks until all have come; throws CollectiveError.
[[nodiscard]] std::unique_ptr<Communicator> make_nccl_communicator(const NcclOptions& options, Communicator& meeting);

}  // namespace troupe
