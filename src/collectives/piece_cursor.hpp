#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace troupe {

/// Walks the pieces of a grouped call as if they lay one behind the other, some of it at a time. A value, used by one thread.
class PieceCursor {
 public:
  /// Advances by `budget` units, or to the end, calling visit(piece, offset in the piece, count, offset in this walk) for each stretch.
  template <class SizeOf, class Visit>
  void walk(std::size_t pieces, SizeOf size_of, std::uint64_t budget, Visit visit) {
    for (std::uint64_t walked = 0; piece_ < pieces && walked < budget;) {
      const std::uint64_t count = std::min(budget - walked, size_of(piece_) - offset_);
      if (count > 0) visit(piece_, offset_, count, walked);
      walked += count;
      offset_ += count;
      if (offset_ < size_of(piece_)) return;
      ++piece_;
      offset_ = 0;
    }
  }

 private:
  std::size_t piece_ = 0;
  std::uint64_t offset_ = 0;
};

}  // namespace troupe
