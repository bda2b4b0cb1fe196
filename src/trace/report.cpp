#include "src/trace/report.hpp"

#include <algorithm>
#include <set>

#include "src/trace/step_causes.hpp"

namespace troupe {
namespace {

struct Interval {
  Nanos start, end;
};

Nanos overlap_of(Nanos a, Nanos b, Nanos from, Nanos until) { return std::max(Nanos{0}, std::min(b, until) - std::max(a, from)); }

std::string waited_for(std::string_view letter, std::string_view edge) {
  if (letter == "WeightsGathered") return "gathered weights";
  if (letter == "GradientReady") return "a backward's gradients";
  if (letter == "GradientReduced") return "reduced gradients";
  if (letter == "BatchReady") return "a batch";
  if (letter == "MicroBatchDone") return "the micro-batch's end";
  if (letter == "SnapshotTaken") return "the snapshot's copy";
  if (letter == "StepBegin" || letter == "Horizon") return "the step to begin";
  if (letter == "LaneDone") return "another operation's end";
  if (letter == "SlotHome") return "a free slot" + (edge.empty() ? std::string{} : " of " + std::string(edge));
  return std::string(letter);
}

class Reporter {
 public:
  Reporter(const RunTimeline& timeline, const std::vector<EdgeSlots>& edges) : timeline_(timeline), causes_(timeline), edges_(edges) {
    for (const LaneSpan& op : causes_.operations()) {
      Ends& ends = ends_[{op.rank, op.where.step}];
      ends.any = std::max(op.ended, ends.any.value_or(op.ended));
      if (op.lane == "comm") ends.comm = std::max(op.ended, ends.comm.value_or(op.ended));
    }
  }

  Result<TraceReport> report(std::optional<std::pair<Step, Step>> wanted) {
    if (auto chosen = choose(wanted); !chosen) return chosen.error();
    for (std::uint32_t rank = 0; rank < timeline_.ranks.size(); ++rank) {
      report_.overwritten += timeline_.ranks[rank].overwritten;
      if (const auto window = window_of(rank)) add_rank(rank, *window);
    }
    add_bubble();
    add_path();
    add_advice();
    return std::move(report_);
  }

 private:
  Result<void> choose(std::optional<std::pair<Step, Step>> wanted) {
    std::set<Step> seen;
    for (const LaneSpan& op : causes_.operations()) {
      if (op.where.step > Step{0} && op.lane == "compute") seen.insert(op.where.step);
    }
    if (wanted) std::erase_if(seen, [&](Step step) { return step < wanted->first || step > wanted->second; });
    if (seen.empty()) return Error{"the timeline holds no compute operation" + std::string(wanted ? " of these steps" : "")};
    if (!wanted && seen.size() > 1) seen.erase(seen.begin());
    report_.first = *seen.begin();
    report_.last = *seen.rbegin();
    report_.steps = seen.size();
    return {};
  }

  /// The end of a rank's step: of its last operation of lane comm (the verdict), without one of any lane.
  [[nodiscard]] std::optional<Nanos> end_of(std::uint32_t rank, Step step) const {
    const auto found = ends_.find({rank, step});
    if (found == ends_.end()) return std::nullopt;
    return found->second.comm ? found->second.comm : found->second.any;
  }

  [[nodiscard]] std::optional<Interval> window_of(std::uint32_t rank) const {
    const auto end = end_of(rank, report_.last);
    if (!end) return std::nullopt;
    if (const auto before = report_.first > Step{1} ? end_of(rank, Step{report_.first.value() - 1}) : std::nullopt)
      return *before < *end ? std::optional(Interval{*before, *end}) : std::nullopt;
    Nanos start = Nanos::max();
    for (const LaneSpan& op : causes_.operations()) {
      if (op.rank == rank && op.where.step >= report_.first && op.where.step <= report_.last && op.lane != "disk") start = std::min(start, op.started);
    }
    return start < *end ? std::optional(Interval{start, *end}) : std::nullopt;
  }

  void add_rank(std::uint32_t rank, Interval window) {
    TraceReport::OfRank result;
    result.rank = timeline_.ranks[rank].rank;
    result.window = window.end - window.start;
    windows_.emplace(rank, window);
    for (const std::string_view name : causes_.lanes(rank)) result.lanes.push_back(lane_of(rank, name, window));
    add_communication(rank, window, result);
    Nanos before = window.start;
    for (Step step = report_.first; step <= report_.last; ++step) {
      const auto end = end_of(rank, step);
      if (!end) continue;
      result.worst_step = std::max(result.worst_step, *end - before);
      before = *end;
    }
    report_.step_time = std::max(report_.step_time, result.window / static_cast<std::int64_t>(report_.steps));
    report_.ranks.push_back(std::move(result));
  }

