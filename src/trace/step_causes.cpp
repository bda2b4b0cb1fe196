#include "src/trace/step_causes.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <tuple>

namespace troupe {
namespace {

constexpr Nanos instant{2000};  ///< two times this close are one: a letter leaves just after its operation has ended
constexpr int longest_chain = 32;
constexpr std::string_view actor_suffix = " actor";

/// Whose handlers post to a lane.
std::string_view poster_of(std::string_view lane) {
  if (lane == "compute") return "compute actor";
  if (lane == "comm" || lane == "optimizer") return "sharding actor";
  if (lane == "disk") return "data_loader actor";
  return "checkpoint actor";
}

/// The lane whose operation's end a letter tells of; empty: it is written in a handler.
std::string_view lane_that_sends(std::string_view letter) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 8> table{{{"WeightsGathered", "comm"},
                                                                                {"GradientReady", "compute"},
                                                                                {"GradientReduced", "comm"},
                                                                                {"MicroBatchDone", "compute"},
                                                                                {"BatchReady", "disk"},
                                                                                {"SnapshotTaken", "copy"},
                                                                                {"ShardSaved", "storage"},
                                                                                {"StepReport", "comm"}}};
  const auto* const found = std::ranges::find(table, letter, &std::pair<std::string_view, std::string_view>::first);
  return found == table.end() ? std::string_view{} : found->second;
}

}  // namespace

StepCauses::StepCauses(const RunTimeline& timeline) {
  for (std::uint32_t rank = 0; rank < timeline.ranks.size(); ++rank) read(rank, timeline.ranks[rank]);
  std::ranges::stable_sort(operations_, {}, [](const LaneSpan& op) { return std::tuple(op.rank, op.lane, op.started, op.ended); });
  for (std::size_t i = 0; i < operations_.size(); ++i) {
    const auto [lane, fresh] = lanes_.try_emplace({operations_[i].rank, operations_[i].lane}, i, i + 1);
    if (!fresh) operations_[i].before = i - 1;
    lane->second.second = i + 1;
  }
  for (auto& [track, handlers] : handlers_) std::ranges::stable_sort(handlers, {}, &Handler::started);
  for (auto& [rank, changes] : slots_) std::ranges::stable_sort(changes, {}, &SlotChange::at);
  find_collectives();
}

void StepCauses::read(std::uint32_t rank, const RankTrace& trace) {
  const auto text = [&](std::uint32_t id) { return std::string_view(trace.names[id]); };
  std::map<std::pair<std::uint32_t, Nanos>, std::vector<std::pair<std::uint32_t, std::uint64_t>>> received;  // name and flow, by track and time
  for (const TraceEvent& event : trace.events) {
    if (event.kind == TraceEvent::Kind::letter_received) received[{event.track, event.started}].emplace_back(event.name, event.value);
    if (event.kind == TraceEvent::Kind::letter_sent) sent_[event.value] = {rank, text(event.track), event.started, event.where};
    if (event.kind == TraceEvent::Kind::slots) slots_[rank].push_back({event.started, text(event.track), event.value});
  }
  for (const TraceEvent& event : trace.events) {
    if (event.kind != TraceEvent::Kind::span) continue;
    const std::string_view track = text(event.track);
    if (is_lane_row(track)) {
      operations_.push_back({.rank = rank,
                             .lane = track,
                             .name = text(event.name),
                             .where = event.where,
                             .issued = event.issued,
                             .started = event.started,
                             .ended = event.ended,
                             .before = {},
                             .together = {},
                             .last_rank = rank});
    } else if (track.ends_with(actor_suffix)) {
      Handler handler{text(event.name), event.where, event.started, event.ended, 0};
      if (const auto found = received.find({event.track, event.started}); found != received.end()) {
        const auto same = std::ranges::find(found->second, event.name, &std::pair<std::uint32_t, std::uint64_t>::first);
        if (same != found->second.end()) {
          handler.flow = same->second;
          found->second.erase(same);
        }
      }
      handlers_[{rank, track}].push_back(handler);
    }
  }
}

