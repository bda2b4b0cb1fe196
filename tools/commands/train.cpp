#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "src/base/log.hpp"
#include "src/checkpoint/agent_memory.hpp"
#include "src/config/job_config.hpp"
#include "src/config/load_extension.hpp"
#include "src/faults/fault_ledger.hpp"
#include "tools/commands/check_device.hpp"
#include "tools/commands/commands.hpp"
#include "tools/commands/respawn_queue.hpp"
#include "tools/commands/seed_checkpoint.hpp"
#include "tools/dashboard/dashboard.hpp"
#include "tools/launcher/config_watch.hpp"
#include "tools/launcher/dry_run.hpp"
#include "tools/launcher/host_agent.hpp"
#include "tools/launcher/job_host.hpp"
#include "tools/launcher/job_setup.hpp"
#include "tools/launcher/network_interface.hpp"
#include "tools/launcher/signals.hpp"
#include "tools/worker/environment.hpp"

namespace troupe {
namespace {

constexpr std::chrono::seconds grace{15};  ///< for workers to end by themselves once the job is over

int refuse(const Error& error) {
  std::fprintf(stderr, "troupe train: %s\n", error.message.c_str());
  return exit_usage;
}

/// From first to last worker of one run on this host.
class Launch {
 public:
  Launch(const TrainRequest& request, const JobConfig& config, PreparedRun& run, Log& log, const SignalQueue& signals)
      : request_(request), config_(config), run_(run), folder_(run.folder), log_(log), signals_(signals) {}

  int run(std::uint32_t world_size) {
    const Secret secret = Secret::random();
    auto record = open_record(config_, run_, world_size, ::isatty(STDOUT_FILENO) == 1, log_, tracer_.get(), step_times_);
    if (!record) return refuse(record.error());
    JobHostOptions options;
    options.world_size = world_size;
    options.loader_hosts = loader_hosts();
    options.job = new_job_name();
    options.secret = secret;
    options.tracer = tracer_.get();
    options.port = request_.port;
    options.config = config_.to_toml();
    options.run_folder = std::filesystem::absolute(folder_.path());
    options.coordinator = coordinator_options(config_, run_, world_size, log_);
    options.check_change = [live = run_.live](ChangeRequest& request, std::uint32_t ranks) { return check_change(*live, request, ranks); };
    options.coordinator.recovery.start_again = [this](Rank rank, Incarnation incarnation) { respawns_.add({rank, incarnation}); };
    options.coordinator.recovery.let_go = [this](Rank rank, bool kill) { respawns_.add({rank, {}, true, kill}); };
    if (loader_hosts() == 0 && request_.ranks_in_process.value_or(1) == 1)
      options.coordinator.changes.most_ranks = std::max(256U, 16 * std::max(1U, std::thread::hardware_concurrency()));
    std::string listen_on = options.listen_on;
    if (!config_.comm.interface.empty()) {
      auto found = address_of_interface(config_.comm.interface);
      if (!found) return refuse(found.error());
      options.listen_on = listen_on = *found;
    }
    options.network_devices = network_devices_ = network_devices(process_environment(), config_.comm.interface);
    auto host = JobHost::start(std::move(options), **record, log_);
    if (!host) return refuse(host.error());
    host_ = host->get();
    const std::string address = fmt::format("{}:{}", listen_on, host_->port());
    if (auto written = folder_.write_control(address, secret.hex()); !written) return refuse(written.error());
    auto dashboard = open_dashboard();
    if (!dashboard) return refuse(dashboard.error());
    if (auto started = start_workers(world_size, address, secret); !started) return refuse(started.error());
    if (config_.live.watch && !request_.config.empty()) watch_.emplace(request_.config, request_.overrides, config_);
    const auto end = watch();
    return end ? finish(*end, **record) : exit_code_;
  }

