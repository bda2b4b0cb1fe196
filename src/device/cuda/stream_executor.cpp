#include "src/device/cuda/stream_executor.hpp"

#include <pthread.h>

#include <algorithm>
#include <exception>

#include "src/device/cuda/kernels/element.hpp"

namespace troupe::cuda {
namespace {

/// Between two looks at events that are not done. Shorter gains nothing at operations of a millisecond (a sleeping thread wakes in 50 to
/// 100 µs), and two spinning threads a rank cost two cores.
constexpr std::chrono::microseconds look_interval{50};

Nanos of_milliseconds(float milliseconds) { return Nanos{static_cast<Nanos::rep>(static_cast<double>(milliseconds) * 1e6)}; }

}  // namespace

class StreamExecutor::StreamLane final : public Lane {
 public:
  StreamLane(std::shared_ptr<StreamExecutor> executor, LanePointer state) : executor_(std::move(executor)), state_(std::move(state)) {}
  ~StreamLane() override {
    std::unique_lock lock(executor_->mutex_);
    executor_->idle_.wait(lock, [this] { return state_->idle(); });
    std::erase(executor_->lanes_, state_);
  }
  StreamLane(const StreamLane&) = delete;
  StreamLane& operator=(const StreamLane&) = delete;

  void post(LaneOperation operation) override {
    {
      const std::lock_guard lock(executor_->mutex_);
      ++state_->posted;
      state_->queue.push_back({std::move(operation), state_->clock.now()});
    }
    executor_->posted_.notify_one();
  }
  void halt(std::string cause) override {
    const std::lock_guard lock(executor_->mutex_);
    if (state_->halted) return;
    state_->halted = true;
    state_->cause = std::move(cause);
    executor_->posted_.notify_one();  // what waits for the run-ahead's limit may end now
  }
  [[nodiscard]] LaneProgress progress() const override {
    const std::lock_guard lock(executor_->mutex_);
    LaneProgress result{state_->posted, state_->completed, {}, Nanos{0}};
    if (!state_->flight.empty()) {
      result.oldest_pending = state_->flight.front().operation.name;
      result.pending_since = std::max(state_->flight.front().issued, state_->ended);
    } else if (state_->issuing) {
      result.oldest_pending = state_->issuing_name;
      result.pending_since = state_->issuing_since;
    } else if (!state_->queue.empty()) {
      result.oldest_pending = state_->queue.front().operation.name;
      result.pending_since = state_->queue.front().posted;
    }
    return result;
  }
  [[nodiscard]] bool drain(Nanos limit) override {
    std::unique_lock lock(executor_->mutex_);
    return executor_->idle_.wait_for(lock, limit, [this] { return state_->idle(); });
  }

 private:
  std::shared_ptr<StreamExecutor> executor_;
  LanePointer state_;
};

StreamExecutor::StreamExecutor(int device, std::uint32_t run_ahead)
    : device_(device), run_ahead_(run_ahead), issuer_([this] { issue_all(); }), poller_([this] { poll_all(); }) {
  pthread_setname_np(issuer_.native_handle(), "gpu issuer");
  pthread_setname_np(poller_.native_handle(), "gpu poller");
}

StreamExecutor::~StreamExecutor() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  posted_.notify_all();
  issued_.notify_all();
  issuer_.join();
  poller_.join();
  for (const Events& events : spare_) {
    (void)cudaEventDestroy(events.begin);
    (void)cudaEventDestroy(events.end);
  }
}

std::unique_ptr<Lane> StreamExecutor::open_lane(LaneKind kind, const Clock& clock, LaneObserver* observer) {
  auto state = std::make_shared<LaneState>(kind, clock, observer, device_);
  const std::lock_guard lock(mutex_);
  lanes_.push_back(state);
  return std::make_unique<StreamLane>(shared_from_this(), std::move(state));
}

/// The lane whose next operation may be issued and stands first in the plan; null: none.
StreamExecutor::LanePointer StreamExecutor::next_lane() const {
  LanePointer best;
  for (const LanePointer& lane : lanes_) {
    if (lane->queue.empty()) continue;
    const bool full = run_ahead_ > 0 && lane->kind == LaneKind::compute && lane->flight.size() >= run_ahead_;
    if (full && !lane->halted) continue;
    if (!best || key_of(lane->queue.front().operation) < key_of(best->queue.front().operation)) best = lane;
  }
  return best;
}

