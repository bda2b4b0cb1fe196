#include "tools/launcher/live_requests.hpp"

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>

#include "src/trace/chrome_trace.hpp"

namespace troupe {
namespace {

using nlohmann::json;

double seconds(Nanos time) { return std::chrono::duration<double>(time).count(); }

const char* state_of(const ChangeView& change) {
  switch (change.state) {
    case ChangeView::State::waits: return "waits";
    case ChangeView::State::in_force: return "in force";
    case ChangeView::State::refused: break;
  }
  return "refused";
}

json json_of(const JobView& view, Nanos now) {
  json ranks = json::array();
  for (const RankView& rank : view.ranks) {
    json actors = json::array();
    for (const ActorPulse& actor : rank.pulse.actors) actors.push_back({{"actor", name_of(actor.actor)}, {"text", actor.text}, {"waiting", actor.waiting}});
    ranks.push_back({{"rank", rank.joined.rank.value()},
                     {"pid", rank.joined.pid},
                     {"host", rank.joined.host},
                     {"incarnation", rank.joined.incarnation.value()},
                     {"step", rank.pulse.step.value()},
                     {"silent_seconds", seconds(now - rank.pulse.heard)},
                     {"oldest", rank.pulse.oldest},
                     {"oldest_seconds", seconds(rank.pulse.oldest_age)},
                     {"resident_bytes", rank.pulse.resident_bytes},
                     {"at_rest", rank.resting},
                     {"actors", actors}});
  }
  json changes = json::array();
  for (const ChangeView& change : view.changes)
    changes.push_back({{"number", change.number},
                       {"from_step", change.from.value()},
                       {"change", change.text},
                       {"by", change.by},
                       {"state", state_of(change)},
                       {"problem", change.problem}});
  json absent = json::array();
  for (const Rank rank : view.absent) absent.push_back(rank.value());
  return {{"headline", view.headline(now)},
          {"phase", view.phase},
          {"epoch", view.epoch.value()},
          {"step", view.newest.value()},
          {"granted", view.granted.value()},
          {"last_step", view.last.value()},
          {"steps_per_second", view.steps_per_second},
          {"seconds_since_step", seconds(now - view.progress_at)},
          {"restore", view.restore},
          {"respawns", view.respawns},
          {"rollbacks", view.rollbacks},
          {"changes", changes},
          {"absent", absent},
          {"ranks", ranks}};
}

json json_of(const RefusedInput& refused) { return {{"connections", refused.connections}, {"letters", refused.frames}}; }

/// A process writes one file for all of its ranks, called by the first.
json files_of(const JobView& view) {
  std::map<std::pair<std::string, std::uint32_t>, Rank> first;
  for (const RankView& rank : view.ranks) first.try_emplace({rank.joined.host, rank.joined.pid}, rank.joined.rank);
  json files = json::array({launcher_trace});
  for (const auto& [process, rank] : first) files.push_back("rank-" + std::to_string(rank.value()) + ".json");
  return files;
}

json answer_of(const json& request, const JobBoard& board, const RefusedInput& refused, Nanos now, const std::function<Result<std::string>()>& record,
               const std::function<Result<Agreed>(ChangeRequest)>& change) {
  const auto ask = request.at("ask").get<std::string>();
  if (ask == "inspect") {
    const JobView view = board.get();
    json shown = json_of(view, now);
    shown["refused"] = json_of(refused);
    return {{"text", view.text(now) + refused.text()}, {"view", shown}};
  }
  if (ask == "change") {  // how one fares that takes a new epoch
    const auto number = request.at("number").get<std::uint64_t>();
    for (const ChangeView& one : board.get().changes)
      if (one.number == number) return {{"state", state_of(one)}, {"line", one.line()}, {"from_step", one.from.value()}};
    return {{"state", "waits"}, {"line", ""}, {"from_step", 0}};  // the view is older than the change
  }
  if (ask == "trace") {
    const auto folder = record();
    if (!folder) return {{"error", folder.error().message}};
    return {{"folder", *folder}, {"files", files_of(board.get())}};
  }
  ChangeRequest wanted;
  wanted.by = request.value("by", "troupe " + ask);
  bool dry_run = false;
  if (ask == "inject") {
    wanted.fault_rule = request.at("rule").get<std::string>();
  } else if (ask == "set") {
    wanted.set = request.at("changes").get<std::vector<std::string>>();
    dry_run = request.value("dry_run", false);
  } else if (ask == "join" || ask == "leave") {
    (ask == "join" ? wanted.join : wanted.leave) = request.at("ranks").get<std::uint32_t>();
    dry_run = request.value("dry_run", false);
  } else {
    return {{"error", "this job does not know the request '" + ask + "': another version of troupe?"}};
  }
  if (dry_run) wanted.by.clear();  // nobody: only looked at
  const auto agreed = change(std::move(wanted));
  if (!agreed) return {{"error", agreed.error().message}};
  return {{"done", agreed->text}, {"change", agreed->change}};
}

}  // namespace

std::string RefusedInput::text() const {
  std::string all;
  const auto add = [&](std::uint64_t count, const std::string& what) {
    if (count > 0) all += (all.empty() ? "refused: " : ", ") + std::to_string(count) + " " + what;
  };
  add(connections, connections == 1 ? "connection" : "connections");
  for (const auto& [reason, count] : frames) add(count, (count == 1 ? "letter (" : "letters (") + reason + ")");
  return all.empty() ? all : all + "\n";
}

std::string answer_request(const std::string& request, const JobBoard& board, const RefusedInput& refused, Nanos now,
                           const std::function<Result<std::string>()>& record, const std::function<Result<Agreed>(ChangeRequest)>& change) {
  json answer;
  try {
    answer = answer_of(json::parse(request), board, refused, now, record, change);
  } catch (const std::exception& problem) {
    answer = {{"error", std::string("the request cannot be read: ") + problem.what()}};
  }
  return answer.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace troupe