 private:
  /// Null: none was asked for.
  [[nodiscard]] Result<std::unique_ptr<Dashboard>> open_dashboard() {
    if (!request_.dashboard) return std::unique_ptr<Dashboard>{};
    return Dashboard::start({.run_folder = folder_.path(),
                             .port = request_.dashboard_port,
                             .token = to_hex(random_nonce()).substr(0, 32),
                             .ask = [this](const std::string& request) { return host_->ask(request); },
                             .settings = [live = run_.live] { return nlohmann::json(live->values()).dump(); },
                             .step_times = step_times_},
                            log_);
  }

  [[nodiscard]] std::uint32_t loader_hosts() const { return static_cast<std::uint32_t>(config_.data.loader_hosts); }

  /// What every worker is told; `number`: its first rank, or that of a loader process.
  void describe_worker(WorkerCommand& command, std::uint32_t number) {
    command.executable = worker_program();
    command.environment = worker_environment_;
    command.environment.emplace_back("TROUPE_RANK", std::to_string(number));
    command.environment.emplace_back("LOCAL_RANK", std::to_string(number));
    if (command.arguments == std::vector<std::string>{"--loader"}) return;
    command.memory = memory_.get();
    command.environment.emplace_back("TROUPE_SNAPSHOTS", "5");
    for (std::uint32_t i = 0; i < command.ranks; ++i) {
      const Rank rank{command.first.value() + i};
      if (std::ranges::none_of(ledgers_, [rank](const auto& ledger) { return ledger->rank == rank; }))
        ledgers_.push_back(std::make_unique<RankLedger>(rank, memory_.get()));
    }
  }

  Result<void> start_workers(std::uint32_t world_size, const std::string& address, const Secret& secret) {
    const std::uint32_t each = request_.ranks_in_process.value_or(1);
    auto memory = AgentMemory::create();
    if (!memory) return memory.error();
    memory_ = Descriptor{*memory};
    worker_environment_ = {{"TROUPE_COORDINATOR", address},
                           {"TROUPE_WORLD_SIZE", std::to_string(world_size)},
                           {"TROUPE_SECRET", secret.hex()},
                           {"TROUPE_LAUNCHER_PID", std::to_string(::getpid())},
                           {"TROUPE_INCARNATION", "0"},
                           {"TROUPE_JOINS", "0"},  // not what our own environment happens to hold
                           {"TROUPE_NET_DEVICES", network_devices_},
                           {"OMP_NUM_THREADS", std::to_string(config_.runtime.threads_per_rank)}};
    const auto start = [&](WorkerCommand command, std::uint32_t number) -> Result<void> {
      describe_worker(command, number);
      commands_.push_back(command);
      return agent_.start(command);
    };
    for (std::uint32_t first = 0; first < world_size; first += each) {
      WorkerCommand command{.executable = {}, .arguments = {}, .environment = {}, .log = folder_.log_of(first), .first = Rank{first}, .ranks = each};
      if (each > 1) command.arguments = {"--ranks-in-process", std::to_string(each)};
      if (auto started = start(std::move(command), first); !started) return started;
    }
    for (std::uint32_t number = 0; number < loader_hosts(); ++number) {
      const auto log = folder_.path() / "logs" / fmt::format("loader-{}.log", number);
      WorkerCommand command{.executable = {}, .arguments = {"--loader"}, .environment = {}, .log = log, .first = Rank{world_size + number}, .ranks = 1};
      if (auto started = start(std::move(command), number); !started) return started;
    }
    first_loader_ = Rank{world_size};
    log_.info(fmt::format("started {} worker process{} for {} rank{}; logs in {}", agent_.running(), agent_.running() == 1 ? "" : "es", world_size,
                          world_size == 1 ? "" : "s", (folder_.path() / "logs").string()));
    return {};
  }