  TraceReport::Lane lane_of(std::uint32_t rank, std::string_view name, Interval window) {
    TraceReport::Lane lane;
    lane.lane = name;
    Nanos reached = window.start;
    for (const LaneSpan& op : causes_.lane(rank, name)) {
      if (op.ended <= window.start) continue;
      if (op.started > reached) add_wait(lane, op, reached, std::min(op.started, window.end));
      if (op.started >= window.end) {
        reached = window.end;
        break;
      }
      const Nanos busy = overlap_of(op.started, op.ended, std::max(reached, window.start), window.end);
      lane.busy += busy;
      lane.kinds[std::string(op.kind())] += busy;
      ++lane.operations;
      reached = std::max(reached, std::min(op.ended, window.end));
    }
    if (reached < window.end) lane.waits["the end of the step"] += window.end - reached;
    lane.share = static_cast<double>(lane.busy.count()) / static_cast<double>((window.end - window.start).count());
    return lane;
  }

  void add_wait(TraceReport::Lane& lane, const LaneSpan& op, Nanos from, Nanos until) {
    const Cause cause = causes_.cause_of(op);
    const Nanos posted = std::clamp(op.issued, from, until);
    switch (cause.kind) {
      case Cause::Kind::letter:
        lane.waits[waited_for(cause.letter, cause.edge)] += posted - from;
        if (until > posted) lane.waits["its lane to begin"] += until - posted;
        break;
      case Cause::Kind::device: {
        const LaneSpan& other = causes_.operations()[*cause.predecessor];
        lane.waits["a " + std::string(other.kind()) + " (" + std::string(other.lane) + ")"] += until - from;
        break;
      }
      case Cause::Kind::lane: lane.waits["its lane to begin"] += until - from; break;
      case Cause::Kind::unknown: lane.waits["what the timeline does not show"] += until - from; break;
    }
  }

  void add_communication(std::uint32_t rank, Interval window, TraceReport::OfRank& result) {
    const auto compute = causes_.lane(rank, "compute");
    auto first = compute.begin();
    for (const LaneSpan& op : causes_.lane(rank, "comm")) {
      const Nanos from = std::max(op.started, window.start), until = std::min(op.ended, window.end);
      if (from >= until) continue;
      result.communication += until - from;
      Nanos covered{0};
      while (first != compute.end() && first->ended <= from) ++first;
      for (auto other = first; other != compute.end() && other->started < until; ++other) covered += overlap_of(other->started, other->ended, from, until);
      result.exposed += until - from - covered;
      if (!op.together) continue;
      ++result.collectives;
      result.for_peers += *op.together - op.started;
      if (op.last_rank == rank) ++result.last_in;
      kept_[op.last_rank] += *op.together - op.started;
    }
    if (result.communication > Nanos{0}) result.overlap = 1 - static_cast<double>(result.exposed.count()) / static_cast<double>(result.communication.count());
  }

  void add_bubble() {
    for (TraceReport::OfRank& rank : report_.ranks) {
      for (std::uint32_t i = 0; i < timeline_.ranks.size(); ++i)
        if (timeline_.ranks[i].rank == rank.rank) rank.kept_others = kept_[i];
    }
    std::map<Step, Interval> spans;
    Nanos busy{0}, span{0};
    for (const auto& [rank, window] : windows_) {
      for (const LaneSpan& op : causes_.lane(rank, "compute")) {
        if (op.where.step < report_.first || op.where.step > report_.last) continue;
        Interval& step = spans.try_emplace(op.where.step, op.started, op.ended).first->second;
        step = {std::min(step.start, op.started), std::max(step.end, op.ended)};
        busy += op.ended - op.started;
      }
    }
    for (const auto& [step, interval] : spans) span += (interval.end - interval.start) * static_cast<std::int64_t>(windows_.size());
    if (span > Nanos{0}) report_.bubble = std::max(0.0, 1 - static_cast<double>(busy.count()) / static_cast<double>(span.count()));
  }

