#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "src/simulation/causality.hpp"
#include "src/simulation/findings.hpp"
#include "src/simulation/flow_invariants.hpp"
#include "src/simulation/simulated_post_office.hpp"
#include "src/simulation/slot_ledger.hpp"
#include "src/simulation/virtual_actors.hpp"
#include "src/simulation/virtual_clock.hpp"

namespace troupe {

struct WorldOptions {
  std::uint64_t seed = 0;                 ///< draws every interleaving; 0: first in, first out
  Nanos letter_delay{0};                  ///< a letter between ranks takes up to this
  Nanos handler_delay{0};                 ///< so much time may pass while letters lie in mailboxes (only with a seed)
  std::uint64_t max_letters = 5'000'000;  ///< of one instant's burst: more is a livelock
};

/// How a run of the world ended.
struct RunEnd {
  enum class How : std::uint8_t { finished, stuck, out_of_time, livelock };
  How how = How::finished;
  std::string report;  ///< when not finished: what every lane, communicator and actor waits for
};

/// A cluster that is not there: virtual time, CAF's actors on one thread, simulated lanes and communicators, and the invariants that
/// watch them. Whoever sees the same seed sees the same run. One thread.
class VirtualWorld {
 public:
  explicit VirtualWorld(const WorldOptions& options);
  ~VirtualWorld();
  VirtualWorld(const VirtualWorld&) = delete;
  VirtualWorld& operator=(const VirtualWorld&) = delete;

  [[nodiscard]] VirtualClock& clock() noexcept { return clock_; }
  [[nodiscard]] PostOffice& post_office() noexcept { return post_office_; }  ///< for the Runtime
  [[nodiscard]] SimulatedPostOffice& letters_under_way() noexcept { return post_office_; }
  [[nodiscard]] VirtualActors& actors() noexcept { return actors_; }
  [[nodiscard]] Causality& causality() noexcept { return causality_; }
  [[nodiscard]] SlotLedger& slots() noexcept { return slots_; }
  [[nodiscard]] FlowInvariants& invariants() noexcept { return invariants_; }
  [[nodiscard]] const FlowInvariants& invariants() const noexcept { return invariants_; }
  [[nodiscard]] Findings& findings() noexcept { return findings_; }
  [[nodiscard]] TraceHash& trace() noexcept { return trace_; }
  [[nodiscard]] std::uint64_t letters() const noexcept { return post_office_.delivered(); }

  /// Runs until nothing is left to do at this instant and `finished` says so, at most `limit` of virtual time.
  /// Anything but `finished` is also a finding of `progress`.
  RunEnd run(const std::function<bool()>& finished, Nanos limit);
  /// Adds a line to the report of a run that does not finish; empty texts are left out.
  void on_report(std::function<std::string()> line) { reports_.push_back(std::move(line)); }
  /// Nothing happens any more: letters vanish, events are dropped. Before lanes and actors go.
  void close();

  // Drawn from the seed.
  [[nodiscard]] std::uint64_t seed() const noexcept { return options_.seed; }
  [[nodiscard]] std::size_t pick(std::size_t choices) { return static_cast<std::size_t>(random_() % choices); }
  [[nodiscard]] double draw();  ///< [0, 1); 0 without a seed
  [[nodiscard]] Nanos letter_delay();

 private:
  bool settle();
  RunEnd not_finished(RunEnd::How how, const std::string& why);

  const WorldOptions options_;
  std::mt19937_64 random_;
  VirtualClock clock_;
  Findings findings_;
  TraceHash trace_;
  Causality causality_;
  SlotLedger slots_{causality_, findings_};
  FlowInvariants invariants_{findings_};
  SimulatedPostOffice post_office_{*this};
  VirtualActors actors_;
  std::vector<std::function<std::string()>> reports_;
};

}  // namespace troupe
