#include "src/trace/report.hpp"

#include <algorithm>
#include <set>

#include "src/trace/step_causes.hpp"

namespace troupe {
namespace {

constexpr int least_gain = 200;  ///< a slot that gains less than this part of a step is not worth its memory

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
  Reporter(const RunTimeline& timeline, const std::vector<EdgeSlots>& edges, std::optional<SlotReplay> replay)
      : timeline_(timeline), causes_(timeline), edges_(edges) {
    report_.replay = std::move(replay);
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
    if (seen.empty()) return Error{"the timeline holds no compute operation"};
    const std::pair held{*seen.begin(), *seen.rbegin()};
    if (wanted) std::erase_if(seen, [&](Step step) { return step < wanted->first || step > wanted->second; });
    if (seen.empty()) return no_such_steps(*wanted, held);
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

  /// Backwards from the last operation of the rank whose steps took longest, to where its window begins: each time to what the operation waited for.
  void add_path() {
    const auto length = [](const auto& window) { return window.second.end - window.second.start; };
    const auto slowest = std::ranges::max_element(windows_, {}, length);
    if (slowest == windows_.end()) return;
    const auto [rank, window] = *slowest;
    const LaneSpan* at = nullptr;
    for (const std::string_view name : causes_.lanes(rank)) {
      for (const LaneSpan& op : causes_.lane(rank, name))
        if (op.ended == window.end) at = &op;
    }
    Nanos until = window.end;
    report_.path_length = window.end - window.start;
    while (at != nullptr && until > window.start && report_.path.size() < causes_.operations().size()) {
      const Cause cause = add_hop(*at, window.start, until);
      at = cause.predecessor ? &causes_.operations()[*cause.predecessor] : nullptr;
      until -= report_.path.back().length + report_.path.back().gap;
    }
    std::ranges::reverse(report_.path);
  }

  /// What of the time before `until` an operation of the path took, and what it waited before.
  Cause add_hop(const LaneSpan& op, Nanos start, Nanos until) {
    TraceReport::Hop hop{timeline_.ranks[op.rank].rank, std::string(op.lane), std::string(op.name), op.where.step, {}, {}, {}};
    const LaneSpan* late = &op;  // a collective can go on when the last rank has come: what kept that one is the cause
    if (op.together && *op.together > op.started + Nanos{1000} && op.last_rank != op.rank) {
      for (const LaneSpan& other : causes_.lane(op.last_rank, op.lane))
        if (other.name == op.name && other.where == op.where && other.started == *op.together) late = &other;
      if (late != &op) hop.via = "rank " + std::to_string(timeline_.ranks[op.last_rank].rank.value()) + ", ";
    }
    const Nanos began = std::clamp(late->started, start, until);
    Cause cause = causes_.cause_of(*late);
    hop.via += cause.kind == Cause::Kind::letter   ? waited_for(cause.letter, cause.edge)
               : cause.kind == Cause::Kind::lane   ? "the operation before"
               : cause.kind == Cause::Kind::device ? "another lane"
               : cause.predecessor                 ? "what the timeline does not show"
                                                   : "the start";
    hop.length = until - began;
    hop.gap = began - (cause.predecessor ? std::clamp(causes_.operations()[*cause.predecessor].ended, start, began) : start);
    report_.path_kinds[std::string(op.kind())] += hop.length;
    report_.path_gaps += hop.gap;
    report_.path.push_back(std::move(hop));
    return cause;
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
    if (report_.replay)
      for (const auto& [edge, step] : report_.replay->with_one_more) blamed.try_emplace(edge);
    for (const auto& [edge, waited] : blamed) {
      TraceReport::Advice advice{edge, waited, 0, 0, Nanos{0}};
      if (const auto known = std::ranges::find(edges_, edge, &EdgeSlots::edge); known != edges_.end()) {
        advice.slots = known->slots;
        advice.slot_bytes = known->slot_bytes;
      }
      if (report_.replay) {
        const auto more = report_.replay->with_one_more.find(edge);
        if (more != report_.replay->with_one_more.end()) advice.gained = report_.replay->step - more->second;
        if (advice.gained < report_.replay->step / least_gain) continue;
      }
      report_.advice.push_back(advice);
    }
    std::ranges::stable_sort(report_.advice, std::greater{}, [](const TraceReport::Advice& advice) { return std::pair(advice.gained, advice.waited); });
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

Result<TraceReport> report_of(const RunTimeline& timeline, std::optional<std::pair<Step, Step>> steps, const std::vector<EdgeSlots>& edges,
                              std::optional<SlotReplay> replay) {
  return Reporter(timeline, edges, std::move(replay)).report(steps);
}

}  // namespace troupe
