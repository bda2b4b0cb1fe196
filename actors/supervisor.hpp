#pragma once
#include <caf/actor_addr.hpp>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "actors/rank_actors.hpp"
#include "actors/rank_factory.hpp"
#include "src/device/lane.hpp"
#include "src/runtime/actor.hpp"
#include "src/runtime/watchdog.hpp"

namespace troupe {

/// What a Supervisor tells the process that hosts it. Called by its handlers; must not block.
class RankEvents {
 public:
  virtual ~RankEvents() = default;
  /// The rank has stopped for good and said so; nothing more will come. `cause` empty: a clean end.
  virtual void ended(Rank rank, const std::string& cause) = 0;
  /// The abort protocol missed its deadline: threads are stuck in work that cannot be stopped. The process must exit.
  virtual void stuck(Rank rank, const std::string& cause) = 0;
};

/// What a Supervisor posts to its builder lane, as the operations' indices.
inline constexpr OperationIndex build_operation{1}, clear_operation{2}, hand_over_operation{3};

struct SupervisorOptions {
  std::uint32_t world_size = 1;
  std::uint64_t config_hash = 0;
  std::string host;
  std::uint32_t pid = 0;
  Step restored;            ///< newest sealed checkpoint found
  Incarnation incarnation;  ///< of the process
  Nanos heartbeat_every{std::chrono::seconds{1}};
  Nanos abort_deadline{std::chrono::seconds{10}};  ///< for lanes to become idle after a halt
  RankFactory* factory = nullptr;
  Lane* builder = nullptr;       ///< builds and destroys bodies; nobody else posts to it
  RankEvents* events = nullptr;  ///< all three outlive the actor
};

/// One per rank: joins the job, raises the rank's five actors for an epoch, and again for each that follows, passes grants down and reports up, sends
/// heartbeats with what the rank waits for, and ends the epoch: drained, or by the abort protocol (halt word and communicators, lanes, drain with a deadline).
/// It watches the lives of the five: one that ends before it is told to is a fault of the rank, but for Metrics, in whose place another is started,
/// some times in an epoch. What they stand on is destroyed once all of them are gone.
/// Whoever spawns it enters it into the Directory and then calls start_supervisor: it joins then (else with its first heartbeat), for
/// the answer must find it.
/// Letters in: EpochBegin, Horizon, Drain, EpochEnd (Coordinator); StepReport, FaultReport, Stopped, Inspection (its five actors);
/// LaneDone (its builder lane), Tick. Letters out: Join, EpochReady, StepReport, Heartbeat, FaultReport, Stopped (Coordinator); StepBegin, Drain, EpochEnd,
/// Inspect.
class Supervisor final : public Actor<Supervisor> {
 public:
  Supervisor(caf::actor_config& config, const ActorSeat& seat, SupervisorOptions options);
  caf::behavior make_behavior() override;
  /// Moves the end of an epoch on: five stopped, lanes idle, body destroyed, Stopped told.
  void act();

 private:
  enum class Phase { joining, building, running, draining, aborting, handing_over, clearing, stopped };
  /// Filled by the builder lane, read after its LaneDone.
  struct Raised {
    std::unique_ptr<RankBody> body;
    std::optional<RankActors> actors;
    bool restore_lost = false;  ///< what the epoch was to begin from could not be read
  };

  void epoch_begin(const Letter<schema::EpochBegin>&);
  void horizon(const Letter<schema::Horizon>&);
  void drain(const Letter<schema::Drain>&);
  void fault_rules(const Letter<schema::FaultRules>&);
  void epoch_end(const Letter<schema::EpochEnd>&);
  void step_report(const Letter<schema::StepReport>&);
  void fault(const Letter<schema::FaultReport>&);
  void actor_stopped(const Letter<schema::Stopped>&);
  void inspection(const Letter<schema::Inspection>&);
  void lane_done(const Letter<schema::LaneDone>&);
  void beat(const Letter<schema::Tick>&);

  void join();
  void built(const Letter<schema::LaneDone>&);
  void pass_fault(Rank rank, const std::string& cause, int signal, bool restore_lost = false);
  /// Steps 1 to 3 of the abort protocol: what can still write state or wait for a peer does neither from here on.
  void halt(const std::string& cause);
  void clear();
  /// Metrics has ended. False: that was once too often, or the epoch ends anyway.
  [[nodiscard]] bool restart_metrics(const std::string& cause);
  /// One of the five has ended; the last one after clear() has the body destroyed.
  void gone(const caf::actor_addr& who);
  void destroy_body();
  void tell_stopped();
  /// Drained, with another epoch to follow: the state goes where its ranks find it.
  void hand_over();
  /// After a fault that the run outlives: as before its first epoch.
  void rest();
  [[nodiscard]] bool lanes_idle() const;
  [[nodiscard]] OldestPending oldest() const;
  void post_to_builder(std::string name, OperationIndex index, std::function<void(Stream&)> work);

  SupervisorOptions options_;
  Phase phase_ = Phase::joining;
  Nanos phase_since_, beat_at_{0};
  std::shared_ptr<Raised> raised_;
  std::set<ActorKind> stopped_;
  struct Said {
    std::string text, waiting;
  };
  std::map<ActorKind, Said> said_;  ///< by the last Inspection
  std::string cause_;               ///< why the epoch ends; empty: a clean drain
  Step newest_;                     ///< last step reported
  Step begun_;
  std::map<caf::actor_addr, ActorKind> alive_;
  bool joined_ = false, halted_ = false, build_failed_ = false;
  std::uint32_t restarts_ = 0;      ///< of Metrics in this epoch
  std::uint32_t hand_over_to_ = 0;  ///< 1 or 2: the slot that Drain named; 0: none
  std::string not_handed_over_;     ///< why, if so
  bool handed_over_ = false;
  bool final_ = true;   ///< no epoch follows this one
  bool built_ = false;  ///< raised_ belongs to this actor again; before, the builder lane may be writing it
};

/// The Tick that makes a Supervisor join and beat; after it stands in the Directory.
void start_supervisor(Runtime& runtime, Rank rank);

}  // namespace troupe
