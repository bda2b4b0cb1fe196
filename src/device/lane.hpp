#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/base/clock.hpp"
#include "src/base/ids.hpp"
#include "src/base/lease.hpp"
#include "src/base/outcome.hpp"

namespace troupe {

/// The executors of one rank, each with the one actor that posts to it:
/// compute (Compute), comm and optimizer (Sharding), disk (DataLoader), copy and storage (Checkpoint).
enum class LaneKind : std::uint8_t { compute, comm, optimizer, disk, copy, storage };
inline constexpr std::size_t lane_count = 6;
[[nodiscard]] const char* name_of(LaneKind lane) noexcept;

/// Where work is put: a CUDA stream, or nothing on a CPU, where the lane's thread does the work at once.
class Stream {
 public:
  virtual ~Stream() = default;
  [[nodiscard]] virtual void* native() const noexcept { return nullptr; }  ///< cudaStream_t; null on a CPU
};

/// What an operation does to one slot; simulated lanes check these with vector clocks, real lanes ignore them.
struct SlotAccess {
  std::string_view edge;    ///< static storage
  std::uint32_t owner = 0;  ///< rank whose slot table it is
  SlotIndex slot;
  bool write = false;
};

/// An operation of one rank, whatever its lane.
struct EarlierOperation {
  Step step;
  OperationIndex index;
};

/// One entry of a lane's queue.
struct LaneOperation {
  std::string name;  ///< "forward L3", for the trace and for whoever asks what hangs
  Where where;
  OperationIndex index;  ///< position in the plan
  Nanos cost{0};         ///< estimated; what a simulated lane takes
  /// Whose results it uses (slots aside, which `accesses` names). A device that announces at issue waits for them on the device; others
  /// ignore it, since nothing is posted before its inputs are done.
  std::vector<EarlierOperation> after;
  /// What it makes true is of use to this rank's device lanes alone, and no slot that it gives back has a reader or writer elsewhere: with
  /// [runtime] run_ahead a device may call `done` when it has issued it.
  bool stays_on_device = false;
  /// CPU: does it; CUDA: enqueues it, and the operation is done when all that it put on the stream is. A throw is the outcome `failed`.
  /// A lane that is a thread of the host (disk, copy, storage) may block in it, as Device::wait does.
  std::function<void(Stream&)> work;
  std::vector<Lease> leases;  ///< held until the operation is done
  std::vector<SlotAccess> accesses;
  bool failure_halts_lane = false;           ///< if it fails, everything behind it ends as `halted`: a collective that one member leaves out
                                             ///< would make its next one meet the peers' earlier one
  std::function<void(const Outcome&)> done;  ///< exactly once, on the lane's completion thread, after the leases' work is over; must not block
};

/// What a lane is at; read by Inspect and the watchdog.
struct LaneProgress {
  std::uint64_t posted = 0, completed = 0;
  std::string oldest_pending;  ///< empty when idle
  Nanos pending_since{0};      ///< when that operation started, or was posted if it has not
};

/// One ordered executor. `post` never blocks; operations run in the order of posting. Any thread may call, but one actor posts.
class Lane {
 public:
  virtual ~Lane() = default;
  virtual void post(LaneOperation operation) = 0;
  /// Everything not yet finished ends as `halted` with this cause, as does all that is posted later, until the lane goes away.
  /// Work that is running goes on to its end: whoever halts a lane also aborts what the work may wait for (a collective).
  virtual void halt(std::string cause) = 0;
  [[nodiscard]] virtual LaneProgress progress() const = 0;
  /// Blocks until the lane is idle, at most `limit`; only the process's main thread calls it, at the end. False: still busy.
  [[nodiscard]] virtual bool drain(Nanos limit) = 0;
};

/// Told about each operation's life: the tracer's place in a lane.
class LaneObserver {
 public:
  virtual ~LaneObserver() = default;
  virtual void finished(LaneKind lane, const LaneOperation& operation, Nanos posted, Nanos started, Nanos ended, const Outcome& outcome) = 0;
};

/// A lane that is one thread of this host: every CPU lane, and the disk, copy and storage lanes everywhere. Its operations are done when
/// `work` returns, so what they put on a device's stream they wait for (Device::wait).
/// `observer` may be null; it and `clock` outlive the lane.
[[nodiscard]] std::unique_ptr<Lane> make_thread_lane(LaneKind kind, Rank rank, const Clock& clock, LaneObserver* observer);

}  // namespace troupe
