#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "src/checkpoint/agent_memory.hpp"
#include "src/device/state_tensor.hpp"
#include "src/model/programs.hpp"

namespace troupe {

/// How a rank's state becomes one run of bytes and comes back.
struct KeepOptions {
  /// Puts a copy of contiguous device memory to host memory on the stream; empty: memcpy.
  std::function<void(Stream&, const TensorView& from, std::byte* to)> copy_out;
  /// Copies host memory into contiguous device memory; empty: memcpy.
  std::function<void(const std::byte* from, const TensorView& to)> copy_in;
  std::uint32_t slots = 2;  ///< of the memory
};

/// Keeps a rank's state in `memory`, which outlives it; `state` names memory that outlives it and is read in keep() alone. Reserves at once.
/// A snapshot begins with a table of its tensors, each with the rows that lie there and their hash.
[[nodiscard]] std::unique_ptr<KeepProgram> make_keep_program(StateTensors state, KeepOptions options, AgentMemory& memory);

/// Fills the state from the snapshots that the ranks of an epoch have left in this slot: each tensor's rows from whichever rank has kept them, so
/// that other ranks, or another mesh, go on from it. What is read is checked; of replicas a damaged one is passed over. Blocks.
/// True: all was there. False: but for tensors whose names begin with `may_lack`, which are left as they are. The error says what is wanted and
/// what is found; nothing is promised about `state` then.
[[nodiscard]] Result<bool> restore_kept(const StateTensors& state, const KeepOptions& options, const AgentMemory& memory, std::uint32_t slot, EpochId epoch,
                                        Step step, std::string_view may_lack = {});

/// Bytes of one snapshot of this state.
[[nodiscard]] std::uint64_t kept_bytes(const StateTensors& state);

}  // namespace troupe
