#include "src/runtime/edge_memory.hpp"

#include <fmt/format.h>

namespace troupe {
namespace {

constexpr std::array<EdgeKind, edge_count> edges{EdgeKind::batches, EdgeKind::weights, EdgeKind::gradients, EdgeKind::snapshots};

std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

std::size_t SlotBytes::of(EdgeKind edge) const noexcept {
  switch (edge) {
    case EdgeKind::batches: return batches;
    case EdgeKind::weights: return weights;
    case EdgeKind::gradients: return gradients;
    case EdgeKind::snapshots: return snapshots;
  }
  return 0;
}

EdgeLayout EdgeLayout::plan(const SlotCounts& counts, const SlotBytes& bytes) {
  EdgeLayout layout;
  for (const EdgeKind edge : edges) {
    Region& region = layout.regions[static_cast<std::size_t>(edge)];
    region.edge = edge;
    region.slots = counts.of(edge);
    region.slot_bytes = bytes.of(edge);
    region.placement = edge == EdgeKind::snapshots ? Placement::host : Placement::device;
    region.stride = round_up(region.slot_bytes, region.placement == Placement::host ? EdgeLayout::host_alignment : EdgeLayout::alignment);
    std::size_t& arena = region.placement == Placement::host ? layout.host_bytes : layout.device_bytes;
    region.offset = arena;
    arena += region.slots * region.stride;
  }
  return layout;
}

std::string EdgeLayout::describe() const {
  std::string text;
  for (const Region& region : regions) {
    text += fmt::format("{:<10} {} × {} B = {} B ({})\n", name_of(region.edge), region.slots, region.stride, region.slots * region.stride,
                        region.placement == Placement::host ? "host" : "device");
  }
  return text + fmt::format("{:<10} {} B device, {} B host", "arenas", device_bytes, host_bytes);
}

EdgeMemory::EdgeMemory(const EdgeLayout& layout, Device* device) : layout_(layout) {
  const auto allocate = [&](std::size_t bytes, Placement placement) { return device ? device->allocate(bytes, placement) : allocate_host(bytes); };
  device_arena_ = allocate(layout.device_bytes, Placement::device);
  host_arena_ = allocate(layout.host_bytes, Placement::host);
}

std::vector<std::span<std::byte>> EdgeMemory::slots(EdgeKind edge) const {
  const EdgeLayout::Region& region = layout_.of(edge);
  const Buffer& arena = region.placement == Placement::host ? *host_arena_ : *device_arena_;
  std::vector<std::span<std::byte>> result;
  for (std::uint32_t i = 0; i < region.slots; ++i) result.push_back(arena.bytes().subspan(region.offset + i * region.stride, region.slot_bytes));
  return result;
}

std::size_t EdgeMemory::allocated_bytes() const noexcept { return device_arena_->bytes().size() + host_arena_->bytes().size(); }

}  // namespace troupe
