#include "src/runtime/faulty_lane.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "src/runtime/describe.hpp"
#include "src/trace/tracer.hpp"

namespace troupe {
namespace {

/// A wait of one thread that ends with the clock's timer, or with end() from any thread. Timers that ring late find it alive.
class Pause : public std::enable_shared_from_this<Pause> {
 public:
  /// Zero: until end().
  void wait(Clock& clock, Nanos duration) {
    const std::uint64_t mine = ++asked_;
    if (duration > Nanos{0}) clock.after(duration, [self = shared_from_this(), mine] { self->ring(mine); });
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ || rung_ >= mine; });
  }
  void end() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
  }

 private:
  void ring(std::uint64_t which) {
    {
      const std::lock_guard lock(mutex_);
      rung_ = std::max(rung_, which);
    }
    changed_.notify_all();
  }

  std::uint64_t asked_ = 0;  ///< of the waiting thread alone
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t rung_ = 0;
  bool ended_ = false;
};

/// What the closures in the lane's queue share.
class Striker {
 public:
  Striker(LaneKind kind, Rank rank, std::shared_ptr<FaultPlan> plan, Runtime& runtime) : kind_(kind), rank_(rank), plan_(std::move(plan)), runtime_(runtime) {}

  /// On the lane's thread. Throws where the operation is to fail.
  void strike(const std::string& name, const Where& where, bool collective) {
    if (kind_ == LaneKind::compute && where.step > step_) {
      step_ = where.step;
      obey(plan_->decide(FaultSite::process, "", {where.epoch, where.step, {}, {}}), name, where);
    }
    if (collective) obey(plan_->decide(FaultSite::collective, name, where), name, where);
    obey(plan_->decide(FaultSite::lane, name, where), name, where);
  }
  void end_waits() { pause_->end(); }

 private:
  void obey(const Fault& fault, const std::string& name, const Where& where) {
    if (!fault) return;
    const std::string text =
        fmt::format("fault rule {} ({}) fired: lane {}, {}, {}", fault.rule + 1, to_string(plan_->rules()[fault.rule]), name_of(kind_), name, describe(where));
    runtime_.log.write(fault.action == FaultAction::delay ? LogLevel::info : LogLevel::warning, text);
    if (runtime_.tracer != nullptr) runtime_.tracer->mark(rank_, text, runtime_.clock.now());
    switch (fault.action) {
      case FaultAction::delay:
      case FaultAction::stall: return pause_->wait(runtime_.clock, fault.duration);
      case FaultAction::crash: static_cast<void>(std::raise(SIGKILL)); return;
      default: throw std::runtime_error(text);
    }
  }

  const LaneKind kind_;
  const Rank rank_;
  const std::shared_ptr<FaultPlan> plan_;
  Runtime& runtime_;
  const std::shared_ptr<Pause> pause_ = std::make_shared<Pause>();
  Step step_;  ///< of the lane's thread alone
};

class FaultyLane final : public Lane {
 public:
  FaultyLane(std::shared_ptr<Lane> below, std::shared_ptr<Striker> striker) : striker_(std::move(striker)), below_(std::move(below)) {}
  ~FaultyLane() override { striker_->end_waits(); }  // the lane below joins its thread
  FaultyLane(const FaultyLane&) = delete;
  FaultyLane& operator=(const FaultyLane&) = delete;

  void post(LaneOperation operation) override {
    operation.work = [striker = striker_, work = std::move(operation.work), name = operation.name, where = operation.where,
                      collective = operation.failure_halts_lane](Stream& stream) {
      striker->strike(name, where, collective);
      if (work) work(stream);
    };
    below_->post(std::move(operation));
  }
  void halt(std::string cause) override {
    below_->halt(std::move(cause));  // first, so that the operation whose wait ends is `halted`
    striker_->end_waits();
  }
  [[nodiscard]] LaneProgress progress() const override { return below_->progress(); }
  [[nodiscard]] bool drain(Nanos limit) override { return below_->drain(limit); }

 private:
  std::shared_ptr<Striker> striker_;
  std::shared_ptr<Lane> below_;
};

}  // namespace

std::shared_ptr<Lane> make_faulty_lane(std::shared_ptr<Lane> below, LaneKind kind, Rank rank, std::shared_ptr<FaultPlan> plan, Runtime& runtime) {
  if (!plan || (plan->rules().empty() && !plan->grows())) return below;
  return std::make_shared<FaultyLane>(std::move(below), std::make_shared<Striker>(kind, rank, std::move(plan), runtime));
}

}  // namespace troupe