  /// Until the job has ended (its end), or is to end at once (nothing; exit_code_).
  std::optional<JobEnd> watch() {
    while (true) {
      std::array<pollfd, 3> waiting{pollfd{signals_.get(), POLLIN, 0}, pollfd{host_->bell().get(), POLLIN, 0}, pollfd{respawns_.bell().get(), POLLIN, 0}};
      ::poll(waiting.data(), waiting.size(), 500);
      look_at_ledgers();
      look_at_config();
      look_at_folder();
      for (const auto& request : respawns_.take()) start_again(request);
      while (const auto signal = signals_.next()) {
        if (*signal == SIGCHLD)
          look_at_workers();
        else if (!stop(*signal))
          return std::nullopt;
      }
      if (auto end = host_->end()) return end;
    }
  }

  void look_at_config() {
    if (!watch_) return;
    const auto edits = watch_->look();
    if (!edits) return;
    const auto refused = [this, file = request_.config.string()](const std::string& why) {
      log_.warning(file + " was edited, and nothing is changed: " + why);
    };
    if (!*edits) return refused(edits->error().message);
    ChangeRequest change;
    change.set = **edits;
    change.by = request_.config.string();
    change.answer = [refused](const Result<Agreed>& agreed) {
      if (!agreed) refused(agreed.error().message);
    };
    host_->request_change(std::move(change));
  }

  /// What is written into a folder that is not there any more is lost: the run ends while its state can still be saved.
  void look_at_folder() {
    if (folder_lost_ || folder_.in_place()) return;
    folder_lost_ = true;
    log_.error(
        fmt::format("the run's folder {} was removed, renamed or replaced under the run: metrics, journal and logs are not in it any more. All ranks "
                    "stop at the next step boundary; what is saved then goes into a new folder of that name",
                    folder_.path().string()));
    host_->request_stop("the run's folder is gone");
  }

  [[nodiscard]] WorkerCommand* command_of(Rank rank) {
    const auto found = std::ranges::find_if(commands_, [rank](const WorkerCommand& c) { return c.first <= rank && rank.value() - c.first.value() < c.ranks; });
    return found == commands_.end() ? nullptr : &*found;
  }

  /// A process hosts several ranks: asked for each of them, started once. What is left of the one before is killed and reaped first.
  void start_again(const RespawnQueue::Request& request) {
    if (request.let_go) return let_go(request);
    WorkerCommand* const command = command_of(request.rank);
    if (command == nullptr) return start_new(request);
    if (std::erase(let_go_, command->first) == 0 && command->incarnation >= request.incarnation) return;
    set_variable(*command, "TROUPE_JOINS", "1");
    command->incarnation = request.incarnation;
    if (!agent_.kill(command->first)) start_anew(*command);  // else when it is reaped
  }

  static void set_variable(WorkerCommand& command, const std::string& name, const std::string& value) {
    std::erase_if(command.environment, [&](const auto& entry) { return entry.first == name; });
    command.environment.emplace_back(name, value);
  }

  /// A rank that there was none of before.
  void start_new(const RespawnQueue::Request& request) {
    const Rank rank = request.rank;
    WorkerCommand command{.executable = {}, .arguments = {}, .environment = {}, .log = folder_.log_of(rank.value()), .first = rank, .ranks = 1};
    command.incarnation = request.incarnation;
    describe_worker(command, rank.value());
    set_variable(command, "TROUPE_JOINS", "1");
    commands_.push_back(command);
    start_anew(commands_.back());
  }

  /// It is dead, or it ends by itself, as it was told to.
  void let_go(const RespawnQueue::Request& request) {
    const WorkerCommand* const command = command_of(request.rank);
    if (command == nullptr) return;
    if (std::ranges::find(let_go_, command->first) == let_go_.end()) let_go_.push_back(command->first);
    std::erase_if(ends_, [&](const WorkerEnd& end) { return end.first == command->first; });
    if (request.kill) agent_.kill(command->first);
  }

  void start_anew(WorkerCommand& command) {
    std::erase_if(ends_, [&](const WorkerEnd& end) { return end.first == command.first; });  // the run has outlived it
    set_variable(command, "TROUPE_INCARNATION", std::to_string(command.incarnation.value()));
    const auto started = agent_.start(command);
    for (std::uint32_t i = 0; !started && i < command.ranks; ++i)
      host_->report_death(Rank{command.first.value() + i}, started.error().message, 0, command.incarnation);
  }

