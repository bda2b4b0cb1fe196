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
#include "src/config/job_config.hpp"
#include "src/config/load_extension.hpp"
#include "tools/commands/check_device.hpp"
#include "tools/commands/commands.hpp"
#include "tools/commands/node_agent.hpp"
#include "tools/commands/seed_checkpoint.hpp"
#include "tools/dashboard/dashboard.hpp"
#include "tools/launcher/bell_queue.hpp"
#include "tools/launcher/config_watch.hpp"
#include "tools/launcher/dry_run.hpp"
#include "tools/launcher/host_workers.hpp"
#include "tools/launcher/job_host.hpp"
#include "tools/launcher/job_setup.hpp"
#include "tools/launcher/network_interface.hpp"
#include "tools/launcher/other_hosts.hpp"
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
    if (auto memory = workers_.take_memory(); !memory) return refuse(memory.error());
    hosts_.emplace(OtherHosts::Options{.hosts = {.nodes = request_.nodes, .ranks_each = here(), .shrinks = config_.elastic.shrink()},
                                       .keeps_copies = config_.elastic.recovers(),
                                       .memory = workers_.memory()},
                   OtherHosts::Handler{.ended = [this](WorkerEnd end) { ended(std::move(end)); },
                                       .fired = [this](const RankFiring& fired) { told_firing(fired.rank, fired.firing); }},
                   log_);
    hosts_->prepare(options);
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
    hosts_->open(*host_);
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

  Result<void> start_workers(std::uint32_t world_size, const std::string& address, const Secret& secret) {
    const std::uint32_t each = request_.ranks_in_process.value_or(1), here = world_size / request_.nodes;
    workers_.open({.executable = worker_program(),
                   .run_folder = folder_.path(),
                   .environment = worker_environment(address, secret, world_size, network_devices_, config_),
                   .first = Rank{0}});
    for (std::uint32_t first = 0; first < here; first += each)
      if (auto started = workers_.start(Rank{first}, each); !started) return started;
    for (std::uint32_t number = 0; number < loader_hosts(); ++number)
      if (auto started = workers_.start_loader(number, world_size); !started) return started;
    log_.info(fmt::format("started {} worker process{} for {} rank{}; logs in {}", workers_.running(), workers_.running() == 1 ? "" : "es", here,
                          here == 1 ? "" : "s", (folder_.path() / "logs").string()));
    if (request_.nodes > 1)
      log_.info(fmt::format("{} more rank{} will come from {} other host{}: the same command there with --node-rank 1{}", world_size - here,
                            world_size - here == 1 ? "" : "s", request_.nodes - 1, request_.nodes == 2 ? "" : "s",
                            request_.nodes == 2 ? "" : fmt::format(" to {}", request_.nodes - 1)));
    return {};
  }

  /// Until the job has ended (its end), or is to end at once (nothing; exit_code_).
  std::optional<JobEnd> watch() {
    while (true) {
      std::array<pollfd, 4> waiting{pollfd{signals_.get(), POLLIN, 0}, pollfd{host_->bell().get(), POLLIN, 0}, pollfd{respawns_.bell().get(), POLLIN, 0},
                                    pollfd{hosts_->bell().get(), POLLIN, 0}};
      ::poll(waiting.data(), waiting.size(), 500);
      workers_.look_at_ledgers();
      hosts_->look();
      look_at_config();
      look_at_folder();
      for (const WorkerOrder& order : respawns_.take()) obey(order);
      while (const auto signal = signals_.next()) {
        if (*signal == SIGCHLD)
          workers_.look();
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

  /// Of a process that is started again, or not needed any more, nobody asks how it ended.
  void obey(const WorkerOrder& order) {
    std::erase_if(ends_, [&](const WorkerEnd& end) {
      const bool hosted = end.first <= order.rank && order.rank.value() - end.first.value() < end.ranks;
      return hosted && (order.let_go || end.incarnation < order.incarnation);
    });
    if (hosts_->hosts(order.rank))
      hosts_->obey(order);
    else
      workers_.obey(order);
  }

  void told_firing(Rank rank, const FaultFiring& firing) {
    host_->report_firing(rank, static_cast<std::uint32_t>(firing.rule), firing.where, firing.operation);
  }

  [[nodiscard]] std::uint32_t here() const { return request_.processes.value_or(1); }

  void ended(WorkerEnd end) {
    if (at_once_ && end.on_our_demand) return;  // nothing that the run should be told of
    if (end.loader && !end.clean()) host_->report_death(end.first, end.describe(), end.signal);
    for (std::uint32_t i = 0; !end.loader && i < end.ranks; ++i) host_->report_death(Rank{end.first.value() + i}, end.describe(), end.signal, end.incarnation);
    if (!end.let_go && end.problem.empty()) ends_.push_back(std::move(end));
  }

  /// False: at once.
  bool stop(int signal) {
    const bool again = asked_to_stop_ && signal != SIGUSR1 && signal != SIGHUP;  // a shell that goes may hang up twice
    if (again) {
      log_.warning(fmt::format("{} again: stopping at once", ::strsignal(signal)));
      at_once_ = true;
      workers_.stop(std::chrono::milliseconds{0});
      exit_code_ = 128 + signal;
      return false;
    }
    asked_to_stop_ = true;
    host_->request_stop(fmt::format("{} received", signal == SIGINT ? "Ctrl-C" : signal == SIGTERM ? "SIGTERM" : signal == SIGHUP ? "SIGHUP" : "SIGUSR1"));
    return true;
  }

  /// Until the agents of other hosts have told how their workers ended. The signal that ends the wait.
  std::optional<int> await_hosts(std::chrono::milliseconds patience) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (true) {
      hosts_->look();
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
      if (hosts_->all_gone() || left <= 0) return std::nullopt;
      std::array<pollfd, 2> waiting{pollfd{hosts_->bell().get(), POLLIN, 0}, pollfd{signals_.get(), POLLIN, 0}};
      ::poll(waiting.data(), waiting.size(), static_cast<int>(left));
      while (const auto signal = signals_.next())
        if (*signal != SIGCHLD && *signal != SIGUSR1 && *signal != SIGHUP) return signal;
    }
  }

  int finish(const JobEnd& end, const JobRecord& record) {
    const auto patience = end.ok ? std::chrono::milliseconds{grace} : std::chrono::milliseconds{grace} / 2;
    hosts_->end({.ok = end.ok, .cause = end.cause, .patience = patience});
    workers_.stop(patience, &signals_);
    std::optional<int> cut_short = workers_.cut_short();
    if (!cut_short) cut_short = await_hosts(patience + std::chrono::seconds{5});  // they, too, kill at the end of their patience, and tell of it then
    if (cut_short) {
      log_.warning(fmt::format("{} while the workers end: stopping at once", ::strsignal(*cut_short)));
      return 128 + *cut_short;
    }
    write_launcher_trace(tracer_.get(), folder_, log_);
    const int code = report_end(end, config_, run_.live->last_step(end.last_step), folder_, record, log_);
    bool died = false;
    for (const WorkerEnd& worker : ends_) {
      const bool at_fault = end.rank && worker.first <= *end.rank && end.rank->value() < worker.first.value() + worker.ranks;
      const bool own_death = worker.signal != 0 && !worker.on_our_demand;
      if (worker.clean() || (!at_fault && !own_death && !end.ok)) continue;
      if (end.ok && worker.signal != 0 && config_.elastic.recovers()) {  // all steps are told and saved
        log_.warning(worker.describe() + "; its work was done");
        continue;
      }
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
  BellQueue<WorkerOrder> respawns_;
  std::optional<ConfigWatch> watch_;
  HostWorkers workers_{
      {.ended = [this](WorkerEnd end) { ended(std::move(end)); }, .fired = [this](Rank rank, const FaultFiring& firing) { told_firing(rank, firing); }}};
  std::optional<OtherHosts> hosts_;
  std::vector<WorkerEnd> ends_;
  bool asked_to_stop_ = false, at_once_ = false, folder_lost_ = false;
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
  const std::uint32_t here = request.processes.value_or(request.ranks_in_process.value_or(1)), world_size = here * request.nodes;
  if (request.dry_run) return dry_run(*config, world_size);              // before signals are held back: any of them ends it
  const SignalQueue signals{SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD};  // one that is inherited as ignored (nohup) stays so
  const std::uint32_t cores = std::max(1U, std::thread::hardware_concurrency()), most = std::max(256U, 16 * cores);
  if (here > most)
    return refuse(Error{fmt::format("{} {}: this host has {} cores, and at most {} ranks are started on it; a larger job spans hosts (--nnodes)",
                                    request.processes ? "--nproc" : "--ranks-in-process", here, cores, most)});
  if (request.node_rank >= request.nodes)
    return refuse(Error{fmt::format("--node-rank {} of --nnodes {}: nodes count from 0", request.node_rank, request.nodes)});
  if (request.nodes > 1 && request.ranks_in_process)
    return refuse(Error{"--ranks-in-process with --nnodes: on several hosts each rank is a process of its own"});
  if (auto possible = check_hosts(*config, request.nodes); !possible) return refuse(possible.error());
  if (auto fits = check_world(*config, world_size); !fits) return refuse(fits.error());
  if (auto fits = check_seed(*config, world_size); !fits) return refuse(fits.error());
  if (auto ready = check_device(*config, request.processes.value_or(1), request.ranks_in_process.value_or(1)); !ready) return refuse(ready.error());
  if (request.node_rank > 0) return run_node_agent(request, *config, signals);
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
