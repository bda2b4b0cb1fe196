#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "src/device/lane.hpp"
#include "src/simulation/causality.hpp"
#include "src/simulation/fiber.hpp"

namespace troupe {

class CorePool;
class DeviceOrder;
class SimulatedLane;
class VirtualWorld;

/// What goes wrong with one operation of a lane.
struct LaneFault {
  enum class Kind : std::uint8_t { none, fail, stall, halt };
  Kind kind = Kind::none;
  Nanos stall{0};     ///< added to the operation's time
  std::string cause;  ///< of fail and halt
};

/// How a simulated lane behaves.
struct LaneModel {
  double jitter = 0;                                          ///< an operation takes cost × (1 + jitter · u), u in [0, 1) drawn by the world's seed
  bool work_at_start = false;                                 ///< do the work when the operation starts; else when it ends
  bool collectives = false;                                   ///< work starts at once and may wait for other ranks in the middle; the collective takes the time
  std::function<Nanos(const LaneOperation&)> cost = {};       ///< empty: LaneOperation::cost
  std::function<LaneFault(const LaneOperation&)> fault = {};  ///< empty: none
  Nanos letter{0};                                            ///< from the posting to the start on an idle lane
  CorePool* cores = nullptr;                                  ///< null: the lane has hardware of its own
  DeviceOrder* order = nullptr;                               ///< null: this lane's operations wait for its own alone, as on a CPU
};

/// Given to the work of a simulated lane: what a simulated communicator waits on.
class SimulatedStream final : public Stream {
 public:
  explicit SimulatedStream(SimulatedLane& lane) : lane_(lane) {}
  [[nodiscard]] SimulatedLane& lane() const noexcept { return lane_; }

 private:
  SimulatedLane& lane_;
};

/// A lane whose operations take virtual time: one after the other, each for its cost, work done at the simulated moment and not at the
/// posting. One thread; the world outlives it.
class SimulatedLane final : public Lane {
 public:
  SimulatedLane(VirtualWorld& world, Rank rank, LaneKind kind, LaneModel model, LaneObserver* observer = nullptr);
  ~SimulatedLane() override;
  SimulatedLane(const SimulatedLane&) = delete;
  SimulatedLane& operator=(const SimulatedLane&) = delete;

  void post(LaneOperation operation) override;
  void halt(std::string cause) override;
  [[nodiscard]] LaneProgress progress() const override;
  /// Lets virtual time pass until the lane is idle, at most `limit` of it.
  [[nodiscard]] bool drain(Nanos limit) override;

  /// The process is gone: what it was to do is not done, and nobody is told.
  void die();

  [[nodiscard]] Rank rank() const noexcept { return rank_; }
  [[nodiscard]] LaneKind kind() const noexcept { return kind_; }
  /// Of all operations so far, waiting for others inside a collective not counted.
  [[nodiscard]] Nanos busy() const noexcept { return busy_; }

  // For communicators, from inside the work.
  /// What is left of the running operation's time; a collective takes it, the next one nothing more.
  [[nodiscard]] Nanos take_cost() noexcept;
  [[nodiscard]] CorePool* cores() const noexcept { return model_.cores; }
  void wait() { fiber_->wait(); }
  /// The other end of wait().
  void resume();
  /// Tries to start; the device's order calls it when its turn may have come.
  void poke();

 private:
  struct Entry {
    LaneOperation operation;
    Nanos posted;
    CausalStamp stamp;
  };

  void later(Nanos delay, void (SimulatedLane::*then)());
  void start();
  void work();
  void spend_rest();
  void complete();
  void finish(Entry entry, const Outcome& outcome, Nanos started);
  void flush_soon();
  void flush();

  VirtualWorld& world_;
  const Rank rank_;
  const LaneKind kind_;
  const LaneModel model_;
  LaneObserver* const observer_;
  const PlaceId place_;
  SimulatedStream stream_;
  std::unique_ptr<Fiber> fiber_;
  std::deque<Entry> queue_;
  std::uint64_t posted_ = 0, completed_ = 0;
  bool running_ = false, halted_ = false, flushing_ = false, dead_ = false;
  std::string cause_;
  Nanos started_{0}, cost_{0}, busy_{0};
  LaneFault fault_;
  Outcome outcome_;
  std::shared_ptr<SimulatedLane*> life_ = std::make_shared<SimulatedLane*>(this);  ///< events of a lane that is gone do nothing
};

}  // namespace troupe
