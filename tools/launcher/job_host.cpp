#include "tools/launcher/job_host.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <optional>

#include "src/runtime/directory.hpp"
#include "src/runtime/spawned_actor.hpp"
#include "src/trace/chrome_trace.hpp"
#include "tools/launcher/agent_place.hpp"
#include "tools/launcher/control_server.hpp"
#include "tools/launcher/end_keeper.hpp"
#include "tools/launcher/host_orders.hpp"
#include "tools/launcher/letter_link.hpp"
#include "tools/launcher/live_requests.hpp"
#include "tools/launcher/snapshot_courier.hpp"

namespace troupe {
namespace {

constexpr ActorAddress process_address{launcher_rank, ActorKind::none};

std::string process_of(const Hello& hello) { return fmt::format("pid {} on {}", hello.pid, hello.host); }

class Host final : public JobHost {
 public:
  Host(JobHostOptions options, JobEvents& events, Log& log)
      : options_(std::move(options)),
        log_(log),
        keeper_(events),
        clock_(make_system_clock()),
        runtime_{*clock_, log, directory_, options_.tracer},
        storage_(make_thread_lane(LaneKind::storage, launcher_rank, *clock_, nullptr)),
        system_(std::make_unique<ActorSystem>()) {
    options_.coordinator.epoch.world_size = options_.world_size;
    options_.coordinator.epoch.job = options_.job;
    options_.coordinator.storage = storage_.get();
    options_.coordinator.requests = requests_;
    options_.coordinator.board = board_;
    if (auto& start_again = options_.coordinator.recovery.start_again)
      start_again = [this, given = std::move(start_again)](Rank rank, Incarnation incarnation) {
        {
          const std::lock_guard lock(mutex_);
          lives_[rank] = incarnation;
        }
        given(rank, incarnation);
      };
    TransportOptions transport;
    transport.session = session_of(options_.secret);
    transport.self = {launcher_rank, Incarnation{0}};
    transport.devices = options_.network_devices;
    transport.tracer = options_.tracer;
    link_ = std::make_unique<LetterLink>(
        directory_, *clock_, log, transport,
        [this](Rank peer, const std::string& cause) { log_.debug(fmt::format("letters to rank {}: {}", peer.value(), cause)); },
        options_.courier == nullptr ? LetterLink::Around{} : [this](TransportHandlers handlers) { return options_.courier->around(std::move(handlers)); });
    if (options_.courier != nullptr) options_.courier->use(*link_);
    directory_.set_remote(link_.get());
  }

  ~Host() override {
    server_.reset();
    if (options_.courier != nullptr) options_.courier->stop();
    link_->close(std::chrono::seconds{2});
    link_->deafen();
    coordinator_.end();
    directory_.clear();
    (void)storage_->drain(std::chrono::seconds{5});
    system_.reset();  // waits for the actor
    storage_.reset();
    link_.reset();
    clock_.reset();  // the actor's last timer must not outlive the runtime that it posts to
  }

  Result<void> listen() {
    ControlServer::Options server{.address = options_.listen_on, .port = options_.port, .world_size = options_.world_size + options_.loader_hosts};
    ControlServer::Handler handler{[this](const Hello& hello) { return admit(hello); }, [this](Rank first, std::uint32_t ranks) { gone(first, ranks); },
                                   [this](const std::vector<Peer>&) { complete_ = true; }, [this](const std::string& request) { return ask(request); }};
    if (options_.nodes > 1) {
      handler.told = [this](Rank agent, const std::string& text) {
        if (const auto place = agents_.find(node_of_agent(agent)); place != agents_.end()) place->second.lives();
        options_.host_event({HostEvent::Kind::told, node_of_agent(agent), text});
      };
      handler.not_yet = [this](const Hello& hello) { return place_taken(hello); };
    }
    coordinator_ = spawn<Coordinator>(*system_, ActorSeat{runtime_, coordinator_address, EpochId{0}}, options_.coordinator, keeper_);
    directory_.add(coordinator_address, coordinator_.actor());  // before the first worker can write to it
    auto started = ControlServer::listen(server, options_.secret, std::move(handler), log_);
    if (!started) return started.error();
    server_ = std::move(started.value());
    return {};
  }