/// The same operation of lane comm on several ranks is one collective: it can go on when the last of them has come.
void StepCauses::find_collectives() {
  std::map<std::tuple<std::string_view, Where>, std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < operations_.size(); ++i)
    if (operations_[i].lane == "comm") groups[{operations_[i].name, operations_[i].where}].push_back(i);
  for (const auto& [key, members] : groups) {
    const auto later = [&](std::size_t a, std::size_t b) { return operations_[a].started < operations_[b].started; };
    const LaneSpan& last = operations_[*std::ranges::max_element(members, later)];
    Nanos end = Nanos::max();
    for (const std::size_t member : members) end = std::min(end, operations_[member].ended);
    if (members.size() < 2 || last.started > end) continue;  // else its ranks do not meet: a collective of several groups, or a copy
    for (const std::size_t member : members) {
      operations_[member].together = last.started;
      operations_[member].last_rank = last.rank;
    }
  }
}

std::span<const LaneSpan> StepCauses::lane(std::uint32_t rank, std::string_view lane) const {
  const auto found = lanes_.find({rank, lane});
  if (found == lanes_.end()) return {};
  return std::span(operations_).subspan(found->second.first, found->second.second - found->second.first);
}

std::vector<std::string_view> StepCauses::lanes(std::uint32_t rank) const {
  std::vector<std::string_view> names;
  for (const auto& [key, range] : lanes_)
    if (key.first == rank) names.push_back(key.second);
  return names;
}

const StepCauses::Handler* StepCauses::posting(const LaneSpan& operation) const {
  const auto found = handlers_.find({operation.rank, poster_of(operation.lane)});
  if (found == handlers_.end() || operation.issued == Nanos{0}) return nullptr;
  const auto& handlers = found->second;
  const Handler* best = nullptr;
  auto at = std::ranges::upper_bound(handlers, operation.issued, {}, &Handler::started);
  while (at != handlers.begin()) {
    --at;
    if (at->ended < operation.issued) {
      if (best == nullptr && operation.issued - at->ended <= instant) best = &*at;
      break;
    }
    const bool names_it = at->where.step == operation.where.step && at->where.micro == operation.where.micro && at->where.unit == operation.where.unit;
    if (names_it) return &*at;
    if (best == nullptr) best = &*at;
  }
  return best;
}

const StepCauses::Handler* StepCauses::handler_at(std::uint32_t rank, std::string_view track, Nanos at) const {
  const auto found = handlers_.find({rank, track});
  if (found == handlers_.end()) return nullptr;
  auto next = std::ranges::upper_bound(found->second, at, {}, &Handler::started);
  if (next == found->second.begin()) return nullptr;
  --next;
  return next->ended >= at ? &*next : nullptr;
}

/// The newest operation of a lane (any, if empty) that had ended by then; with `where`, of that unit.
std::optional<std::size_t> StepCauses::done_before(std::uint32_t rank, std::string_view lane, Nanos at, const Where* where) const {
  std::optional<std::size_t> best;
  for (auto entry = lanes_.lower_bound({rank, lane}); entry != lanes_.end() && entry->first.first == rank; ++entry) {
    if (!lane.empty() && entry->first.second != lane) break;
    const auto [first, past] = entry->second;
    const auto operations = std::span(operations_).subspan(first, past - first);
    auto next = std::ranges::upper_bound(operations, at + instant, {}, &LaneSpan::ended);
    while (next != operations.begin()) {
      --next;
      if (where != nullptr && (next->where.step != where->step || next->where.unit != where->unit)) {
        if (next->where.step < where->step) break;
        continue;
      }
      const std::size_t found = index_of(*next);
      if (!best || operations_[*best].ended < operations_[found].ended) best = found;
      break;
    }
  }
  return best;
}

