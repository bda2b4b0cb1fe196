#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include "src/device/cuda/cuda_stream.hpp"
#include "src/device/lane.hpp"

namespace troupe::cuda {

/// Runs the lanes of one device that are streams (compute, comm, optimizer). One thread issues every operation, whichever lane and actor
/// it comes from; among those that wait it takes the one that stands first in the plan. Another thread looks at the events behind them
/// and tells who is done. No thread waits on the device, so a dead collective blocks neither.
///
/// With run_ahead = n > 0 an operation that says stays_on_device is announced when it is issued: what it depends on (its `after`, and the
/// earlier users of its slots) became waits on events that this same thread recorded before, so no wait can come before its record. At
/// most n operations of the compute lane are with the device, or the issuer would sit inside launch calls and could not be halted.
/// An error that comes after the announcement halts the lane: the next operation reports it.
class StreamExecutor : public std::enable_shared_from_this<StreamExecutor> {
 public:
  StreamExecutor(int device, std::uint32_t run_ahead);
  ~StreamExecutor();
  StreamExecutor(const StreamExecutor&) = delete;
  StreamExecutor& operator=(const StreamExecutor&) = delete;
  [[nodiscard]] std::unique_ptr<Lane> open_lane(LaneKind kind, const Clock& clock, LaneObserver* observer);

 private:
  class StreamLane;
  struct Events {
    cudaEvent_t begin = nullptr, end = nullptr;
  };
  struct Queued {
    LaneOperation operation;
    Nanos posted{0};
  };
  struct Issued {
    LaneOperation operation;
    Nanos posted{0}, issued{0};
    Events events;  ///< null: nothing was put on the stream
    Outcome outcome;
    bool announced = false;
  };
  /// Guarded by mutex_, but for the stream. Shared, because the poller looks at an event without the lock.
  struct LaneState {
    LaneState(LaneKind k, const Clock& c, LaneObserver* o, int device)
        : kind(k), clock(c), observer(o), stream(device, k == LaneKind::comm ? CudaStream::Priority::high : CudaStream::Priority::normal) {}
    const LaneKind kind;
    const Clock& clock;
    LaneObserver* const observer;
    CudaStream stream;
    std::deque<Queued> queue;
    std::deque<Issued> flight;
    std::uint64_t posted = 0, completed = 0;
    bool halted = false, issuing = false;
    std::string cause, issuing_name;
    Nanos issuing_since{0}, looked{0}, ended{0};  ///< looked: when the oldest was last seen unfinished; ended: the one before it
    Events previous;                              ///< of the one before: its end is the zero of the next one's times
    [[nodiscard]] bool idle() const noexcept { return queue.empty() && flight.empty() && !issuing; }
  };
  using LanePointer = std::shared_ptr<LaneState>;
  using OperationKey = std::pair<std::uint64_t, std::uint32_t>;  ///< step, index in its plan
  struct SlotUsers {
    OperationKey writer{};
    bool written = false;
    std::vector<OperationKey> readers;
  };

  void issue_all();
  void poll_all();
  [[nodiscard]] LanePointer next_lane() const;
  [[nodiscard]] Issued issue(LaneState& lane, Queued queued, Outcome outcome, const std::vector<cudaEvent_t>& inputs);
  [[nodiscard]] bool look_at(std::unique_lock<std::mutex>& lock, const LanePointer& lane);
  void end(std::unique_lock<std::mutex>& lock, LaneState& lane, cudaError_t code);
  [[nodiscard]] std::pair<Nanos, Nanos> times_of(LaneState& lane, const Issued& issued, Nanos now) const;
  [[nodiscard]] std::vector<cudaEvent_t> inputs_of(const LaneState& lane, const LaneOperation& operation);
  [[nodiscard]] Events take_events();
  static OperationKey key_of(const LaneOperation& operation) { return {operation.where.step.value(), operation.index.value()}; }

  const int device_;
  const std::size_t run_ahead_;
  std::mutex mutex_;
  std::condition_variable posted_, issued_, idle_;
  std::vector<LanePointer> lanes_;
  std::map<OperationKey, std::pair<const LaneState*, cudaEvent_t>> in_flight_;  ///< kept with run_ahead alone
  std::map<std::tuple<std::string_view, std::uint32_t, std::uint32_t>, SlotUsers> slots_;
  std::vector<Events> spare_;
  bool stopping_ = false;
  std::thread issuer_, poller_;
};

}  // namespace troupe::cuda