  [[nodiscard]] std::uint16_t port() const noexcept override { return server_->port(); }
  [[nodiscard]] std::optional<JobEnd> end() const override { return keeper_.end(); }
  [[nodiscard]] const Bell& bell() const noexcept override { return keeper_.bell(); }

  std::string ask(const std::string& request) override {
    const auto record = [this]() -> Result<std::string> { return record_timeline(); };
    return answer_request(request, *board_, refused(), clock_->now(), record, [this](ChangeRequest change) -> Result<Agreed> {
      const auto told = std::make_shared<std::promise<Result<Agreed>>>();
      auto agreed = told->get_future();
      change.answer = [told](const Result<Agreed>& result) { told->set_value(result); };
      request_change(std::move(change));
      if (agreed.wait_for(std::chrono::seconds{2}) != std::future_status::ready)
        return Error{"the job did not answer within 2 s; the journal will show what became of it"};
      return agreed.get();
    });
  }

  void request_stop(const std::string& reason) override {
    send<schema::StopRequested>(runtime_, Heading{coordinator_address, process_address, {}, {}, Nanos{0}, 0}, [&](auto body) { body.setReason(reason); });
  }
  void report_death(Rank rank, const std::string& cause, int signal, Incarnation incarnation) override {
    send<schema::FaultReport>(runtime_, Heading{coordinator_address, process_address, {}, {}, Nanos{0}, 0}, [&](schema::FaultReport::Builder body) {
      body.setRank(rank.value());
      body.setCause(cause);
      body.setSignal(signal);
      body.setIncarnation(incarnation.value());
    });
  }

  void report_copy(const Copied& copy) override {
    const Heading heading{coordinator_address, {copy.rank, ActorKind::none}, Where{copy.epoch, copy.step, {}, {}}, {}, Nanos{0}, 0};
    send<schema::SnapshotKept>(runtime_, heading, [&](auto body) {
      body.setSlot(static_cast<std::uint8_t>(copy.slot + 1));
      body.setOk(copy.problem.empty());
      body.setProblem(copy.problem);
    });
  }

  void report_spread(std::uint32_t number) override {
    const Heading heading{coordinator_address, process_address, Where{{}, {}, Micro{number}, {}}, {}, Nanos{0}, 0};
    send<schema::SnapshotKept>(runtime_, heading, [&](auto body) { body.setOk(true); });
  }

  void order(std::uint32_t node, const std::string& text) override { server_->order(agent_rank(node), text); }

  void request_change(ChangeRequest change) override {
    if (!options_.check_change) return change.answer(Error{"this run takes no changes"});
    const std::uint32_t ranks = board_->get().world_size;
    if (auto checked = options_.check_change(change, ranks > 0 ? ranks : options_.world_size); !checked) return change.answer(checked.error());
    requests_->add(std::move(change));
    send<schema::ChangeRequested>(runtime_, Heading{coordinator_address, process_address, {}, {}, Nanos{0}, 0}, [](auto) {});
  }

  void report_firing(Rank rank, std::uint32_t rule, const Where& where, const std::string& operation) override {
    send<schema::FaultFired>(runtime_, Heading{coordinator_address, process_address, Where{EpochId{0}, where.step, where.micro, where.unit}, {}, Nanos{0}, 0},
                             [&](schema::FaultFired::Builder body) {
                               body.setRank(rank.value());
                               body.setRule(rule);
                               body.setOperation(operation);
                             });
  }

 private:
  [[nodiscard]] RefusedInput refused() const {
    RefusedInput all;
    all.connections = server_ ? server_->dropped() : 0;
    const TransportCounters counters = link_->transport().counters();
    for (std::size_t i = 0; i < frame_problem_count; ++i)
      if (counters.refused[i] > 0) all.frames[name_of(static_cast<FrameProblem>(i))] = counters.refused[i];
    return all;
  }

