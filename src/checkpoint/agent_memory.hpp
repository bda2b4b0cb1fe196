#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/base/ids.hpp"
#include "src/base/result.hpp"

namespace troupe {

/// The snapshots of all ranks of a host in memory that its host agent owns: a file without a name that the agent and every worker hold open, so
/// that it outlives the workers. Each rank has a region of its own, which it alone writes: 64 KiB for whoever wants to note something there, and some
/// slots. The Coordinator says which slot is written; a slot counts only when its header, written last, says that it is whole. Any process may
/// read what any rank has left there: so another number of ranks can go on from it (kept_state.hpp).
class AgentMemory {
 public:
  static constexpr std::uint32_t most_slots = 7;
  static constexpr std::uint32_t largest_place = 1U << 20U;

  /// The agent's side: memory without content. Closes on exec, so pass it on by dup. The error says what the system said.
  [[nodiscard]] static Result<int> create();

  /// The worker's side: `descriptor` is what the agent passed; `place`: the rank, whose region it writes. Nothing is mapped before it is used.
  /// Takes over nothing: the descriptor stays open.
  AgentMemory(int descriptor, std::uint32_t place);
  ~AgentMemory();
  AgentMemory(const AgentMemory&) = delete;
  AgentMemory& operator=(const AgentMemory&) = delete;

  static constexpr std::size_t note_bytes = std::size_t{64} << 10U;
  /// Shared bytes, zero at first, that outlive the worker too. Both sides may map them. Throws std::runtime_error.
  [[nodiscard]] std::span<std::byte> notes();

  [[nodiscard]] std::uint32_t place() const noexcept { return place_; }
  /// Room for snapshots of this size in the first `slots`; what is there stays. Throws std::runtime_error, naming bytes, when there is none.
  void reserve(std::uint64_t bytes, std::uint32_t slots = 2);
  /// The same in this slot alone.
  void reserve_one(std::uint64_t bytes, std::uint32_t slot);
  enum class Writer : std::uint8_t { rank, courier };
  /// Begins to overwrite a slot: it is not whole from here on. Returns the bytes that were reserved. `writer`: the rank's process, or whoever brings copies.
  [[nodiscard]] std::span<std::byte> open(std::uint32_t slot, Writer writer = Writer::rank);
  /// Its rank has opened this slot and not sealed it: nobody else is to write there.
  [[nodiscard]] bool written_by_rank(std::uint32_t slot) const;
  /// The slot is whole: its first `bytes` are a snapshot.
  void seal(std::uint32_t slot, EpochId epoch, Step step, std::uint64_t bytes);

  /// What a rank left in a slot, mapped for reading as long as this lives.
  class Kept {
   public:
    Kept(std::uint32_t place, void* mapped, std::size_t length, std::span<const std::byte> bytes)
        : place_(place), mapped_(mapped), length_(length), bytes_(bytes) {}
    Kept(Kept&& other) noexcept;
    Kept& operator=(Kept&&) = delete;
    ~Kept();
    [[nodiscard]] std::uint32_t place() const noexcept { return place_; }
    [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }

   private:
    std::uint32_t place_;
    void* mapped_;
    std::size_t length_;
    std::span<const std::byte> bytes_;
  };
  /// Of all ranks that have this slot whole, of this epoch and step; the own region first. The error says what the own one holds instead, when
  /// there is none at all.
  [[nodiscard]] Result<std::vector<Kept>> find(std::uint32_t slot, EpochId epoch, Step step) const;
  /// The same of the own region alone.
  [[nodiscard]] Result<Kept> own(std::uint32_t slot, EpochId epoch, Step step) const;
  /// What stands whole in the own region.
  struct Whole {
    std::uint32_t slot;
    EpochId epoch;
    Step step;
  };
  [[nodiscard]] std::vector<Whole> whole() const;
  /// The regions that there are in this memory.
  [[nodiscard]] static std::vector<std::uint32_t> places(int descriptor);
  /// Gives back the memory of this region's snapshots of epochs before this one, and of what is not whole. Nobody may have them mapped for writing.
  void forget(EpochId before) const;

 private:
  struct Header;
  struct Seen;
  [[nodiscard]] static std::optional<Seen> look(int descriptor, std::uint32_t place, std::uint32_t slot);
  [[nodiscard]] static std::optional<Seen> look(int descriptor, std::uint32_t place, std::uint32_t slot, std::uint64_t state);
  struct Mapped {
    std::byte* base = nullptr;  ///< the header's page, then the snapshot
    std::uint64_t bytes = 0;    ///< of the snapshot
  };
  [[nodiscard]] Header& header(std::uint32_t slot) const;
  void take(std::uint64_t bytes, std::uint32_t slot, const std::string& what);
  int descriptor_;
  std::uint32_t place_;
  std::array<Mapped, most_slots> mapped_;
  std::byte* notes_ = nullptr;
};

}  // namespace troupe
