#include "tools/commands/node_agent.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>

#include "src/base/clock.hpp"
#include "src/base/host_name.hpp"
#include "src/base/log.hpp"
#include "src/runtime/directory.hpp"
#include "tools/launcher/bell_queue.hpp"
#include "tools/launcher/control_client.hpp"
#include "tools/launcher/host_orders.hpp"
#include "tools/launcher/letter_link.hpp"
#include "tools/launcher/run_folder.hpp"
#include "tools/worker/environment.hpp"

namespace troupe {
namespace {

std::uint32_t node_of(Rank peer) { return peer == launcher_rank ? 0 : node_of_agent(peer); }

constexpr std::chrono::seconds orphans_patience{3};  ///< for workers to end by themselves once the launcher is gone

/// What the other threads have for the main one: an order, or that there will be none any more.
struct Notice {
  std::string order;
  std::string gone;
};

class NodeAgent {
 public:
  NodeAgent(const TrainRequest& request, const JobConfig& config, const SignalQueue& signals)
      : request_(request), config_(config), signals_(signals), here_(request.processes.value_or(1)), world_size_(here_ * request.nodes) {}
  ~NodeAgent() {
    workers_.stop(std::chrono::milliseconds{0});
    courier_.stop();
    client_.reset();  // its thread calls the link
    if (link_) link_->close(std::chrono::seconds{2});
    link_.reset();
  }
  NodeAgent(const NodeAgent&) = delete;
  NodeAgent& operator=(const NodeAgent&) = delete;

  int run() {
    if (auto joined = join(); !joined) {
      std::fprintf(stderr, "troupe train: node %u: %s\n", request_.node_rank, joined.error().message.c_str());
      const auto signal = signals_.next();
      return signal ? 128 + *signal : exit_usage;
    }
    return watch();
  }

 private:
  Result<void> join() {
    if (auto memory = workers_.take_memory(); !memory) return memory;
    courier_.use_memory(workers_.memory());
    const auto where = [this]() -> Result<HostPort> {
      const auto control = read_control(config_.job.dump_folder);
      if (!control) return Error{control.error().message + "; it is written by the job's launcher (--node-rank 0), on a file system that all hosts see"};
      return parse_host_port(control->address);
    };
    const auto secret = [this]() -> Result<Secret> {
      const auto control = read_control(config_.job.dump_folder);
      if (!control) return control.error();
      return Secret::from_hex(control->token);
    };
    HostPort found;
    auto client = ControlClient::connect(
        [&]() -> Result<HostPort> {
          auto there = where();
          if (there) found = *there;
          return there;
        },
        secret, [this](const Secret& known) { return hello(known); }, std::chrono::seconds{config_.comm.init_timeout_seconds}, signals_.get());
    if (!client) return client.error();
    client_ = std::move(*client);
    const Welcome& welcome = client_->welcome();
    const std::filesystem::path folder = welcome.run_folder;
    if (!std::filesystem::is_directory(folder / "logs"))
      return Error{fmt::format("this host does not see the run's folder {}: job.dump_folder must be on a file system that all hosts share", folder.string())};
    log_ = make_log(LogOptions{.who = fmt::format("node {}", request_.node_rank),
                               .file = (folder / "logs" / fmt::format("node-{}.log", request_.node_rank)).string(),
                               .console = true,
                               .colour = ::isatty(STDOUT_FILENO) == 1});
    if (auto linked = link_->connect(launcher_rank, 1, Incarnation{0}, welcome.address); !linked) return linked;
    const std::string address = fmt::format("{}:{}", found.host, found.port);
    workers_.open({.executable = worker_program(),
                   .run_folder = folder,
                   .environment = worker_environment(address, client_->secret(), world_size_, devices(), config_),
                   .first = Rank{request_.node_rank * here_}});
    log_->info(fmt::format("joined the launcher at {}; logs in {}", address, (folder / "logs").string()));
    client_->watch({.peers = [this](const std::vector<Peer>& peers) { meet(peers); },
                    .gone = [this](const std::string& why) { notices_.add({{}, why}); },
                    .trace = {},
                    .order = [this](const std::string& text) { notices_.add({text, {}}); }});
    return {};
  }

  /// On the control connection's thread. The agents of the other hosts are linked to at once: what they send is held until then.
  void meet(const std::vector<Peer>& peers) {
    link_->know(peers);
    for (const Peer& peer : peers)
      if (is_agent(peer.first) && peer.first != agent_rank(request_.node_rank))
        if (auto connected = link_->connect_to(peer.first); !connected) log_->warning(connected.error().message);
  }

  [[nodiscard]] std::string devices() const { return network_devices(process_environment(), config_.comm.interface); }

  Result<Hello> hello(const Secret& secret) {
    Hello said;
    said.first = agent_rank(request_.node_rank);
    said.ranks = here_;
    said.world_size = world_size_;
    said.pid = static_cast<std::uint32_t>(::getpid());
    said.host = host_name();
    said.incarnation = incarnation_of_agent(std::chrono::system_clock::now());
    TransportOptions options;
    options.session = session_of(secret);
    options.self = {said.first, said.incarnation};
    options.devices = devices();
    link_ = std::make_unique<LetterLink>(
        directory_, *clock_, *letter_log_, options, [](Rank, const std::string&) {},
        [this](TransportHandlers handlers) { return courier_.around(std::move(handlers)); });
    courier_.use(*link_);
    said.address = link_->address();
    return said;
  }