/// A letter may leave late: its thread can be kept from running after its operation has ended. So what had ended by then is the last resort.
std::optional<std::size_t> StepCauses::origin(const Handler& handler, int depth) const {
  const auto found = sent_.find(handler.flow);
  if (handler.flow == 0 || found == sent_.end()) return std::nullopt;
  const Sent& sent = found->second;
  const auto newest = done_before(sent.rank, {}, sent.at, nullptr);
  if (handler.letter == "LaneDone") {
    if (const auto done = told_by_lane(sent, handler.where)) return done;
  } else if (handler.letter == "SlotHome") {
    if (newest && sent.at - operations_[*newest].ended < std::chrono::milliseconds{1}) return newest;
  } else if (const std::string_view lane = lane_that_sends(handler.letter); !lane.empty()) {
    const bool of_unit = handler.letter == "WeightsGathered" || handler.letter == "GradientReady";
    if (const auto done = done_before(sent.rank, lane, sent.at, of_unit ? &handler.where : nullptr)) return done;
  }
  const Handler* const writer = handler_at(sent.rank, sent.track, sent.at);
  if (writer != nullptr && writer != &handler && depth < longest_chain) {
    if (const auto before = origin(*writer, depth + 1)) return before;
  }
  return newest;
}

/// The operation of which a LaneDone tells its actor.
std::optional<std::size_t> StepCauses::told_by_lane(const Sent& sent, const Where& where) const {
  std::optional<std::size_t> best;
  for (auto entry = lanes_.lower_bound({sent.rank, std::string_view{}}); entry != lanes_.end() && entry->first.first == sent.rank; ++entry) {
    if (poster_of(entry->first.second) != sent.track) continue;
    const auto done = done_before(sent.rank, entry->first.second, sent.at, &where);
    if (done && (!best || operations_[*best].ended < operations_[*done].ended)) best = done;
  }
  return best;
}

std::optional<std::size_t> StepCauses::newest_before(const LaneSpan& operation) const {
  std::optional<std::size_t> best;
  for (auto entry = lanes_.lower_bound({operation.rank, std::string_view{}}); entry != lanes_.end() && entry->first.first == operation.rank; ++entry) {
    const auto [first, past] = entry->second;
    const auto operations = std::span(operations_).subspan(first, past - first);
    auto next = std::ranges::upper_bound(operations, operation.started, {}, &LaneSpan::ended);
    while (next != operations.begin() && std::prev(next)->started >= operation.started) --next;  // of no length, and as late
    if (next == operations.begin()) continue;
    const std::size_t found = index_of(*std::prev(next));
    if (!best || operations_[*best].ended < operations_[found].ended) best = found;
  }
  return best;
}

std::string_view StepCauses::edge_of(std::uint32_t rank, const Handler& handler) const {
  const auto found = slots_.find(rank);
  if (found == slots_.end()) return {};
  // The count falls inside of the handler; what it posts then may raise it again.
  auto change = std::ranges::lower_bound(found->second, handler.started, {}, &SlotChange::at);
  return change != found->second.end() && change->at <= handler.ended ? change->edge : std::string_view{};
}

Cause StepCauses::cause_of(const LaneSpan& operation) const {
  Cause cause = what_it_waited_for(operation);
  if (cause.predecessor && operations_[*cause.predecessor].ended > operation.started) cause.predecessor.reset();
  if (!cause.predecessor) cause.predecessor = newest_before(operation);
  return cause;
}

Cause StepCauses::what_it_waited_for(const LaneSpan& operation) const {
  Cause cause;
  const LaneSpan* const before = operation.before ? &operations_[*operation.before] : nullptr;
  if (before == nullptr || operation.issued > before->ended) {
    if (const Handler* const handler = posting(operation)) {
      cause.kind = Cause::Kind::letter;
      cause.letter = handler->letter;
      if (handler->letter == "SlotHome") cause.edge = edge_of(operation.rank, *handler);
      cause.predecessor = origin(*handler);
      return cause;
    }
  } else if (operation.started - before->ended > 10 * instant) {
    // Posted in time, and yet it did not begin: the device waited for another lane's operation.
    for (const std::string_view other : lanes(operation.rank)) {
      if (other == operation.lane) continue;
      const auto done = done_before(operation.rank, other, operation.started, nullptr);
      if (!done || operations_[*done].ended <= before->ended) continue;
      if (!cause.predecessor || operations_[*cause.predecessor].ended < operations_[*done].ended) cause.predecessor = done;
    }
    if (cause.predecessor && operations_[*cause.predecessor].ended <= operation.started) {
      cause.kind = Cause::Kind::device;
      return cause;
    }
  }
  if (before != nullptr) {
    cause.kind = Cause::Kind::lane;
    cause.predecessor = operation.before;
  }
  return cause;
}

}  // namespace troupe
