#include "src/trace/ring_tracer.hpp"

#include <algorithm>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <string>
#include <unordered_map>

#include "src/trace/chrome_trace.hpp"

namespace troupe {
namespace {

std::string_view text_of(Outcome::Kind kind) noexcept {
  switch (kind) {
    case Outcome::Kind::ok: return "ok";
    case Outcome::Kind::failed: return "failed";
    case Outcome::Kind::halted: return "halted";
  }
  return "unknown";
}

// A flow travels in a JSON number, which readers take as a double: 17 bits of the rank, 8 of its incarnation, 28 that count.
constexpr unsigned flow_count_bits = 28, flow_incarnation_bits = 8, flow_rank_bits = 17;
static_assert(flow_count_bits + flow_incarnation_bits + flow_rank_bits == 53);
constexpr std::uint64_t low_bits(std::uint64_t value, unsigned bits) { return value & ((std::uint64_t{1} << bits) - 1); }

constexpr std::size_t most_names = std::size_t{1} << 16;  ///< texts of marks differ without end; the table does not grow for ever

}  // namespace

class RingTracer::Ring {
 public:
  Ring(std::size_t capacity, std::optional<std::pair<Step, Step>> steps) : events_(std::max<std::size_t>(capacity, 1)), steps_(steps) {}

  void add(TraceEvent event, std::string_view track, std::string_view name, std::string_view outcome = {}) {
    const std::lock_guard lock(mutex_);
    if (!wanted(event)) return;
    event.track = intern(track);
    event.name = intern(name);
    event.outcome = intern(outcome);
    events_[added_++ % events_.size()] = event;
  }

  [[nodiscard]] RankTrace snapshot(Rank rank) const {
    const std::lock_guard lock(mutex_);
    RankTrace trace{rank, {names_.begin(), names_.end()}, {}, added_ > events_.size() ? added_ - events_.size() : 0};
    trace.events.reserve(added_ - trace.overwritten);
    for (std::uint64_t i = trace.overwritten; i < added_; ++i) trace.events.push_back(events_[i % events_.size()]);
    return trace;
  }

 private:
  bool wanted(const TraceEvent& event) {
    if (!steps_ || event.kind == TraceEvent::Kind::mark) return true;
    if (event.kind != TraceEvent::Kind::slots) latest_ = event.where.step;  // slot counts come without a step: they belong to what happens then
    return steps_->first <= latest_ && latest_ <= steps_->second;
  }
  std::uint32_t intern(std::string_view text) {
    if (const auto found = ids_.find(text); found != ids_.end()) return found->second;
    if (names_.size() >= most_names) return intern("(too many different names)");
    names_.emplace_back(text);
    const auto id = static_cast<std::uint32_t>(names_.size() - 1);
    ids_.emplace(names_.back(), id);
    return id;
  }

  mutable std::mutex mutex_;
  std::vector<TraceEvent> events_;
  std::optional<std::pair<Step, Step>> steps_;
  Step latest_{0};
  std::uint64_t added_ = 0;
  std::deque<std::string> names_{"(too many different names)"};  // a deque, so that the keys below stay where they are
  std::unordered_map<std::string_view, std::uint32_t> ids_{{names_.front(), 0}};
};

class RingTracer::RankLanes final : public LaneObserver {
 public:
  RankLanes(Rank rank, Ring& ring) : rank_(rank), ring_(ring) {}
  void finished(LaneKind lane, const LaneOperation& operation, Nanos posted, Nanos started, Nanos ended, const Outcome& outcome) override {
    TraceEvent event{.where = operation.where, .issued = posted, .started = started, .ended = ended};
    ring_.add(event, name_of(lane), operation.name, text_of(outcome.kind));
  }

 private:
  Rank rank_;
  Ring& ring_;
};

RingTracer::RingTracer(const RingTracerOptions& options)
    : first_(options.ranks.at(0)),
      flow_space_(((low_bits(first_.value(), flow_rank_bits) << flow_incarnation_bits) | low_bits(options.incarnation.value(), flow_incarnation_bits))
                  << flow_count_bits) {
  for (const Rank rank : options.ranks) {
    const auto ring = rings_.emplace(rank, std::make_unique<Ring>(options.events, options.steps)).first;
    lanes_.emplace(rank, std::make_unique<RankLanes>(rank, *ring->second));
  }
}
RingTracer::~RingTracer() = default;

RingTracer::Ring* RingTracer::ring_of(Rank rank) const noexcept {
  const auto found = rings_.find(rank);
  return found == rings_.end() ? nullptr : found->second.get();
}

void RingTracer::span(Span span) {
  if (Ring* ring = ring_of(span.rank)) {
    ring->add({.where = span.where, .issued = span.issued, .started = span.started, .ended = span.ended}, span.track, span.name, span.outcome);
  }
}

void RingTracer::letter_sent(Rank rank, std::string_view track, std::string_view name, std::uint64_t flow, const Where& where, Nanos at) {
  if (Ring* ring = ring_of(rank)) ring->add({.kind = TraceEvent::Kind::letter_sent, .where = where, .started = at, .value = flow}, track, name);
}

void RingTracer::letter_received(Rank rank, std::string_view track, std::string_view name, std::uint64_t flow, const Where& where, Nanos at) {
  if (Ring* ring = ring_of(rank)) ring->add({.kind = TraceEvent::Kind::letter_received, .where = where, .started = at, .value = flow}, track, name);
}

void RingTracer::slots_in_use(Rank rank, std::string_view edge, std::uint32_t count, Nanos at) {
  if (Ring* ring = ring_of(rank)) ring->add({.kind = TraceEvent::Kind::slots, .started = at, .value = count}, edge, edge);
}

void RingTracer::mark(Rank rank, std::string text, Nanos at) {
  if (Ring* ring = ring_of(rank)) ring->add({.kind = TraceEvent::Kind::mark, .started = at}, "marks", text);
}

std::uint64_t RingTracer::next_flow() {
  constexpr std::uint64_t numbers = (std::uint64_t{1} << flow_count_bits) - 1;  // 0 of rank 0 would say: no letter
  return flow_space_ + flows_.fetch_add(1, std::memory_order_relaxed) % numbers + 1;
}

void RingTracer::finished(LaneKind lane, const LaneOperation& operation, Nanos posted, Nanos started, Nanos ended, const Outcome& outcome) {
  lanes_.at(first_)->finished(lane, operation, posted, started, ended, outcome);
}

LaneObserver& RingTracer::lanes_of(Rank rank) { return *lanes_.at(rank); }

RankTrace RingTracer::snapshot(Rank rank) const { return rings_.at(rank)->snapshot(rank); }

RankTrace RingTracer::snapshot(Rank rank, Step first, Step last) const {
  RankTrace trace = rings_.at(rank)->snapshot(rank);
  keep_steps(trace, first, last);
  return trace;
}

Result<void> RingTracer::write(const std::filesystem::path& file, std::optional<std::pair<Step, Step>> steps) const {
  std::vector<RankTrace> traces;
  for (const auto& [rank, ring] : rings_) traces.push_back(steps ? snapshot(rank, steps->first, steps->second) : ring->snapshot(rank));
  return write_chrome_trace(traces, file);
}

}  // namespace troupe