  int watch() {
    while (true) {
      std::array<pollfd, 3> waiting{pollfd{signals_.get(), POLLIN, 0}, pollfd{notices_.bell().get(), POLLIN, 0}, pollfd{copies_.bell().get(), POLLIN, 0}};
      ::poll(waiting.data(), waiting.size(), 500);
      workers_.look_at_ledgers();
      for (const SnapshotCourier::News& news : copies_.take())
        tell(CopyReport{.snapshot = news.snapshot, .to = node_of(news.at), .sent = news.sent, .problem = news.problem});
      for (const Notice& notice : notices_.take()) {
        if (notice.order.empty()) return lose_launcher(notice.gone);
        if (const auto code = obey(notice.order)) return *code;
      }
      while (const auto signal = signals_.next()) {
        if (*signal == SIGCHLD)
          workers_.look();
        else if (const auto code = stop(*signal))
          return *code;
      }
    }
  }

  /// The exit code, once the job is over.
  std::optional<int> obey(const std::string& text) {
    const auto order = read_host_order(text);
    if (!order) {
      log_->error(order.error().message);
      return std::nullopt;
    }
    if (const auto* const worker = std::get_if<WorkerOrder>(&*order)) {
      workers_.obey(*worker);
      return std::nullopt;
    }
    if (const auto* const end = std::get_if<EndOrder>(&*order)) return finish(*end);
    if (const auto* const copy = std::get_if<CopyOrder>(&*order)) courier_.send(copy->snapshot, copy->to == 0 ? launcher_rank : agent_rank(copy->to));
    if (const auto* const asked = std::get_if<HoldingsOrder>(&*order)) tell(HoldingsReport{asked->question, courier_.held()});
    if (const auto* const forget = std::get_if<ForgetOrder>(&*order)) courier_.forget(forget->before, Rank{request_.node_rank * here_}, here_);
    if (std::holds_alternative<PresentOrder>(*order)) tell(PresentReport{});
    return std::nullopt;
  }

  int finish(const EndOrder& end) {
    workers_.stop(end.patience, &signals_);
    if (const auto signal = workers_.cut_short()) return 128 + *signal;
    if (end.ok)
      log_->info("the run has ended");
    else
      log_->error("the run has failed: " + end.cause);
    return end.ok ? exit_done : exit_failed;
  }

  int lose_launcher(const std::string& why) {
    log_->error(why + ": the run's launcher is gone, its workers here are ended; `troupe train` on all hosts goes on from the newest checkpoint");
    workers_.stop(orphans_patience, &signals_);
    return exit_failed;
  }

  /// The exit code: at once.
  std::optional<int> stop(int signal) {
    if (asked_to_stop_ && signal != SIGUSR1 && signal != SIGHUP) {
      log_->warning(fmt::format("{} again: stopping at once", ::strsignal(signal)));
      at_once_ = true;
      workers_.stop(std::chrono::milliseconds{0});
      return 128 + signal;
    }
    asked_to_stop_ = true;
    tell(StopReport{fmt::format("{} received", ::strsignal(signal))});
    return std::nullopt;
  }

  /// One that cannot be told is gone, and the connection's thread will say so.
  void tell(const HostReport& report) { (void)client_->tell(write(report)); }

  const TrainRequest& request_;
  const JobConfig& config_;
  const SignalQueue& signals_;
  const std::uint32_t here_, world_size_;
  std::unique_ptr<Log> letter_log_ = make_null_log();
  std::unique_ptr<Log> log_;
  std::unique_ptr<Clock> clock_ = make_system_clock();
  Directory directory_;  ///< empty: no actor lives here
  BellQueue<Notice> notices_;
  BellQueue<SnapshotCourier::News> copies_;  ///< that came to this host, or left it
  bool asked_to_stop_ = false, at_once_ = false;
  SnapshotCourier courier_{agent_rank(request_.node_rank), [this](const SnapshotCourier::News& news) { copies_.add(news); }};
  std::unique_ptr<LetterLink> link_;
  std::unique_ptr<ControlClient> client_;
  HostWorkers workers_{{.ended =
                            [this](const WorkerEnd& end) {
                              if (!at_once_ || !end.on_our_demand) tell(end);
                            },
                        .fired = [this](Rank rank, const FaultFiring& firing) { tell(RankFiring{rank, firing}); }}};
};

}  // namespace

Result<void> check_hosts(const JobConfig& config, std::uint32_t nodes) {
  if (nodes == 1) return {};
  if (config.data.loader_hosts > 0) return Error{"data.loader_hosts with --nnodes: loader processes serve the ranks of one host: set it to 0"};
  return {};
}

std::vector<std::pair<std::string, std::string>> worker_environment(const std::string& coordinator, const Secret& secret, std::uint32_t world_size,
                                                                    const std::string& network_devices, const JobConfig& config) {
  return {{"TROUPE_COORDINATOR", coordinator},
          {"TROUPE_WORLD_SIZE", std::to_string(world_size)},
          {"TROUPE_SECRET", secret.hex()},
          {"TROUPE_LAUNCHER_PID", std::to_string(::getpid())},
          {"TROUPE_INCARNATION", "0"},
          {"TROUPE_JOINS", "0"},  // not what our own environment happens to hold
          {"TROUPE_NET_DEVICES", network_devices},
          {"OMP_NUM_THREADS", std::to_string(config.runtime.threads_per_rank)}};
}

int run_node_agent(const TrainRequest& request, const JobConfig& config, const SignalQueue& signals) { return NodeAgent(request, config, signals).run(); }

}  // namespace troupe
