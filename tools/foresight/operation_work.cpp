#include "tools/foresight/operation_work.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/runtime/describe.hpp"
#include "src/trace/run_timeline.hpp"

namespace troupe {
namespace {

/// "gather L3 (backward)", "forward L0 m1", "verdict": what a lane's span is of. Nothing: no operation of a plan.
std::optional<Fact> fact_of(const std::string& name) {
  constexpr std::array kinds{OperationKind::load,       OperationKind::scales, OperationKind::gather,     OperationKind::forward, OperationKind::backward,
                             OperationKind::accumulate, OperationKind::reduce, OperationKind::all_reduce, OperationKind::verdict, OperationKind::optimize,
                             OperationKind::snapshot,   OperationKind::save,   OperationKind::keep};
  const std::string word = name.substr(0, name.find(' '));
  for (const OperationKind kind : kinds) {
    if (word != name_of(kind)) continue;
    Fact fact{.kind = kind, .unit = {}, .micro = {}, .backward = name.ends_with("(backward)")};
    if (const std::size_t at = name.find(" L"); at != std::string::npos) fact.unit = Unit{static_cast<std::uint32_t>(std::atoi(name.c_str() + at + 2))};
    return fact;
  }
  return std::nullopt;
}

struct Operation {
  const TracedSpan* span;
  Fact fact;
  Nanos begun;  ///< of work: a collective's when its last rank has come
};

using Call = std::pair<Step, std::string>;

std::vector<Operation> operations_in(std::span<const TracedSpan> spans) {
  std::vector<Operation> operations;
  struct Meeting {
    Nanos last{0}, ended = Nanos::max();
  };
  std::map<Call, Meeting> meetings;
  for (const TracedSpan& span : spans) {
    if (!is_lane_row(span.track)) continue;
    const auto fact = fact_of(span.name);
    if (!fact) continue;
    operations.push_back({&span, *fact, span.started});
    if (span.track != "comm") continue;
    Meeting& meeting = meetings[{span.step, span.name}];
    meeting.last = std::max(meeting.last, span.started);
    meeting.ended = std::min(meeting.ended, span.ended);
  }
  for (Operation& operation : operations) {
    if (operation.span->track != "comm") continue;
    const Meeting& meeting = meetings.at({operation.span->step, operation.span->name});
    if (meeting.last < meeting.ended) operation.begun = meeting.last;  // else its groups are several, and do not meet
  }
  return operations;
}

/// How much work one of the running operations has had by each moment.
class SharedTime {
 public:
  /// Of the operations that `counts` says yes to.
  SharedTime(const std::vector<Operation>& operations, double capacity, const std::function<bool(const TracedSpan&)>& counts) {
    std::map<Nanos, int> changes;
    for (const Operation& operation : operations) {
      if (operation.begun >= operation.span->ended || !counts(*operation.span)) continue;
      ++changes[operation.begun];
      --changes[operation.span->ended];
    }
    int busy = 0;
    double work = 0;
    for (const auto& [at, change] : changes) {
      if (!points_.empty()) work += seconds_of(at - points_.back().first) * speed(busy, capacity);
      points_.emplace_back(at, work);
      busy += change;
    }
  }
  /// Only for times at which an operation begins or ends.
  [[nodiscard]] double at(Nanos time) const { return std::ranges::lower_bound(points_, time, {}, &std::pair<Nanos, double>::first)->second; }

 private:
  static double speed(int busy, double capacity) { return capacity <= 0 || busy <= capacity ? 1 : capacity / busy; }
  std::vector<std::pair<Nanos, double>> points_;
};

bool on_device(const TracedSpan& span) { return span.track == "compute" || span.track == "optimizer"; }

/// What of each operation's time was its own: of a host's cores, or of its rank's device. Operations that share nothing have all of it.
class OwnTime {
 public:
  OwnTime(const std::vector<Operation>& operations, double capacity) {
    if (capacity > 0) {
      host_.emplace(operations, capacity, [](const TracedSpan&) { return true; });
      return;
    }
    for (const Operation& operation : operations) {
      const Rank rank = operation.span->rank;
      if (on_device(*operation.span) && !devices_.contains(rank))
        devices_.emplace(rank, SharedTime(operations, 1, [rank](const TracedSpan& span) { return span.rank == rank && on_device(span); }));
    }
  }
  [[nodiscard]] double of(const Operation& operation) const {
    if (!host_ && !on_device(*operation.span)) return seconds_of(operation.span->ended - operation.begun);
    const SharedTime& time = host_ ? *host_ : devices_.at(operation.span->rank);
    return time.at(operation.span->ended) - time.at(operation.begun);
  }

 private:
  std::optional<SharedTime> host_;
  std::map<Rank, SharedTime> devices_;
};

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

}  // namespace

std::map<OperationCosts::Kind, double> work_by_kind(std::span<const TracedSpan> spans, const OperationCosts& costs, double capacity) {
  const std::vector<Operation> operations = operations_in(spans);
  const OwnTime own(operations, capacity);
  std::map<std::string, std::pair<OperationCosts::Kind, std::vector<double>>> by_operation;
  std::map<Call, std::pair<OperationCosts::Kind, double>> calls;  // of collectives, the shortest rank
  for (const Operation& operation : operations) {
    if (operation.begun >= operation.span->ended) continue;
    const OperationCosts::Kind kind = costs.kind_of(operation.fact);
    const double work = own.of(operation);
    if (!kind.shared) {
      auto& values = by_operation[operation.span->name];
      values.first = kind;
      values.second.push_back(work);
    } else if (const auto [call, fresh] = calls.try_emplace({operation.span->step, operation.span->name}, kind, work); !fresh) {
      call->second.second = std::min(call->second.second, work);
    }
  }
  for (const auto& [call, shortest] : calls) {
    auto& values = by_operation[call.second];
    values.first = shortest.first;
    values.second.push_back(shortest.second);
  }
  std::map<OperationCosts::Kind, std::vector<double>> by_kind;
  for (const auto& [name, operation] : by_operation) by_kind[operation.first].push_back(mean(operation.second));
  std::map<OperationCosts::Kind, double> means;
  for (const auto& [kind, values] : by_kind) means[kind] = mean(values);
  return means;
}

}  // namespace troupe
