#pragma once
#include <atomic>
#include <string>
#include <string_view>

#include "src/trace/tracer.hpp"

namespace troupe {

/// Stands in for a tracer that is made later: a worker's transport must be there before the launcher has told whether to trace.
/// What comes before `use` is dropped. Any thread.
class LateTracer final : public Tracer {
 public:
  /// `tracer` outlives whoever traces.
  void use(Tracer& tracer) noexcept { tracer_.store(&tracer); }

  void span(Span span) override {
    if (Tracer* const tracer = tracer_.load()) tracer->span(std::move(span));
  }
  void letter_sent(Rank rank, std::string_view track, std::string_view name, std::uint64_t flow, const Where& where, Nanos at) override {
    if (Tracer* const tracer = tracer_.load()) tracer->letter_sent(rank, track, name, flow, where, at);
  }
  void letter_received(Rank rank, std::string_view track, std::string_view name, std::uint64_t flow, const Where& where, Nanos at) override {
    if (Tracer* const tracer = tracer_.load()) tracer->letter_received(rank, track, name, flow, where, at);
  }
  void slots_in_use(Rank rank, std::string_view edge, std::uint32_t count, Nanos at) override {
    if (Tracer* const tracer = tracer_.load()) tracer->slots_in_use(rank, edge, count, at);
  }
  void mark(Rank rank, std::string text, Nanos at) override {
    if (Tracer* const tracer = tracer_.load()) tracer->mark(rank, std::move(text), at);
  }
  [[nodiscard]] std::uint64_t next_flow() override {
    Tracer* const tracer = tracer_.load();
    return tracer != nullptr ? tracer->next_flow() : 0;
  }
  void finished(LaneKind lane, const LaneOperation& operation, Nanos posted, Nanos started, Nanos ended, const Outcome& outcome) override {
    if (Tracer* const tracer = tracer_.load()) tracer->finished(lane, operation, posted, started, ended, outcome);
  }

 private:
  std::atomic<Tracer*> tracer_{nullptr};
};

}  // namespace troupe
