#include "src/simulation/simulated_lane.hpp"

#include <exception>
#include <utility>

#include "src/simulation/core_pool.hpp"
#include "src/simulation/device_order.hpp"
#include "src/simulation/virtual_world.hpp"

namespace troupe {

SimulatedLane::SimulatedLane(VirtualWorld& world, Rank rank, LaneKind kind, LaneModel model, LaneObserver* observer)
    : world_(world), rank_(rank), kind_(kind), model_(std::move(model)), observer_(observer), place_(world.causality().of(rank, kind)), stream_(*this) {
  if (model_.collectives) fiber_ = std::make_unique<Fiber>();
  if (model_.order) model_.order->add(*this);
}

SimulatedLane::~SimulatedLane() = default;

void SimulatedLane::die() {
  if (std::exchange(dead_, true)) return;
  life_ = std::make_shared<SimulatedLane*>(this);  // events under way find another life
  if (fiber_) fiber_ = std::make_unique<Fiber>();  // unwinds what ran
  world_.invariants().lost(queue_.size());
  queue_.clear();
  completed_ = posted_;
  running_ = false;
}

void SimulatedLane::post(LaneOperation operation) {
  if (dead_) return;
  world_.invariants().posted(rank_, kind_, operation);
  world_.trace().add(world_.clock().now(), "post", place_.value(), operation.where.step.value(), operation.index.value());
  queue_.push_back({std::move(operation), world_.clock().now(), world_.causality().stamp()});
  ++posted_;
  if (halted_) {
    flush_soon();
  } else if (!running_ || model_.letter > Nanos{0}) {
    later(model_.letter, &SimulatedLane::start);
  }
}

void SimulatedLane::later(Nanos delay, void (SimulatedLane::*then)()) {
  world_.clock().after(delay, [life = std::weak_ptr(life_), then] {
    if (const auto lane = life.lock()) ((*lane)->*then)();
  });
}

void SimulatedLane::poke() {
  if (!running_ && !queue_.empty()) later(Nanos{0}, &SimulatedLane::start);
}

void SimulatedLane::start() {
  if (running_ || halted_ || queue_.empty() || world_.clock().now() < queue_.front().posted + model_.letter) return;
  const LaneOperation& operation = queue_.front().operation;
  if (model_.order && !model_.order->turn(operation.where.step, operation.index)) return;
  running_ = true;
  started_ = world_.clock().now();
  outcome_ = {};
  const Causality::Acting acting(world_.causality(), place_);
  world_.causality().join(queue_.front().stamp);
  (void)world_.causality().stamp();
  world_.slots().begin(operation);
  world_.trace().add(started_, "start", place_.value(), operation.where.step.value(), operation.index.value());
  fault_ = model_.fault ? model_.fault(operation) : LaneFault{};
  const Nanos cost = model_.cost ? model_.cost(operation) : operation.cost;
  cost_ = Nanos{static_cast<Nanos::rep>(static_cast<double>(cost.count()) * (1 + model_.jitter * world_.draw()))} + fault_.stall;
  if (model_.order) model_.order->started(operation.where.step, operation.index);
  if (fault_.kind == LaneFault::Kind::halt) halt(fault_.cause);
  const bool works = fault_.kind == LaneFault::Kind::none || fault_.kind == LaneFault::Kind::stall;
  if (model_.collectives && works) {
    fiber_->start([this] { work(); });
    if (fiber_->at_rest()) spend_rest();
    return;
  }
  if (model_.work_at_start && works) work();
  spend_rest();
}

Nanos SimulatedLane::take_cost() noexcept {
  busy_ += cost_;
  return std::exchange(cost_, Nanos{0});
}

void SimulatedLane::resume() {
  if (dead_) return;
  const Causality::Acting acting(world_.causality(), place_);
  fiber_->resume();
  if (fiber_->at_rest()) spend_rest();
}

/// What no collective took of the operation's time passes now.
void SimulatedLane::spend_rest() {
  const Nanos rest = take_cost();
  if (!model_.cores || rest <= Nanos{0}) return later(rest, &SimulatedLane::complete);
  model_.cores->spend(
      rest,
      [life = std::weak_ptr(life_)] {
        if (const auto lane = life.lock()) (*lane)->complete();
      },
      this);
}

void SimulatedLane::work() {
  const LaneOperation& operation = queue_.front().operation;
  if (!operation.work) return;
  try {
    operation.work(stream_);
  } catch (const FiberUnwound&) {
    throw;
  } catch (const std::exception& problem) {
    outcome_ = {Outcome::Kind::failed, operation.name + ": " + problem.what()};
  } catch (...) {
    outcome_ = {Outcome::Kind::failed, operation.name + ": unknown exception"};
  }
}

void SimulatedLane::complete() {
  const bool works = fault_.kind == LaneFault::Kind::none || fault_.kind == LaneFault::Kind::stall;
  if (!model_.collectives && !model_.work_at_start && works) {
    const Causality::Acting acting(world_.causality(), place_);
    work();
  }
  if (fault_.kind == LaneFault::Kind::fail) outcome_ = {Outcome::Kind::failed, queue_.front().operation.name + ": " + fault_.cause};
  if (halted_ && outcome_.ok()) outcome_ = {Outcome::Kind::halted, cause_};
  if (!outcome_.ok() && queue_.front().operation.failure_halts_lane) halt(outcome_.cause);
  Entry entry = std::move(queue_.front());
  queue_.pop_front();
  {
    const Causality::Acting acting(world_.causality(), place_);
    (void)world_.causality().stamp();
    world_.slots().end(entry.operation);
  }
  finish(std::move(entry), outcome_, started_);
  running_ = false;
  ++completed_;
  if (halted_) {
    flush_soon();
  } else {
    start();
  }
}

/// As every lane: the completion letter leaves first, then the slots go home.
void SimulatedLane::finish(Entry entry, const Outcome& outcome, Nanos started) {
  LaneOperation& operation = entry.operation;
  const Causality::Acting acting(world_.causality(), place_);
  const Nanos now = world_.clock().now();
  world_.trace().add(now, "end", place_.value(), operation.where.step.value(),
                     (std::uint64_t{operation.index.value()} << 8U) | static_cast<std::uint8_t>(outcome.kind));
  world_.invariants().finished(rank_, kind_, operation, outcome);
  if (observer_) observer_->finished(kind_, operation, entry.posted, started, now, outcome);
  world_.slots().release(operation);
  operation.work = nullptr;
  if (operation.done) operation.done(outcome);
  operation.done = nullptr;
  operation.leases.clear();
}

void SimulatedLane::halt(std::string cause) {
  if (halted_) return;
  halted_ = true;
  cause_ = std::move(cause);
  flush_soon();
}

void SimulatedLane::flush_soon() {
  if (flushing_) return;
  flushing_ = true;
  later(Nanos{0}, &SimulatedLane::flush);
}

void SimulatedLane::flush() {
  flushing_ = false;
  while (!running_ && !queue_.empty()) {
    Entry entry = std::move(queue_.front());
    queue_.pop_front();
    finish(std::move(entry), {Outcome::Kind::halted, cause_}, world_.clock().now());
    ++completed_;
  }
}

LaneProgress SimulatedLane::progress() const {
  LaneProgress result{posted_, completed_, {}, Nanos{0}};
  if (!queue_.empty()) {
    result.oldest_pending = queue_.front().operation.name;
    result.pending_since = running_ ? started_ : queue_.front().posted;
  }
  return result;
}

bool SimulatedLane::drain(Nanos limit) {
  return world_.run([this] { return queue_.empty() && !running_; }, limit).how == RunEnd::How::finished;
}

}  // namespace troupe