void StreamExecutor::issue_all() {
  std::unique_lock lock(mutex_);
  while (true) {
    LanePointer lane;
    posted_.wait(lock, [&] { return (lane = next_lane()) != nullptr || stopping_; });
    if (!lane) return;
    Queued queued = std::move(lane->queue.front());
    lane->queue.pop_front();
    const Outcome before = lane->halted ? Outcome{Outcome::Kind::halted, lane->cause} : Outcome{};
    lane->issuing = true;
    lane->issuing_name = queued.operation.name;
    lane->issuing_since = lane->clock.now();
    std::vector<cudaEvent_t> inputs;
    if (run_ahead_ > 0 && before.ok()) inputs = inputs_of(*lane, queued.operation);
    lock.unlock();
    Issued issued = issue(*lane, std::move(queued), before, inputs);
    lock.lock();
    lane->issuing = false;
    if (!lane->halted && !issued.outcome.ok() && issued.operation.failure_halts_lane) {
      lane->halted = true;
      lane->cause = issued.outcome.cause;
    }
    if (run_ahead_ > 0 && issued.events.end != nullptr) in_flight_[key_of(issued.operation)] = {lane.get(), issued.events.end};
    issued.announced = run_ahead_ > 0 && issued.operation.stays_on_device && issued.outcome.ok() && !lane->halted;
    std::function<void(const Outcome&)> done;
    std::vector<Lease> leases;
    if (issued.announced) {
      done = std::exchange(issued.operation.done, nullptr);
      leases = std::exchange(issued.operation.leases, {});
    }
    lane->flight.push_back(std::move(issued));
    issued_.notify_one();
    if (!done && leases.empty()) continue;
    lock.unlock();
    if (done) done({});
    done = nullptr;
    leases.clear();
    lock.lock();
  }
}

/// What the operation must wait for on the device: unfinished operations of other lanes that it names or that used its slots.
std::vector<cudaEvent_t> StreamExecutor::inputs_of(const LaneState& lane, const LaneOperation& operation) {
  std::vector<cudaEvent_t> inputs;
  const auto wait_for = [&](const OperationKey& earlier) {
    const auto found = in_flight_.find(earlier);
    if (found != in_flight_.end() && found->second.first != &lane) inputs.push_back(found->second.second);
  };
  for (const EarlierOperation& earlier : operation.after) wait_for({earlier.step.value(), earlier.index.value()});
  for (const SlotAccess& access : operation.accesses) {
    SlotUsers& users = slots_[{access.edge, access.owner, access.slot.value()}];
    if (users.written) wait_for(users.writer);
    if (access.write) {
      for (const OperationKey& reader : users.readers) wait_for(reader);
      users = {key_of(operation), true, {}};
    } else {
      users.readers.push_back(key_of(operation));
    }
  }
  return inputs;
}

StreamExecutor::Events StreamExecutor::take_events() {
  {
    const std::lock_guard lock(mutex_);
    if (!spare_.empty()) {
      const Events events = spare_.back();
      spare_.pop_back();
      return events;
    }
  }
  Events events;
  check(cudaEventCreate(&events.begin), "cudaEventCreate");
  check(cudaEventCreate(&events.end), "cudaEventCreate");
  return events;
}

StreamExecutor::Issued StreamExecutor::issue(LaneState& lane, Queued queued, Outcome outcome, const std::vector<cudaEvent_t>& inputs) {
  Issued issued{std::move(queued.operation), queued.posted, lane.clock.now(), {}, std::move(outcome), false};
  if (!issued.outcome.ok() || !issued.operation.work) return issued;
  const auto failed = [&](const char* what) {
    if (issued.outcome.ok()) issued.outcome = {Outcome::Kind::failed, issued.operation.name + ": " + what};
  };
  try {
    use_device(device_);
    issued.events = take_events();
    for (cudaEvent_t input : inputs) check(cudaStreamWaitEvent(lane.stream.get(), input), "cudaStreamWaitEvent");
    check(cudaEventRecord(issued.events.begin, lane.stream.get()), "cudaEventRecord");
    try {
      issued.operation.work(lane.stream);
    } catch (const std::exception& problem) {
      failed(problem.what());
    } catch (...) {
      failed("unknown exception");
    }
    check(cudaEventRecord(issued.events.end, lane.stream.get()), "cudaEventRecord");  // also after a failure: leases wait for what was put
  } catch (const std::exception& problem) {
    failed(problem.what());
  }
  return issued;
}

