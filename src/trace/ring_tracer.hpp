#pragma once
#include <atomic>
#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "src/base/result.hpp"
#include "src/trace/trace_event.hpp"
#include "src/trace/tracer.hpp"

namespace troupe {

struct RingTracerOptions {
  std::vector<Rank> ranks{Rank{0}};                 ///< that live in this process
  std::size_t events = std::size_t{1} << 16;        ///< kept a rank, the newest; about 96 bytes each in memory and 250 in a file
  std::optional<std::pair<Step, Step>> steps = {};  ///< first and last to keep; what belongs to no step (but marks) is left out then
  Incarnation incarnation = {};                     ///< of this process: letters of the one before it are still in the others' rings
};

/// The tracer of one process: a ring of events for each of its ranks, allocated once. Any thread; an event takes a lock of its
/// rank for the time of a copy. Events of other ranks are dropped. With `steps`, spans and letters of other steps are, and slot counts
/// while the rank's latest event is of another step; marks are always kept.
class RingTracer final : public Tracer {
 public:
  explicit RingTracer(const RingTracerOptions& options);
  ~RingTracer() override;
  RingTracer(const RingTracer&) = delete;
  RingTracer& operator=(const RingTracer&) = delete;

  void span(Span span) override;
  void letter_sent(Rank rank, std::string_view track, std::string_view name, std::uint64_t flow, const Where& where, Nanos at) override;
  void letter_received(Rank rank, std::string_view track, std::string_view name, std::uint64_t flow, const Where& where, Nanos at) override;
  void slots_in_use(Rank rank, std::string_view edge, std::uint32_t count, Nanos at) override;
  void mark(Rank rank, std::string text, Nanos at) override;
  /// Below 2^53, and unlike every other that the rings of a job hold at one time: of up to 2^17 ranks, each in its last 2^8 processes, the newest 2^28 letters.
  [[nodiscard]] std::uint64_t next_flow() override;
  /// Lanes of the first of the ranks; a process with several gives each rank's lanes their own observer, see lanes_of.
  void finished(LaneKind lane, const LaneOperation& operation, Nanos posted, Nanos started, Nanos ended, const Outcome& outcome) override;

  /// What the lanes of `rank` report to; lives as long as the tracer. Throws std::out_of_range for a rank of another process.
  [[nodiscard]] LaneObserver& lanes_of(Rank rank);

  /// A copy of one rank's ring. Throws std::out_of_range for a rank of another process.
  [[nodiscard]] RankTrace snapshot(Rank rank) const;
  /// The same without what belongs to other steps; slot counts stay as they stand between, marks always.
  [[nodiscard]] RankTrace snapshot(Rank rank, Step first, Step last) const;
  /// All ranks (of `steps` alone, where given) as one Chrome/Perfetto JSON file, written beside it and renamed, so that a reader never sees half of one.
  [[nodiscard]] Result<void> write(const std::filesystem::path& file, std::optional<std::pair<Step, Step>> steps = {}) const;

 private:
  class Ring;
  class RankLanes;
  [[nodiscard]] Ring* ring_of(Rank rank) const noexcept;

  std::map<Rank, std::unique_ptr<Ring>> rings_;
  std::map<Rank, std::unique_ptr<RankLanes>> lanes_;
  Rank first_;
  std::uint64_t flow_space_;  ///< what next_flow's numbers of this process have in common
  std::atomic<std::uint64_t> flows_{0};
};

}  // namespace troupe