  /// Before the death of whoever fired them is told.
  void look_at_ledgers() {
    for (const auto& rank : ledgers_) {
      for (const FaultFiring& firing : rank->ledger.since(rank->seen))
        host_->report_firing(rank->rank, static_cast<std::uint32_t>(firing.rule), firing.where, firing.operation);
      rank->seen = rank->ledger.count();
    }
  }

  void look_at_workers() {
    look_at_ledgers();
    for (WorkerEnd& end : agent_.reap()) {
      if (WorkerCommand* const command = command_of(end.first); command != nullptr && command->incarnation > end.incarnation) {
        start_anew(*command);
        continue;
      }
      const bool loader = end.first >= first_loader_;
      if (loader && !end.clean())
        host_->report_death(end.first, fmt::format("loader process {}: {}", end.first.value() - first_loader_.value(), end.describe()), end.signal);
      for (std::uint32_t i = 0; !loader && i < end.ranks; ++i) host_->report_death(Rank{end.first.value() + i}, end.describe(), end.signal, end.incarnation);
      if (std::ranges::find(let_go_, end.first) == let_go_.end()) ends_.push_back(std::move(end));
    }
  }

  /// False: at once.
  bool stop(int signal) {
    const bool again = asked_to_stop_ && signal != SIGUSR1 && signal != SIGHUP;  // a shell that goes may hang up twice
    if (again) {
      log_.warning(fmt::format("{} again: stopping at once", ::strsignal(signal)));
      agent_.stop(std::chrono::milliseconds{0});
      exit_code_ = 128 + signal;
      return false;
    }
    asked_to_stop_ = true;
    host_->request_stop(fmt::format("{} received", signal == SIGINT ? "Ctrl-C" : signal == SIGTERM ? "SIGTERM" : signal == SIGHUP ? "SIGHUP" : "SIGUSR1"));
    return true;
  }

  int finish(const JobEnd& end, const JobRecord& record) {
    for (WorkerEnd& worker : agent_.stop(end.ok ? std::chrono::milliseconds{grace} : std::chrono::milliseconds{grace} / 2, &signals_))
      ends_.push_back(std::move(worker));
    if (const auto signal = agent_.cut_short()) {
      log_.warning(fmt::format("{} while the workers end: stopping at once", ::strsignal(*signal)));
      return 128 + *signal;
    }
    write_launcher_trace(tracer_.get(), folder_, log_);
    const int code = report_end(end, config_, run_.live->last_step(end.last_step), folder_, record, log_);
    bool died = false;
    for (const WorkerEnd& worker : ends_) {
      const bool at_fault = end.rank && worker.first <= *end.rank && end.rank->value() < worker.first.value() + worker.ranks;
      const bool own_death = worker.signal != 0 && !worker.on_our_demand;
      if (worker.clean() || (!at_fault && !own_death && !end.ok)) continue;
      died = true;
      log_.error(fmt::format("{}; its log {} ends with:\n{}", worker.describe(), worker.log.string(), tail_of(worker.log, 9)));
    }
    if (end.rank && !died && !end.ok && *end.rank != launcher_rank)
      log_.error(fmt::format("log of rank {}: {}", end.rank->value(), folder_.log_of(end.rank->value()).string()));
    return died || folder_lost_ ? exit_failed : code;
  }