void StreamExecutor::poll_all() {
  std::unique_lock lock(mutex_);
  const auto any_in_flight = [this] { return std::ranges::any_of(lanes_, [](const LanePointer& lane) { return !lane->flight.empty(); }); };
  while (true) {
    issued_.wait(lock, [&] { return stopping_ || any_in_flight(); });
    if (!any_in_flight()) return;
    bool ended = false;
    const std::vector<LanePointer> lanes = lanes_;
    for (const LanePointer& lane : lanes) {
      while (!lane->flight.empty() && look_at(lock, lane)) ended = true;
    }
    if (ended) continue;
    lock.unlock();
    std::this_thread::sleep_for(look_interval);
    lock.lock();
  }
}

/// Ends the lane's oldest operation if the device is done with it.
bool StreamExecutor::look_at(std::unique_lock<std::mutex>& lock, const LanePointer& lane) {
  const cudaEvent_t event = lane->flight.front().events.end;
  cudaError_t code = cudaSuccess;
  if (event != nullptr) {
    lock.unlock();
    try {
      use_device(device_);
      code = cudaEventQuery(event);
    } catch (const CudaError& problem) {
      code = problem.code();
    }
    lock.lock();
  }
  if (code == cudaErrorNotReady) {
    lane->looked = lane->clock.now();
    return false;
  }
  end(lock, *lane, code);
  return true;
}

void StreamExecutor::end(std::unique_lock<std::mutex>& lock, LaneState& lane, cudaError_t code) {
  Issued issued = std::move(lane.flight.front());
  lane.flight.front().operation.name = issued.operation.name;  // it stays the oldest until its callbacks have returned
  Outcome& outcome = issued.outcome;
  if (code != cudaSuccess && outcome.ok()) outcome = {Outcome::Kind::failed, CudaError(issued.operation.name.c_str(), code).what()};
  if (!lane.halted && !outcome.ok() && (code != cudaSuccess || issued.operation.failure_halts_lane)) {
    lane.halted = true;
    lane.cause = outcome.cause;
  }
  if (lane.halted && outcome.ok()) outcome = {Outcome::Kind::halted, lane.cause};
  const auto [started, ended] = times_of(lane, issued, lane.clock.now());
  lane.ended = ended;
  if (issued.events.end != nullptr) {
    if (lane.previous.end != nullptr) spare_.push_back(lane.previous);
    lane.previous = issued.events;
    if (run_ahead_ > 0) in_flight_.erase(key_of(issued.operation));
  }
  lock.unlock();
  if (lane.observer != nullptr) lane.observer->finished(lane.kind, issued.operation, issued.posted, started, ended, outcome);
  // The completion letter leaves first, then the slots go home, so a reader of both sees the fact before the free slot.
  issued.operation.work = nullptr;
  if (issued.operation.done) issued.operation.done(outcome);
  issued.operation.done = nullptr;
  issued.operation.leases.clear();
  lock.lock();
  lane.flight.pop_front();
  ++lane.completed;
  posted_.notify_one();  // the run-ahead has room
  if (lane.idle()) idle_.notify_all();
}

/// When the device began and ended it, on the host's clock: counted from the end of the lane's operation before, and held between the
/// last look that found it unfinished and now, so that the two clocks cannot drift apart.
std::pair<Nanos, Nanos> StreamExecutor::times_of(LaneState& lane, const Issued& issued, Nanos now) const {
  float took = 0, gap = 0;
  if (issued.events.end == nullptr || cudaEventElapsedTime(&took, issued.events.begin, issued.events.end) != cudaSuccess) return {now, now};
  Nanos ended = now;
  if (lane.previous.end != nullptr && cudaEventElapsedTime(&gap, lane.previous.end, issued.events.end) == cudaSuccess)
    ended = std::clamp(lane.ended + of_milliseconds(gap), std::min(lane.looked, now), now);
  return {std::max(ended - of_milliseconds(took), issued.posted), ended};
}

}  // namespace troupe::cuda
