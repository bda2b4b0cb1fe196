#include "tools/worker/worker_process.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "actors/supervisor.hpp"
#include "src/base/host_name.hpp"
#include "src/checkpoint/agent_memory.hpp"
#include "src/checkpoint/restore_point.hpp"
#include "src/config/load_extension.hpp"
#include "src/runtime/spawned_actor.hpp"
#include "src/trace/ring_tracer.hpp"
#include "src/transport/letter_faults.hpp"
#include "tools/launcher/control_client.hpp"
#include "tools/launcher/letter_link.hpp"
#include "tools/launcher/run_folder.hpp"
#include "tools/worker/cuda_plugin_loader.hpp"
#include "tools/worker/late_tracer.hpp"
#include "tools/worker/notices.hpp"
#include "tools/worker/own_host.hpp"
#include "tools/worker/rank_log.hpp"
#include "tools/worker/training_rank.hpp"

namespace troupe {
namespace {

/// One rank of this process: what its Supervisor stands on.
struct HostedRank {
  HostedRank(Rank r, Clock& clock, PostOffice& post_office, const RankLogOptions& log_options, RingTracer* tracer)
      : rank(r), log(make_rank_log(log_options)), runtime{clock, *log, post_office, tracer}, builder(make_thread_lane(LaneKind::storage, r, clock, nullptr)) {}
  Rank rank;
  std::unique_ptr<Log> log;
  Runtime runtime;
  std::unique_ptr<AgentMemory> memory;  ///< null: nobody holds any for this rank
  std::unique_ptr<Lane> builder;
  std::unique_ptr<TrainingRankFactory> factory;
  SpawnedActor supervisor;
};

class Worker {
 public:
  Worker(const WorkerRequest& request, const WorkerPlace& place, const SignalQueue& signals)
      : request_(request), place_(place), signals_(signals), clock_(make_system_clock()) {}
  ~Worker() { clear(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  int run() {
    if (auto joined = join(); !joined) {
      const int code = refuse(joined.error());
      const auto signal = signals_.next();
      return signal ? 128 + *signal : code;
    }
    if (auto hosted = host(); !hosted) return refuse(hosted.error());
    return watch();
  }

 private:
  int refuse(const Error& error) const {
    const std::string line = fmt::format("rank {}: {}\n", place_.rank.value(), error.message);
    std::fputs(line.c_str(), stderr);
    return 2;
  }

  Result<Secret> secret() const {
    if (const auto text = environment_("TROUPE_SECRET")) return Secret::from_hex(*text);
    if (const auto file = environment_("TROUPE_SECRET_FILE")) return Secret::from_file(*file);
    if (!config_) return Error{"TROUPE_SECRET_FILE is not set, and without a configuration there is no run folder to find it in"};
    auto control = read_control(config_->job.dump_folder);
    if (!control) return control.error();
    return Secret::from_hex(control->token);
  }

  Result<Hello> hello(const Secret& secret) {
    TransportOptions options;
    options.session = session_of(secret);
    options.self = {place_.rank, place_.incarnation};
    options.devices = network_devices(environment_, config_ ? config_->comm.interface : std::string{});
    if (!config_ || config_->trace.enable || config_->profiling.enable_profiling) options.tracer = &transport_tracer_;
    options.faults = &letter_faults_;
    link_ = std::make_unique<LetterLink>(
        directory_, *clock_, *process_log_, options, [this](Rank peer, const std::string& cause) { peer_lost(peer, cause); },
        [this](TransportHandlers handlers) { return mail_.around(batches_.around(std::move(handlers))); });
    mail_.use(link_->transport());
    Hello said;
    said.first = place_.rank;
    said.ranks = request_.ranks_in_process;
    said.world_size = place_.world_size;
    said.pid = static_cast<std::uint32_t>(::getpid());
    said.host = host_name();
    said.address = link_->address();
    said.incarnation = place_.incarnation;
    return said;
  }

  Result<void> join() {
    if (!request_.config.empty()) {
      auto config = with_extension(JobConfig::load(request_.config, request_.overrides));
      if (!config) return config.error();
      config_ = std::move(config.value());
    }
    const auto limit = std::chrono::seconds{config_ ? config_->comm.init_timeout_seconds : 60};
    auto client = ControlClient::connect(
        place_.coordinator_host, place_.coordinator_port, [this] { return secret(); }, [this](const Secret& known) { return hello(known); }, limit,
        signals_.get());
    if (!client) return client.error();
    client_ = std::move(client.value());
    const Welcome& welcome = client_->welcome();
    if (!config_) {
      auto config = with_extension(JobConfig::parse(welcome.config, "the launcher's configuration"));
      if (!config) return config.error();
      config_ = std::move(config.value());
    }
    if (auto ready = open_plugin(); !ready) return ready;
    if (auto connected = link_->connect(launcher_rank, 1, Incarnation{0}, welcome.address); !connected) return connected;
    directory_.set_remote(link_.get());
    const auto told = [this](const std::vector<Peer>& peers) {
      link_->know(peers);
      peers_.set(peers);
    };
    client_->watch({told, [this](const std::string& why) { notices_.give_up(why); }, [this](const std::string& into) { write_trace_into(into); }});
    return {};
  }

  /// Before anything of torch runs in this process: torch asks for CUDA once.
  Result<void> open_plugin() const {
    if (config_->runtime.device != "cuda") return {};
    if (request_.ranks_in_process > 1)
      return Error{fmt::format("--ranks-in-process {} with runtime.device = \"cuda\": each GPU needs a process of its own, start with --nproc {}",
                               request_.ranks_in_process, request_.ranks_in_process)};
    if (const auto plugin = cuda_plugin(); !plugin) return Error{"runtime.device = \"cuda\": " + plugin.error().message};
    return {};
  }

  Result<void> host() {
    const std::filesystem::path folder = client_->welcome().run_folder;
    const auto storage = make_posix_storage();
    const CheckpointStore store(folder / config_->checkpoint.folder, *storage);
    const Step wanted = client_->welcome().restore_step;
    const Step seen = restore_point_at(wanted, config_->checkpoint, store, *storage) ? wanted : Step{0};
    std::vector<Rank> ranks;
    for (std::uint32_t i = 0; i < request_.ranks_in_process; ++i) ranks.emplace_back(place_.rank.value() + i);
    if (config_->trace.enable || config_->profiling.enable_profiling) {
      const auto window = config_->profiling.enable_profiling ? std::nullopt : config_->trace.window();  // timelines may be of any steps
      tracer_ = std::make_unique<RingTracer>(RingTracerOptions{ranks, static_cast<std::size_t>(config_->trace.events), window, place_.incarnation});
      transport_tracer_.use(*tracer_);
      live_tracer_.store(tracer_.get());
    }
    communicators_ =
        std::make_unique<RankCommunicators>(RankCommunicators::Ground{.setting = config_->comm.collectives,
                                                                      .registry = request_.ranks_in_process == place_.world_size ? &registry_ : nullptr,
                                                                      .peers = &peers_,
                                                                      .link = link_.get(),
                                                                      .mail = &mail_,
                                                                      .clock = clock_.get()});
    for (const Rank rank : ranks) {
      const auto& shown = config_->metrics.log_ranks;
      const RankLogOptions log{.rank = rank,
                               .file = folder / "logs" / fmt::format("rank-{}.log", rank.value()),
                               .shown = std::find(shown.begin(), shown.end(), static_cast<std::int64_t>(rank.value())) != shown.end(),
                               .launched = launched_};
      auto hosted = std::make_unique<HostedRank>(rank, *clock_, directory_, log, tracer_.get());
      if (place_.snapshot_descriptor) hosted->memory = std::make_unique<AgentMemory>(*place_.snapshot_descriptor, rank.value());
      TrainingRankOptions parts{.config = *config_,
                                .rank = rank,
                                .world_size = place_.world_size,
                                .local_rank = place_.local_rank + (rank.value() - place_.rank.value()),
                                .run_folder = folder,
                                .resumed_from = wanted,
                                .runtime = &hosted->runtime,
                                .directory = &directory_,
                                .system = system_.get(),
                                .communicators = communicators_.get(),
                                .batches = &batches_,
                                .memory = hosted->memory.get(),
                                .tracer = tracer_.get(),
                                .letter_faults = &letter_faults_};
      hosted->factory = std::make_unique<TrainingRankFactory>(std::move(parts));
      SupervisorOptions options{.world_size = place_.world_size,
                                .config_hash = config_->hash(),
                                .host = host_name(),
                                .pid = static_cast<std::uint32_t>(::getpid()),
                                .restored = seen,
                                .incarnation = place_.incarnation,
                                .factory = hosted->factory.get(),
                                .builder = hosted->builder.get(),
                                .events = &notices_};
      hosted->supervisor = spawn<Supervisor>(*system_, ActorSeat{hosted->runtime, {rank, ActorKind::supervisor}, EpochId{0}}, options);
      directory_.add({rank, ActorKind::supervisor}, hosted->supervisor.actor());
      start_supervisor(hosted->runtime, rank);
      ranks_.push_back(std::move(hosted));
    }
    return {};
  }

  int watch() {
    while (true) {
      std::array<pollfd, 2> waiting{pollfd{signals_.get(), POLLIN, 0}, pollfd{notices_.bell().get(), POLLIN, 0}};
      ::poll(waiting.data(), waiting.size(), -1);
      take_signals();
      notices_.bell().silence();
      if (const auto gone = notices_.gone()) {
        if (notices_.all_end_within(std::chrono::seconds{1}, ranks_.size())) break;
        process_log_->error(*gone);
        ranks_.front()->log->error(*gone);
        leave(1);
      }
      if (notices_.ended() == ranks_.size()) break;
    }
    write_trace();
    const std::string cause = notices_.cause();
    if (!cause.empty()) ranks_.front()->log->write(LogLevel::info, "the epoch has ended: " + cause);
    return cause.empty() ? 0 : 1;
  }

  /// All that have come are looked at before the first is obeyed: a second one ends this process at once, and not after a clean end.
  void take_signals() {
    std::vector<int> come;
    while (const auto signal = signals_.next()) come.push_back(*signal);
    bool asked = asked_to_stop_;
    for (const int signal : come) {
      if (asked && signal != SIGUSR1 && signal != SIGHUP && !launched_) end_at_once(signal);  // a launcher hears the second one itself
      asked = true;
    }
    for (const int signal : come) request_stop(signal);
  }

  void request_stop(int signal) {
    asked_to_stop_ = true;
    send<schema::StopRequested>(ranks_.front()->runtime, Heading{coordinator_address, {place_.rank, ActorKind::supervisor}, {}, {}, Nanos{0}, 0},
                                [&](auto body) { body.setReason(fmt::format("{} received by rank {}", ::strsignal(signal), place_.rank.value())); });
  }

  [[noreturn]] void end_at_once(int signal) {
    ranks_.front()->log->warning(fmt::format("{} again: ending at once", ::strsignal(signal)));
    leave(128 + signal);
  }

  /// Threads may be stuck: nothing of this process can be waited for.
  [[noreturn]] void leave(int code) {
    std::error_code ignored;
    if (place_.hosts_coordinator) std::filesystem::remove(std::filesystem::path(client_->welcome().run_folder) / "control.json", ignored);
    std::_Exit(code);
  }

  void peer_lost(Rank peer, const std::string& cause) {
    if (peer == launcher_rank) return notices_.give_up("the launcher's letters have ended: " + cause);
    process_log_->warning(fmt::format("letters to rank {}: {}", peer.value(), cause));
  }

  /// Somebody looks at the run while it goes on: on the control connection's thread, so also when the actors hang.
  void write_trace_into(const std::filesystem::path& folder) {
    const RingTracer* const tracer = live_tracer_.load();
    if (tracer == nullptr) return;  // not there yet, or off: whoever asked says so
    if (auto written = tracer->write(folder / fmt::format("rank-{}.json", place_.rank.value())); !written) process_log_->warning(written.error().message);
  }

  void write_trace() {
    if (!tracer_ || !config_->trace.enable) return;
    const std::filesystem::path file = std::filesystem::path(client_->welcome().run_folder) / "trace" / fmt::format("rank-{}.json", place_.rank.value());
    if (auto written = tracer_->write(file, config_->trace.window()); !written)
      ranks_.front()->log->warning(written.error().message);
    else
      ranks_.front()->log->info("trace written to " + file.string());
  }

  void clear() {
    if (link_) link_->close(std::chrono::seconds{5});  // what was sent arrives first
    client_.reset();                                   // its thread calls the link; from here on the Coordinator may see that we are gone
    if (link_) link_->deafen();
    for (auto& rank : ranks_) rank->supervisor.end();
    directory_.clear();
    for (auto& rank : ranks_) rank->builder.reset();  // a thread that spawned actors must end before their system does
    system_.reset();
    link_.reset();
    clock_.reset();  // before the runtimes that timers post to
    ranks_.clear();
  }

  const WorkerRequest& request_;
  const WorkerPlace& place_;
  const SignalQueue& signals_;
  Environment environment_ = process_environment();
  const bool launched_ = environment_("TROUPE_LAUNCHER_PID").has_value();
  bool asked_to_stop_ = false;
  std::unique_ptr<Log> process_log_ = make_log(LogOptions{.who = fmt::format("rank {}", place_.rank.value()), .file = {}});
  std::optional<JobConfig> config_;
  Notices notices_;
  std::unique_ptr<Clock> clock_;
  Directory directory_;
  std::unique_ptr<ActorSystem> system_ = std::make_unique<ActorSystem>();
  SharedMemoryRegistry registry_;
  LateTracer transport_tracer_;
  JobPeers peers_;
  LetterFaults letter_faults_;
  CollectiveMail mail_;    ///< outlives the link
  LoaderBatches batches_;  ///< so does this
  std::unique_ptr<RankCommunicators> communicators_;
  std::unique_ptr<LetterLink> link_;
  std::unique_ptr<ControlClient> client_;
  std::unique_ptr<RingTracer> tracer_;
  std::atomic<RingTracer*> live_tracer_{nullptr};  ///< the same, once it is there; for the control connection's thread
  std::vector<std::unique_ptr<HostedRank>> ranks_;
};

Result<std::unique_ptr<OwnHost>> start_own_host(const WorkerRequest& request, const WorkerPlace& place) {
  if (request.config.empty()) return Error{"without a launcher a worker needs the configuration: troupe-worker CONFIG.toml"};
  const auto config = with_extension(JobConfig::load(request.config, request.overrides));
  if (!config) return config.error();
  return OwnHost::start(*config, request.config, place, request.overwrite);
}

}  // namespace

int run_worker(const WorkerRequest& request, const WorkerPlace& place, const SignalQueue& signals) {
  if (place.rank.value() < place.world_size && request.ranks_in_process > place.world_size - place.rank.value()) {
    std::fprintf(stderr, "rank %u: --ranks-in-process %u does not fit into a world of %u ranks\n", place.rank.value(), request.ranks_in_process,
                 place.world_size);
    return 2;
  }
  std::unique_ptr<OwnHost> own;
  if (place.hosts_coordinator) {
    auto started = start_own_host(request, place);
    if (!started) {
      std::fprintf(stderr, "rank %u: %s\n", place.rank.value(), started.error().message.c_str());
      return 2;
    }
    own = std::move(started.value());
  }
  const int code = Worker(request, place, signals).run();
  if (!own) return code;
  const bool never_joined = code == 2 || code > 128;
  const int job = own->finish(std::chrono::seconds{never_joined ? 0 : 30}, signals);
  if (job > 128) return job;  // a signal
  return code != 0 ? code : job;
}

}  // namespace troupe
