#include "tools/chaos/chaos_run.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "tools/chaos/chaos_job.hpp"

namespace troupe {
namespace {

using Steady = std::chrono::steady_clock;
constexpr int look_every = 2;  ///< milliseconds

double seconds_since(Steady::time_point from) { return std::chrono::duration<double>(Steady::now() - from).count(); }

/// Sleeps for a moment or until a child ends. A signal that somebody sent, if one came.
std::optional<int> pause(const SignalQueue& signals) {
  pollfd waiting{signals.get(), POLLIN, 0};
  ::poll(&waiting, 1, look_every);
  while (const auto signal = signals.next())
    if (*signal != SIGCHLD) return *signal;
  return std::nullopt;
}

Error interrupted(int signal) { return Error{fmt::format("{} received", ::strsignal(signal))}; }

/// One disturbance of a round under way.
struct Strike {
  const Disturbance* what;
  std::uint64_t rule = 0;  ///< its number, from 1
  std::optional<Steady::time_point> at;
  bool done = false;
};

/// The job with what the round wants. A checkpoint that the job begins from stays.
JobConfig config_of(const ChaosSetup& setup, const ChaosRound& round) {
  JobConfig config = setup.config;
  config.elastic.policy = "respawn";
  config.elastic.memory_interval = round.memory_interval;
  config.comm.train_timeout_seconds = setup.hang_limit.count();
  config.comm.init_timeout_seconds = std::max<std::int64_t>(30, 4 * setup.hang_limit.count());
  if (round.checkpoint_interval > 0) {
    config.checkpoint.enable = true;
    config.checkpoint.interval = round.checkpoint_interval;
    config.checkpoint.last_save_model_only = false;
  }
  for (const Disturbance& each : round.disturbances)
    if (each.kind == Disturbance::Kind::rule) config.faults.rules.push_back(each.rule);
  return config;
}

class Round {
 public:
  Round(const ChaosSetup& setup, const ChaosRound& round, const SignalQueue& signals)
      : setup_(setup), round_(round), signals_(signals), job_(config_of(setup, round), setup.ranks, setup.folder / fmt::format("round-{}", round.seed)) {
    std::uint64_t rules = setup.config.faults.rules.size();
    for (const Disturbance& each : round.disturbances) strikes_.push_back({&each, each.kind == Disturbance::Kind::rule ? ++rules : 0, {}, false});
  }

  Result<ChaosResult> run() {
    const auto shared_before = shared_memory_files();
    const auto began = Steady::now();
    if (auto started = job_.start(); !started) return started.error();
    while (true) {
      if (const auto signal = pause(signals_)) {
        job_.kill_launcher();
        (void)job_.leftovers(std::chrono::seconds{10});
        return interrupted(*signal);
      }
      job_.look();
      if (!job_.running() && !restart_) break;
      if (!job_.running()) {
        if (auto again = start_again(); !again) return again.error();
        continue;
      }
      if (seconds_since(began) > static_cast<double>(setup_.round_limit.count())) {
        result_.problems.push_back(fmt::format("the run did not end within {} s; it was killed", setup_.round_limit.count()));
        job_.kill_launcher();
      }
      for (Strike& strike : strikes_) consider(strike);
    }
    result_.seconds = seconds_since(began);
    check(shared_before);
    return std::move(result_);
  }

 private:
  void consider(Strike& strike) {
    const Disturbance& what = *strike.what;
    if (strike.done) return;
    if (what.kind == Disturbance::Kind::rule) {
      strike.done = job_.facts().rules_fired.contains(strike.rule);
      return;
    }
    if (!strike.at) {
      const bool due = what.while_recovering ? job_.facts().recoveries_begun > 0 : job_.newest_step() >= what.step;
      if (due) strike.at = Steady::now() + what.pause;
    }
    if (!strike.at || Steady::now() < *strike.at) return;
    switch (what.kind) {
      case Disturbance::Kind::kill: strike.done = job_.signal_rank(what.rank, SIGKILL); return;
      case Disturbance::Kind::stop: strike.done = job_.signal_rank(what.rank, SIGSTOP); return;
      default:
        if (what.at_checkpoint && !job_.saving()) return;
        strike.done = restart_ = true;
        job_.kill_launcher();
        return;
    }
  }

  /// After the launcher was killed: its workers must end with it, and the job must go on from what is sealed.
  Result<void> start_again() {
    restart_ = false;
    for (const std::string& left : job_.leftovers(std::chrono::seconds{10}))
      if (left.starts_with("process") || left.starts_with("a process")) result_.problems.push_back("10 s after the launcher was killed: " + left);
    return job_.start(!job_.has_checkpoint());
  }

