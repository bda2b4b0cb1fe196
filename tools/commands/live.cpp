// troupe inspect, inject and set: what is asked of a run that is going on.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "tools/commands/ask.hpp"
#include "tools/commands/commands.hpp"
#include "tools/launcher/control_client.hpp"
#include "tools/launcher/run_folder.hpp"
#include "tools/launcher/socket.hpp"

namespace troupe {
namespace {

using nlohmann::json;

int fail(const char* command, const Error& error) {
  std::fprintf(stderr, "troupe %s: %s\n", command, error.message.c_str());
  return exit_failed;
}

}  // namespace

Result<json> ask(const std::filesystem::path& run, const json& request) {
  const auto control = read_control(run);
  if (!control) return Error{fmt::format("{}: no run is going on there ({})", run.string(), control.error().message)};
  const auto where = parse_host_port(control->address);
  if (!where) return where.error();
  const auto secret = Secret::from_hex(control->token);
  if (!secret) return secret.error();
  auto answer = ask_job(where->host, where->port, *secret, request.dump(), std::chrono::seconds{5});
  if (!answer) return Error{fmt::format("{} (PID {}): {}", run.string(), control->pid, answer.error().message)};
  json parsed = json::parse(*answer, nullptr, false);
  if (parsed.is_discarded()) return Error{"the launcher's answer cannot be read: another version of troupe?"};
  if (parsed.contains("error")) return Error{parsed["error"].get<std::string>()};
  return parsed;
}

int inspect(const InspectRequest& request) {
  while (true) {
    const auto answer = ask(request.run, {{"ask", "inspect"}});
    if (!answer) return fail("inspect", answer.error());
    const bool screen = request.watch && ::isatty(STDOUT_FILENO) == 1;
    const std::string text = request.json ? (*answer)["view"].dump() + "\n" : (*answer)["text"].get<std::string>();
    std::fputs((screen ? "\x1b[H\x1b[2J" + text : text).c_str(), stdout);
    std::fflush(stdout);
    if (!request.watch) return exit_done;
    std::this_thread::sleep_for(std::chrono::seconds{1});
  }
}

int inject(const InjectRequest& request) {
  const auto answer = ask(request.run, {{"ask", "inject"}, {"rule", request.rule}});
  if (!answer) return fail("inject", answer.error());
  std::puts((*answer)["done"].get<std::string>().c_str());
  return exit_done;
}

namespace {

constexpr std::chrono::seconds epoch_patience{120};  ///< for a new epoch to begin

/// Says what was agreed, and how it came out if that takes a new epoch.
int tell_outcome(const char* command, const std::filesystem::path& run, const json& answer) {
  std::puts(answer["done"].get<std::string>().c_str());
  std::fflush(stdout);
  const auto number = answer.value("change", std::uint64_t{0});
  if (number == 0) return exit_done;
  const auto deadline = std::chrono::steady_clock::now() + epoch_patience;
  while (std::chrono::steady_clock::now() < deadline) {
    const auto now = ask(run, {{"ask", "change"}, {"number", number}});
    if (!now) return fail(command, now.error());
    const auto state = (*now)["state"].get<std::string>();
    if (state == "refused") return fail(command, Error{(*now)["line"].get<std::string>()});
    if (state == "in force") {
      std::puts(("in force from step " + std::to_string((*now)["from_step"].get<std::uint64_t>()) + " on").c_str());
      return exit_done;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{50});
  }
  return fail(command, Error{"the new epoch has not begun yet; `troupe inspect` shows what it waits for"});
}

}  // namespace

int set_keys(const SetRequest& request) {
  const auto answer = ask(request.run, {{"ask", "set"}, {"changes", request.changes}, {"dry_run", request.dry_run}});
  if (!answer) return fail("set", answer.error());
  return tell_outcome("set", request.run, *answer);
}

int resize(const ResizeRequest& request) {
  const char* const command = request.leave ? "leave" : "join";
  const auto answer = ask(request.run, {{"ask", command}, {"ranks", request.ranks}, {"dry_run", request.dry_run}});
  if (!answer) return fail(command, answer.error());
  return tell_outcome(command, request.run, *answer);
}

}  // namespace troupe