  /// A new folder, into which every process of the run writes its timeline as soon as it can.
  Result<std::string> record_timeline() {
    if (options_.tracer == nullptr) return Error{"this run keeps no timeline: trace.enable = false"};
    const std::filesystem::path folder = options_.run_folder / "trace" / ("live-" + to_hex(random_nonce()).substr(0, 12));
    std::error_code problem;
    std::filesystem::create_directories(folder, problem);
    if (problem) return Error{"cannot make " + folder.string() + ": " + problem.message()};
    server_->order_traces(folder.string());
    if (auto written = options_.tracer->write(folder / launcher_trace); !written) return written.error();
    return folder.string();
  }

  /// On the control server's thread. Whoever knows the secret but does not fit ends the job while it is not complete: it would never be.
  Result<Welcome> admit(const Hello& hello) {
    if (is_agent(hello.first)) return admit_agent(hello);
    const auto refuse = [&](std::string problem) {
      if (!complete_) report_death(hello.first, problem, 0, hello.incarnation);
      return Error{std::move(problem)};
    };
    if (hello.world_size != options_.world_size)
      return refuse(fmt::format("rank {} (pid {} on {}) was started for a world of {} ranks, this job has {}: give all workers the same world size",
                                hello.first.value(), hello.pid, hello.host, hello.world_size, options_.world_size));
    const bool late = complete_ && hello.ranks == 1 && started(hello.first);  // joins a live run
    const bool loader =
        !late && hello.ranks == 1 && hello.first.value() >= options_.world_size && hello.first.value() - options_.world_size < options_.loader_hosts;
    if (!loader && !late && (hello.ranks == 0 || hello.first.value() >= options_.world_size || hello.ranks > options_.world_size - hello.first.value()))
      return refuse(fmt::format("rank {} (pid {} on {}) joined a job of {} ranks; ranks count from 0", hello.first.value() + hello.ranks - 1, hello.pid,
                                hello.host, options_.world_size));
    for (std::uint32_t i = 0; i < hello.ranks; ++i) {
      const Rank rank{hello.first.value() + i};
      if (const Incarnation life = life_of(rank); life != hello.incarnation)
        return refuse(fmt::format("rank {} (pid {} on {}) joined as incarnation {}, but {} is expected: its process was taken for dead", rank.value(),
                                  hello.pid, hello.host, hello.incarnation.value(), life.value()));
      const auto [earlier, fresh] = pids_.emplace(std::pair(rank, hello.incarnation), hello.pid);
      if (!fresh)
        return refuse(fmt::format("rank {} joined twice: first pid {}, then pid {} on {}; give each worker its own TROUPE_RANK (or RANK)", rank.value(),
                                  earlier->second, hello.pid, hello.host));
    }
    if (auto linked = link_->connect(hello.first, hello.ranks, hello.incarnation, hello.address); !linked) return refuse(linked.error().message);
    return welcome();
  }

  /// The same thread. Another agent comes for a node that has one: that one is asked whether it lives, and the other comes again until this is known.
  std::optional<std::string> place_taken(const Hello& hello) {
    const auto found = is_agent(hello.first) ? agents_.find(node_of_agent(hello.first)) : agents_.end();
    if (found == agents_.end()) return std::nullopt;
    AgentPlace& place = found->second;
    const AgentPlace::Visit visit = place.visited_by(process_of(hello), std::chrono::steady_clock::now());
    if (visit == AgentPlace::Visit::decided) return std::nullopt;
    if (visit == AgentPlace::Visit::ask) {
      log_.info(fmt::format("another agent of node {} has come ({}): {} is asked whether it lives", found->first, process_of(hello), place.who()));
      server_->order(hello.first, write(HostOrder{PresentOrder{}}));
    }
    return fmt::format("node {} has an agent, {}, which is asked whether it lives", found->first, place.who());
  }

