#include "tools/launcher/host_orders.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

namespace troupe {
namespace {

using nlohmann::json;

json json_of(const WorkerOrder& order) {
  return {{"say", order.let_go ? "let_go" : "start"}, {"rank", order.rank.value()}, {"incarnation", order.incarnation.value()}, {"kill", order.kill}};
}
json json_of(const SnapshotName& name) {
  return {{"rank", name.rank.value()}, {"slot", name.slot}, {"epoch", name.epoch.value()}, {"step", name.step.value()}};
}
json json_of(const CopyOrder& order) { return {{"say", "copy"}, {"snapshot", json_of(order.snapshot)}, {"to", order.to}}; }
json json_of(const HoldingsOrder& order) { return {{"say", "holdings"}, {"question", order.question}}; }
json json_of(const ForgetOrder& order) { return {{"say", "forget"}, {"before", order.before.value()}}; }
json json_of(const PresentOrder&) { return {{"say", "present"}}; }
json json_of(const PresentReport&) { return {{"say", "present"}}; }
json json_of(const CopyReport& report) {
  return {{"say", "copied"}, {"snapshot", json_of(report.snapshot)}, {"to", report.to}, {"sent", report.sent}, {"problem", report.problem}};
}
json json_of(const HoldingsReport& report) {
  json snapshots = json::array();
  for (const SnapshotName& name : report.snapshots) snapshots.push_back(json_of(name));
  return {{"say", "holdings"}, {"question", report.question}, {"snapshots", snapshots}};
}
json json_of(const EndOrder& order) { return {{"say", "end"}, {"ok", order.ok}, {"cause", order.cause}, {"patience", order.patience.count()}}; }
json json_of(const WorkerEnd& end) {
  return {{"say", "ended"},
          {"first", end.first.value()},
          {"ranks", end.ranks},
          {"pid", end.pid},
          {"signal", end.signal},
          {"code", end.code},
          {"lost", end.lost},
          {"log", end.log.string()},
          {"demand", end.on_our_demand},
          {"incarnation", end.incarnation.value()},
          {"host", end.host},
          {"problem", end.problem},
          {"let_go", end.let_go}};
}
json json_of(const RankFiring& fired) {
  const auto& [rule, where, operation] = fired.firing;
  return {{"say", "fired"},
          {"rank", fired.rank.value()},
          {"rule", rule},
          {"epoch", where.epoch.value()},
          {"step", where.step.value()},
          {"micro", where.micro.value()},
          {"unit", where.unit.value()},
          {"operation", operation}};
}
json json_of(const StopReport& stop) { return {{"say", "stop"}, {"reason", stop.reason}}; }

/// Names of files and what the system said may hold any bytes.
template <class Variant>
std::string text_of(const Variant& said) {
  return std::visit([](const auto& one) { return json_of(one).dump(-1, ' ', false, json::error_handler_t::replace); }, said);
}

SnapshotName snapshot_of(const json& j) {
  return {Rank{j.at("rank").get<std::uint32_t>()}, j.at("slot").get<std::uint32_t>(), EpochId{j.at("epoch").get<std::uint64_t>()},
          Step{j.at("step").get<std::uint64_t>()}};
}

HostOrder order_of(const json& j) {
  const std::string say = j.at("say").get<std::string>();
  if (say == "copy") return CopyOrder{snapshot_of(j.at("snapshot")), j.at("to").get<std::uint32_t>()};
  if (say == "holdings") return HoldingsOrder{j.at("question").get<std::uint64_t>()};
  if (say == "forget") return ForgetOrder{EpochId{j.at("before").get<std::uint64_t>()}};
  if (say == "present") return PresentOrder{};
  if (say == "end") return EndOrder{j.at("ok").get<bool>(), j.at("cause").get<std::string>(), std::chrono::milliseconds{j.at("patience").get<std::int64_t>()}};
  if (say != "start" && say != "let_go") throw std::runtime_error("no order \"" + say + "\"");
  return WorkerOrder{.rank = Rank{j.at("rank").get<std::uint32_t>()},
                     .incarnation = Incarnation{j.at("incarnation").get<std::uint32_t>()},
                     .let_go = say == "let_go",
                     .kill = j.at("kill").get<bool>()};
}

HostReport report_of(const json& j) {
  const std::string say = j.at("say").get<std::string>();
  if (say == "stop") return StopReport{j.at("reason").get<std::string>()};
  if (say == "copied")
    return CopyReport{snapshot_of(j.at("snapshot")), j.at("to").get<std::uint32_t>(), j.at("sent").get<bool>(), j.at("problem").get<std::string>()};
  if (say == "holdings") {
    HoldingsReport report{.question = j.at("question").get<std::uint64_t>(), .snapshots = {}};
    for (const json& name : j.at("snapshots")) report.snapshots.push_back(snapshot_of(name));
    return report;
  }
  if (say == "present") return PresentReport{};
  if (say == "fired")
    return RankFiring{Rank{j.at("rank").get<std::uint32_t>()},
                      FaultFiring{j.at("rule").get<std::size_t>(),
                                  Where{EpochId{j.at("epoch").get<std::uint64_t>()}, Step{j.at("step").get<std::uint64_t>()},
                                        Micro{j.at("micro").get<std::uint32_t>()}, Unit{j.at("unit").get<std::uint32_t>()}},
                                  j.at("operation").get<std::string>()}};
  if (say != "ended") throw std::runtime_error("no report \"" + say + "\"");
  return WorkerEnd{.first = Rank{j.at("first").get<std::uint32_t>()},
                   .ranks = j.at("ranks").get<std::uint32_t>(),
                   .pid = j.at("pid").get<pid_t>(),
                   .signal = j.at("signal").get<int>(),
                   .code = j.at("code").get<int>(),
                   .lost = j.at("lost").get<bool>(),
                   .on_our_demand = j.at("demand").get<bool>(),
                   .log = j.at("log").get<std::string>(),
                   .incarnation = Incarnation{j.at("incarnation").get<std::uint32_t>()},
                   .host = j.at("host").get<std::string>(),
                   .problem = j.at("problem").get<std::string>(),
                   .let_go = j.at("let_go").get<bool>()};
}

}  // namespace

std::string write(const HostOrder& order) { return text_of(order); }
std::string write(const HostReport& report) { return text_of(report); }

Result<HostOrder> read_host_order(const std::string& text) {
  try {
    return order_of(json::parse(text));
  } catch (const std::exception& problem) {
    return Error{fmt::format("an order to the host agent that cannot be read: {}", problem.what())};
  }
}

Result<HostReport> read_host_report(const std::string& text) {
  try {
    return report_of(json::parse(text));
  } catch (const std::exception& problem) {
    return Error{fmt::format("a host agent's report that cannot be read: {}", problem.what())};
  }
}

}  // namespace troupe