  /// Backwards from the step's last operation on the rank that ends last: each time to what the operation waited for.
  void add_path() {
    const LaneSpan* at = nullptr;
    Nanos start = Nanos::max();
    for (const auto& [rank, window] : windows_) {
      start = std::min(start, window.start);
      for (const std::string_view name : causes_.lanes(rank)) {
        for (const LaneSpan& op : causes_.lane(rank, name))
          if (op.ended <= window.end && (at == nullptr || op.ended > at->ended) && name == (causes_.lane(rank, "comm").empty() ? name : "comm")) at = &op;
      }
    }
    if (at == nullptr) return;
    Nanos until = at->ended;
    report_.path_length = until - start;
    while (at != nullptr && until > start) {
      TraceReport::Hop hop{timeline_.ranks[at->rank].rank, std::string(at->lane), std::string(at->name), at->where.step, {}, {}, {}};
      Nanos began = std::max(at->started, start);
      const LaneSpan* late = at;  // a collective can go on when the last rank has come: what kept that one is the cause
      if (at->together && *at->together > at->started + Nanos{1000} && at->last_rank != at->rank) {
        for (const LaneSpan& op : causes_.lane(at->last_rank, at->lane))
          if (op.name == at->name && op.where == at->where) late = &op;
        began = std::max(*at->together, start);
        hop.via = "rank " + std::to_string(timeline_.ranks[at->last_rank].rank.value()) + ", ";
      }
      hop.length = std::max(Nanos{0}, until - began);
      const Cause cause = causes_.cause_of(*late);
      hop.via += cause.kind == Cause::Kind::letter   ? waited_for(cause.letter, cause.edge)
                 : cause.kind == Cause::Kind::lane   ? "the operation before"
                 : cause.kind == Cause::Kind::device ? "another lane"
                                                     : "the start";
      const LaneSpan* const previous = cause.predecessor ? &causes_.operations()[*cause.predecessor] : nullptr;
      const Nanos reached = previous != nullptr ? std::clamp(previous->ended, start, began) : start;
      hop.gap = began - reached;
      report_.path_kinds[std::string(at->kind())] += hop.length;
      report_.path_gaps += hop.gap;
      report_.path.push_back(std::move(hop));
      if (previous == nullptr || previous->ended >= until) break;
      until = std::min(previous->ended, began);
      at = previous;
    }
    std::ranges::reverse(report_.path);
  }

  /// Compute stood idle; whatever the chain of causes meets that waited for a slot within that time is to blame for so much of it.
  void add_advice() {
    std::map<std::string, Nanos> blamed;
    for (const auto& [rank, window] : windows_) {
      Nanos reached = window.start;
      for (const LaneSpan& op : causes_.lane(rank, "compute")) {
        if (op.started >= window.end) break;
        if (op.started > reached && op.ended > window.start) blame(op, reached, blamed);
        reached = std::max(reached, op.ended);
      }
    }
    for (const auto& [edge, waited] : blamed) {
      TraceReport::Advice advice{edge, waited, 0, 0};
      if (const auto known = std::ranges::find(edges_, edge, &EdgeSlots::edge); known != edges_.end()) {
        advice.slots = known->slots;
        advice.slot_bytes = known->slot_bytes;
      }
      report_.advice.push_back(advice);
    }
    std::ranges::stable_sort(report_.advice, std::greater{}, &TraceReport::Advice::waited);
    if (report_.advice.size() > 3) report_.advice.resize(3);
  }

  void blame(const LaneSpan& idle, Nanos from, std::map<std::string, Nanos>& blamed) const {
    const LaneSpan* at = &idle;
    for (int depth = 0; depth < 8 && at != nullptr && at->ended > from; ++depth) {
      const Cause cause = causes_.cause_of(*at);
      if (cause.kind == Cause::Kind::letter && cause.letter == "SlotHome" && !cause.edge.empty()) {
        const Nanos free = at->before ? causes_.operations()[*at->before].ended : from;
        // Posted as soon as its lane was free, it would have begun that much earlier.
        blamed[std::string(cause.edge)] += std::min(idle.started - from, std::max(Nanos{0}, at->issued - free));
        return;
      }
      at = cause.predecessor ? &causes_.operations()[*cause.predecessor] : nullptr;
    }
  }

  struct Ends {
    std::optional<Nanos> comm, any;
  };
  const RunTimeline& timeline_;
  StepCauses causes_;
  std::map<std::pair<std::uint32_t, Step>, Ends> ends_;
  const std::vector<EdgeSlots>& edges_;
  std::map<std::uint32_t, Interval> windows_;
  std::map<std::uint32_t, Nanos> kept_;
  TraceReport report_;
};

}  // namespace

Result<TraceReport> report_of(const RunTimeline& timeline, std::optional<std::pair<Step, Step>> steps, const std::vector<EdgeSlots>& edges) {
  return Reporter(timeline, edges).report(steps);
}

}  // namespace troupe