  /// The same thread. An agent of a node that has none, or one that does not answer, for the ranks that this job has there.
  Result<Welcome> admit_agent(const Hello& hello) {
    const std::uint32_t node = node_of_agent(hello.first), each = options_.world_size / options_.nodes;
    const std::string who = fmt::format("the agent of node {} (pid {} on {})", node, hello.pid, hello.host);
    if (node == 0 || node >= options_.nodes || hello.world_size != options_.world_size || hello.ranks != each) {
      const std::string problem = fmt::format(
          "{} was started for {} of {} ranks, but this job has {} nodes of {} ranks each: give all the same --nnodes and --nproc, and each its "
          "own --node-rank",
          who, hello.ranks, hello.world_size, options_.nodes, each);
      if (!complete_) report_death(Rank{std::min(node * each, options_.world_size - 1)}, problem, 0, {});
      return Error{problem};
    }
    const auto before = agents_.find(node);
    if (before != agents_.end() && !before->second.silent()) {
      before->second.refused(process_of(hello));
      return Error{fmt::format("{} is one too many: node {} has one, {}", who, node, before->second.who())};
    }
    if (auto linked = link_->connect(hello.first, 1, hello.incarnation, hello.address); !linked) return linked.error();
    if (before != agents_.end()) {
      log_.warning(fmt::format("{} takes the place of {}, which has not answered for {} s: its host is out of reach", who, before->second.who(),
                               AgentPlace::limit.count()));
      options_.host_event({HostEvent::Kind::gone, node, {}});
    }
    agents_.insert_or_assign(node, AgentPlace(process_of(hello)));
    options_.host_event({HostEvent::Kind::joined, node, hello.host});
    return welcome();
  }

  [[nodiscard]] Welcome welcome() const {
    Welcome welcome;
    welcome.config = options_.config;
    welcome.job = options_.job;
    welcome.run_folder = options_.run_folder.string();
    welcome.restore_step = options_.coordinator.epoch.restore_step;
    welcome.address = link_->address();
    return welcome;
  }

  bool started(Rank rank) {
    const std::lock_guard lock(mutex_);
    return lives_.contains(rank);
  }

  Incarnation life_of(Rank rank) {
    const std::lock_guard lock(mutex_);
    return lives_[rank];
  }

  void gone(Rank first, std::uint32_t ranks) {
    if (is_agent(first)) {
      agents_.erase(node_of_agent(first));
      return options_.host_event({HostEvent::Kind::gone, node_of_agent(first), {}});
    }
    if (!options_.watches_connections) return;
    for (std::uint32_t i = 0; i < ranks; ++i) {
      const Rank rank{first.value() + i};
      report_death(rank, fmt::format("the process of rank {} has ended (its control connection closed)", rank.value()), 0, Incarnation{});
    }
  }

  JobHostOptions options_;
  Log& log_;
  EndKeeper keeper_;
  std::shared_ptr<ChangeRequests> requests_ = std::make_shared<ChangeRequests>();
  std::shared_ptr<JobBoard> board_ = std::make_shared<JobBoard>();
  Directory directory_;
  std::unique_ptr<Clock> clock_;
  Runtime runtime_;
  std::unique_ptr<Lane> storage_;
  std::unique_ptr<ActorSystem> system_;
  std::unique_ptr<LetterLink> link_;
  SpawnedActor coordinator_;
  std::map<std::pair<Rank, Incarnation>, std::uint32_t> pids_;
  std::map<std::uint32_t, AgentPlace> agents_;  ///< by node; of the control server's thread
  std::mutex mutex_;
  std::map<Rank, Incarnation> lives_;  ///< of processes that are started again: which is expected
  bool complete_ = false;              ///< all ranks have been here; of the control server's thread
  std::unique_ptr<ControlServer> server_;
};

}  // namespace

Result<std::unique_ptr<JobHost>> JobHost::start(JobHostOptions options, JobEvents& events, Log& log) {
  auto host = std::make_unique<Host>(std::move(options), events, log);
  if (auto listening = host->listen(); !listening) return listening.error();
  return std::unique_ptr<JobHost>{std::move(host)};
}

}  // namespace troupe
