#pragma once
#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "messages/edge_kind.hpp"
#include "src/device/device.hpp"
#include "src/runtime/plan.hpp"

namespace troupe {

/// Bytes of one slot of each edge, as the programs say (the largest unit's).
struct SlotBytes {
  std::size_t batches = 0, weights = 0, gradients = 0, snapshots = 0;
  [[nodiscard]] std::size_t of(EdgeKind edge) const noexcept;
};

/// Where the slots of all edges lie: known, and printable, before anything is allocated. A pure value.
struct EdgeLayout {
  struct Region {
    EdgeKind edge{};
    std::uint32_t slots = 0;
    std::size_t slot_bytes = 0;  ///< as asked for
    std::size_t stride = 0;      ///< rounded up to `alignment`
    std::size_t offset = 0;      ///< in its arena
    Placement placement{};       ///< snapshots lie in host memory, all others on the device
  };
  static constexpr std::size_t alignment = 256;
  static constexpr std::size_t host_alignment = 4096;  ///< files are written from host slots, past the system's cache
  std::array<Region, edge_count> regions{};
  std::size_t device_bytes = 0, host_bytes = 0;  ///< of the two arenas

  [[nodiscard]] static EdgeLayout plan(const SlotCounts& counts, const SlotBytes& bytes);
  [[nodiscard]] const Region& of(EdgeKind edge) const noexcept { return regions[static_cast<std::size_t>(edge)]; }
  /// One line an edge: "weights      2 × 1,048,576 B = 2,097,152 B (device)".
  [[nodiscard]] std::string describe() const;
};

/// The arenas themselves: allocated once, before step one.
class EdgeMemory {
 public:
  /// `device` null: host memory for everything (tests, the simulator). Throws std::bad_alloc.
  EdgeMemory(const EdgeLayout& layout, Device* device);
  [[nodiscard]] std::vector<std::span<std::byte>> slots(EdgeKind edge) const;
  [[nodiscard]] const EdgeLayout& layout() const noexcept { return layout_; }
  /// What was really allocated, both arenas.
  [[nodiscard]] std::size_t allocated_bytes() const noexcept;

 private:
  EdgeLayout layout_;
  std::unique_ptr<Buffer> device_arena_, host_arena_;
};

}  // namespace troupe
