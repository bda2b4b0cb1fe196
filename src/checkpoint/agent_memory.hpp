#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "src/base/ids.hpp"
#include "src/base/result.hpp"
#include "src/device/state_tensor.hpp"
#include "src/model/programs.hpp"

namespace troupe {

/// The snapshots of one worker process in memory that its host agent owns: a file without a name that both hold open, so that it outlives the
/// worker. For each of the process's ranks a region: 64 KiB for whoever wants to note something there, a header, and two slots, each a copy of the rank's
/// training state with its hash. The Coordinator says which slot is written; a slot counts only when its header, written last, says that it is whole.
class AgentMemory {
 public:
  /// The agent's side: memory without content. Closes on exec, so pass it on by dup. The error says what the system said.
  [[nodiscard]] static Result<int> create();

  /// The worker's side: `descriptor` is what the agent passed; `place`: which of the process's ranks. Nothing is mapped before it is used.
  /// Takes over nothing: the descriptor stays open.
  AgentMemory(int descriptor, std::uint32_t place);
  ~AgentMemory();
  AgentMemory(const AgentMemory&) = delete;
  AgentMemory& operator=(const AgentMemory&) = delete;

  static constexpr std::size_t note_bytes = std::size_t{64} << 10U;
  /// Shared bytes, zero at first, that outlive the worker too. Both sides may map them. Throws std::runtime_error.
  [[nodiscard]] std::span<std::byte> notes();

  /// Room for two snapshots of this size; what is there of the same size stays. Throws std::runtime_error, naming bytes, when there is none.
  void reserve(std::uint64_t bytes);
  /// Begins to overwrite a slot: it is not whole from here on. Returns its bytes.
  [[nodiscard]] std::span<std::byte> open(std::uint32_t slot);
  /// The slot is whole.
  void seal(std::uint32_t slot, EpochId epoch, Step step, std::uint64_t layout, std::uint64_t hash);
  /// The slot's bytes if it holds this snapshot whole and of this layout; else what is found instead. The hash is the reader's to check.
  [[nodiscard]] Result<std::span<const std::byte>> find(std::uint32_t slot, EpochId epoch, Step step, std::uint64_t layout) const;
  [[nodiscard]] std::uint64_t hash(std::uint32_t slot) const;  ///< that was written with it

 private:
  struct Header;
  [[nodiscard]] std::byte* bytes_of(std::uint32_t slot) const;
  int descriptor_;
  std::uint64_t offset_;
  std::uint64_t mapped_ = 0, slot_bytes_ = 0;
  std::byte* base_ = nullptr;
  std::byte* notes_ = nullptr;
};

/// How a rank's state becomes one run of bytes and comes back.
struct KeepOptions {
  /// Puts a copy of contiguous device memory to host memory on the stream; empty: memcpy.
  std::function<void(Stream&, const TensorView& from, std::byte* to)> copy_out;
  /// Copies host memory into contiguous device memory; empty: memcpy.
  std::function<void(const std::byte* from, const TensorView& to)> copy_in;
};

/// Keeps a rank's state in `memory`, which outlives it; `state` names memory that outlives it and is read in keep() alone. Reserves at once.
[[nodiscard]] std::unique_ptr<KeepProgram> make_keep_program(StateTensors state, KeepOptions options, AgentMemory& memory);

/// Fills the state from a snapshot. Blocks. The error says which is wanted and what is found; nothing is promised about `state` then.
[[nodiscard]] Result<void> restore_kept(const StateTensors& state, const KeepOptions& options, const AgentMemory& memory, std::uint32_t slot, EpochId epoch,
                                        Step step);

/// Bytes of one snapshot of this state.
[[nodiscard]] std::uint64_t kept_bytes(const StateTensors& state);

}  // namespace troupe