  const TrainRequest& request_;
  const JobConfig& config_;
  PreparedRun& run_;
  RunFolder& folder_;
  Log& log_;
  const SignalQueue& signals_;
  const std::shared_ptr<StepTimes> step_times_ = std::make_shared<StepTimes>();
  const std::unique_ptr<RingTracer> tracer_ = launcher_tracer(config_);
  JobHost* host_ = nullptr;
  std::string network_devices_;
  Rank first_loader_;  ///< loader processes count as ranks above the world
  Descriptor memory_;  ///< the snapshots of all workers: they outlive them
  std::vector<std::pair<std::string, std::string>> worker_environment_;
  std::vector<Rank> let_go_;  ///< by the first rank of its process: belongs to the run no more
  std::vector<WorkerCommand> commands_;
  struct RankLedger {
    RankLedger(Rank of, int descriptor) : rank(of), memory(descriptor, of.value()), ledger(memory.notes()) {}
    Rank rank;
    AgentMemory memory;
    FaultLedger ledger;
    std::uint64_t seen = 0;
  };
  std::vector<std::unique_ptr<RankLedger>> ledgers_;  ///< which fault rules have fired
  RespawnQueue respawns_;
  std::optional<ConfigWatch> watch_;
  HostAgent agent_;
  std::vector<WorkerEnd> ends_;
  bool asked_to_stop_ = false, folder_lost_ = false;
  int exit_code_ = exit_failed;
};

int dry_run(const JobConfig& config, std::uint32_t world_size) {
  const auto text = describe_dry_run(config, world_size);
  if (!text) return refuse(text.error());
  std::fputs(text->c_str(), stdout);
  if (auto fits = check_world(config, world_size); !fits) return refuse(fits.error());
  return exit_done;
}

}  // namespace

int train(const TrainRequest& request) {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond the limit is a failed write, with its name
  std::signal(SIGCHLD, SIG_DFL);  // where it is inherited as ignored, the system reaps workers unseen
  const auto config = with_extension(JobConfig::load(request.config, request.overrides));
  if (!config) return refuse(config.error());
  const std::uint32_t world_size = request.processes.value_or(request.ranks_in_process.value_or(1));
  if (request.dry_run) return dry_run(*config, world_size);              // before signals are held back: any of them ends it
  const SignalQueue signals{SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD};  // one that is inherited as ignored (nohup) stays so
  const std::uint32_t cores = std::max(1U, std::thread::hardware_concurrency()), most = std::max(256U, 16 * cores);
  if (world_size > most)
    return refuse(Error{fmt::format("{} {}: this host has {} cores, and at most {} ranks are started on it; a larger job spans hosts, with torchrun or srun",
                                    request.processes ? "--nproc" : "--ranks-in-process", world_size, cores, most)});
  if (auto fits = check_world(*config, world_size); !fits) return refuse(fits.error());
  if (auto fits = check_seed(*config, world_size); !fits) return refuse(fits.error());
  if (auto ready = check_device(*config, request.processes.value_or(1), request.ranks_in_process.value_or(1)); !ready) return refuse(ready.error());
  auto run = prepare_run(*config, request.config, request.overwrite);
  if (!run) return refuse(run.error());
  const auto log = make_log(
      LogOptions{.who = "launcher", .file = (run->folder.path() / "logs" / "launcher.log").string(), .console = true, .colour = ::isatty(STDOUT_FILENO) == 1});
  for (const std::string& note : config->notes) log->warning(note);
  for (const std::string& warning : run->warnings) log->warning(warning);
  if (config->checkpoint.create_seed_checkpoint) {
    if (!run->checkpoints->found()) {
      const auto code = write_seed(request, *config, *run, *log, signals);
      return code ? *code : refuse(code.error());
    }
    return refuse(Error{"checkpoint.create_seed_checkpoint: the run has a checkpoint already, " + run->checkpoints->found()->checkpoint.folder.string()});
  }
  if (const Step step = run->checkpoints->restore_step(); step.value() >= static_cast<std::uint64_t>(config->training.steps)) {
    log->info(fmt::format("nothing to do: the checkpoint of step {} is already at training.steps = {}", step.value(), config->training.steps));
    return exit_done;
  }
  try {
    return Launch(request, *config, *run, *log, signals).run(world_size);
  } catch (const std::exception& problem) {
    log->error(problem.what());
    return exit_failed;
  }
}

}  // namespace troupe