  void check(const std::set<std::string>& shared_before) {
    job_.look();
    const JournalFacts& facts = job_.facts();
    result_.epochs = facts.epochs;
    result_.respawns = facts.respawns;
    result_.struck = static_cast<std::uint32_t>(std::ranges::count_if(strikes_, [&](const Strike& s) { return s.done || facts.rules_fired.contains(s.rule); }));
    auto& problems = result_.problems;
    for (const double seconds : facts.recoveries) result_.longest_recovery = std::max(result_.longest_recovery, seconds);
    if (result_.longest_recovery > setup_.recover_within)
      problems.push_back(fmt::format("a recovery took {:.1f} s, more than {:.0f} s", result_.longest_recovery, setup_.recover_within));
    if (!job_.end().clean()) problems.push_back(fmt::format("{}; its last lines:\n{}", job_.end().describe(), job_.output_tail()));
    for (const std::string& cause : facts.not_at_rest) problems.push_back("not all slots and lanes came home: " + cause);
    compare();
    for (const std::string& left : job_.leftovers(std::chrono::seconds{2})) problems.push_back("left over: " + left);
    for (const std::string& file : forgotten(shared_before)) problems.push_back("left over: shared memory " + file);
  }

  /// Shared memory that has appeared, that no process uses, and that does not go: other programs come and go meanwhile.
  static std::vector<std::string> forgotten(const std::set<std::string>& before) {
    std::vector<std::string> found;
    for (const auto began = Steady::now(); seconds_since(began) < 2; ::poll(nullptr, 0, 20)) {
      found.clear();
      for (const std::string& file : shared_memory_files())
        if (!before.contains(file) && !is_mapped(file)) found.push_back(file);
      if (found.empty()) break;
    }
    return found;
  }

  void compare() {
    const auto told = job_.told();
    const auto& wanted = setup_.undisturbed;
    const auto [here, there] = std::ranges::mismatch(told, wanted);
    if (here == told.end() && there == wanted.end()) return;
    result_.problems.push_back(fmt::format("metrics.jsonl differs in line {}: {}, undisturbed {}", here - told.begin() + 1,
                                           here == told.end() ? "no such line" : *here, there == wanted.end() ? "no such line" : *there));
  }

  const ChaosSetup& setup_;
  const ChaosRound& round_;
  const SignalQueue& signals_;
  ChaosJob job_;
  std::vector<Strike> strikes_;
  bool restart_ = false;
  ChaosResult result_;
};

/// Of the run's metrics.
double longest_step(const std::filesystem::path& run) {
  double longest = 0;
  std::ifstream stream(run / "metrics.jsonl");
  for (std::string line; std::getline(stream, line);) {
    const auto told = nlohmann::json::parse(line, nullptr, false);
    if (told.contains("step_seconds") && told["step_seconds"].is_number()) longest = std::max(longest, told["step_seconds"].get<double>());
  }
  return longest;
}

}  // namespace

Result<void> run_undisturbed(ChaosSetup& setup, const SignalQueue& signals) {
  ChaosJob job(setup.config, setup.ranks, setup.folder / "undisturbed");
  const auto began = Steady::now();
  if (auto started = job.start(); !started) return started.error();
  for (job.look(); job.running(); job.look()) {
    if (const auto signal = pause(signals)) {
      job.kill_launcher();
      (void)job.leftovers(std::chrono::seconds{10});
      return interrupted(*signal);
    }
  }
  if (!job.end().clean()) return Error{fmt::format("the undisturbed run has failed already; its last lines:\n{}", job.output_tail())};
  setup.undisturbed = job.told();
  setup.hang_limit = std::max(setup.hang_limit, std::chrono::seconds{static_cast<std::int64_t>(std::ceil(20 * longest_step(job.run())))});
  setup.round_limit = std::max(setup.round_limit, std::chrono::seconds{static_cast<std::int64_t>(10 * seconds_since(began)) + 10 * setup.hang_limit.count()});
  for (const std::string& left : job.leftovers(std::chrono::seconds{2})) return Error{"the undisturbed run leaves something over: " + left};
  return {};
}

Result<ChaosResult> run_round(const ChaosSetup& setup, const ChaosRound& round, const SignalQueue& signals) { return Round(setup, round, signals).run(); }

}  // namespace troupe
