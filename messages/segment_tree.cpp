#include "messages/segment_tree.hpp"

#include <cstddef>

namespace troupe {
namespace {

constexpr int depth_limit = 16;

/// The bits of a pointer, as https://capnproto.org/encoding.html has them.
struct Pointer {
  explicit Pointer(std::uint64_t word)
      : kind(word & 3),
        offset(static_cast<std::int32_t>(static_cast<std::uint32_t>(word)) >> 2),
        data_words(word >> 32 & 0xffff),
        pointers(word >> 48),
        element(word >> 32 & 7),
        count(word >> 35) {}
  std::uint64_t kind;                  ///< 0 struct, 1 list, 2 far, 3 other
  std::int64_t offset;                 ///< words from the pointer's end
  std::uint64_t data_words, pointers;  ///< of a struct
  std::uint64_t element, count;        ///< of a list
};

class Walk {
 public:
  explicit Walk(std::span<const std::uint64_t> segment) : segment_(segment) {}
  std::optional<std::string> problem;

  void pointers(std::uint64_t first, std::uint64_t count, int depth) {
    for (std::uint64_t at = first; at < first + count && !problem; ++at) follow(at, depth);
  }

 private:
  void follow(std::uint64_t at, int depth) {
    if (++visited_ > segment_.size()) return refuse(at, "pointers that overlap");
    if (depth > depth_limit) return refuse(at, "nested too deeply");
    if (segment_[at] == 0) return;
    const Pointer pointer(segment_[at]);
    const std::int64_t start = static_cast<std::int64_t>(at) + 1 + pointer.offset;
    if (pointer.kind > 1) return refuse(at, pointer.kind == 2 ? "a pointer into another segment" : "a capability");
    if (start < 0) return refuse(at, "a pointer before the segment");
    if (pointer.kind == 0) {
      if (!holds(at, start, pointer.data_words + pointer.pointers)) return;
      return pointers(static_cast<std::uint64_t>(start) + pointer.data_words, pointer.pointers, depth + 1);
    }
    list(at, static_cast<std::uint64_t>(start), pointer, depth);
  }

  void list(std::uint64_t at, std::uint64_t start, const Pointer& pointer, int depth) {
    constexpr std::uint64_t bits[] = {0, 1, 8, 16, 32, 64, 64};
    if (pointer.element < 7) {
      if (!holds(at, static_cast<std::int64_t>(start), (pointer.count * bits[pointer.element] + 63) / 64)) return;
      if (pointer.element == 6) pointers(start, pointer.count, depth + 1);
      return;
    }
    if (!holds(at, static_cast<std::int64_t>(start), pointer.count + 1)) return;
    const Pointer tag(segment_[start]);
    const std::uint64_t elements = static_cast<std::uint64_t>(tag.offset) & 0x3fffffff, width = tag.data_words + tag.pointers;
    if (tag.kind != 0 || elements * width > pointer.count) return refuse(at, "a list with a wrong tag");
    for (std::uint64_t i = 0; i < elements && tag.pointers != 0 && !problem; ++i) pointers(start + 1 + i * width + tag.data_words, tag.pointers, depth + 1);
  }

  bool holds(std::uint64_t at, std::int64_t start, std::uint64_t words) {
    const bool inside = static_cast<std::uint64_t>(start) + words <= segment_.size();
    if (!inside) refuse(at, "a pointer past the segment's end");
    return inside;
  }

  void refuse(std::uint64_t at, const char* what) { problem = std::string(what) + ", at word " + std::to_string(at); }

  std::span<const std::uint64_t> segment_;
  std::uint64_t visited_ = 0;
};

}  // namespace

std::optional<std::string> segment_problem(std::span<const std::uint64_t> segment) {
  if (segment.empty()) return "no root";
  Walk walk(segment);
  walk.pointers(0, 1, 0);
  return walk.problem;
}

}  // namespace troupe
