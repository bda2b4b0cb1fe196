#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

#include "src/base/clock.hpp"
#include "src/base/ids.hpp"
#include "src/device/lane.hpp"
#include "src/device/tensor_view.hpp"

namespace troupe {

/// A collective that did not happen: aborted, timed out, or called differently by its members. `what()` names the communicator,
/// the ranks, and both sides of a mismatch.
struct CollectiveError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class Reduction { sum, max };

/// One piece of a grouped all-gather, in place: member r's part is [r · bytes, (r+1) · bytes) of data.
struct GatherPiece {
  std::byte* data;
  std::size_t bytes;
};
/// One piece of a grouped reduce-scatter of fp32: input holds size() parts of count values, output receives the own part's sum.
struct ReducePiece {
  const float* input;
  float* output;
  std::size_t count;
  bool accumulate = false; /**< output += */
};

/// A group of ranks that call the same operations in the same order, from one thread a member at a time. Calls return when the
/// work is on `stream` (CPU: when it is done). Sums are in rank order, in the type given, so results repeat bit for bit and are the
/// same on all members and for threads and processes alike. Every member's call is compared (operation, bytes, type): a mismatch,
/// an abort or a member silent for longer than the timeout throws CollectiveError, and the communicator is dead from then on.
class Communicator {
 public:
  virtual ~Communicator() = default;
  [[nodiscard]] virtual std::uint32_t rank() const noexcept = 0;
  [[nodiscard]] virtual std::uint32_t size() const noexcept = 0;
  virtual void all_gather(Stream&, std::span<const GatherPiece> pieces) = 0;
  virtual void reduce_scatter(Stream&, std::span<const ReducePiece> pieces) = 0;
  /// In place; contiguous fp32 or fp64.
  virtual void all_reduce(Stream&, TensorView values, Reduction reduction) = 0;
  virtual void broadcast(Stream&, std::span<std::byte> data, std::uint32_t root) = 0;
  /// Part r of `input` goes to member r's `output`, at the sender's place. Equal parts.
  virtual void all_to_all(Stream&, std::span<const std::byte> input, std::span<std::byte> output) = 0;
  /// Any thread, at any time, repeatedly: what runs or is called later throws with this cause, on this member at once and on the
  /// others as soon as they notice.
  virtual void abort(const std::string& cause) noexcept = 0;
};

}  // namespace troupe
