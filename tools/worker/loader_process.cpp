#include "tools/worker/loader_process.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>

#include "messages/write.hpp"
#include "src/base/host_name.hpp"
#include "src/checkpoint/restore_point.hpp"
#include "src/config/load_extension.hpp"
#include "src/data/loader.hpp"
#include "src/runtime/directory.hpp"
#include "tools/launcher/control_client.hpp"
#include "tools/launcher/letter_link.hpp"
#include "tools/launcher/training_job.hpp"
#include "tools/worker/loader_batches.hpp"
#include "tools/worker/take.hpp"

namespace troupe {
namespace {

struct HostStream final : Stream {};

class LoaderProcess {
 public:
  explicit LoaderProcess(const WorkerPlace& place) : place_(place), self_(loader_rank(place.rank.value(), place.world_size)) {}
  ~LoaderProcess() {
    client_.reset();  // its thread calls the link
    if (link_) link_->close(std::chrono::seconds{2});
    link_.reset();
  }
  LoaderProcess(const LoaderProcess&) = delete;
  LoaderProcess& operator=(const LoaderProcess&) = delete;

  int run() {
    join();
    try {
      open_data();
      while (const auto slot = next()) load(*slot);
    } catch (const std::exception& problem) {
      report(problem.what());
      throw;
    }
    log_->info(fmt::format("{} batches sent", sent_));
    return 0;
  }

 private:
  struct FreeSlot {
    Rank rank;
    Where where;
  };

  /// Before the ranks notice that we are gone: so the cause is the first that the Coordinator hears of.
  void report(const std::string& problem) {
    link_->send(write<schema::FaultReport>(Heading{coordinator_address, {self_, ActorKind::data_loader}, {}, {}, clock_->now(), 0}, [&](auto body) {
      body.setRank(self_.value());
      body.setCause(fmt::format("loader process {}: {}", place_.rank.value(), problem));
    }));
  }

  void join() {
    auto client = ControlClient::connect(
        place_.coordinator_host, place_.coordinator_port, [this] { return secret(); }, [this](const Secret& known) { return hello(known); },
        std::chrono::seconds{60});
    client_ = take(std::move(client));
    const Welcome& welcome = client_->welcome();
    config_ = take(with_extension(JobConfig::parse(welcome.config, "the launcher's configuration")));
    hosts_ = static_cast<std::uint32_t>(config_.data.loader_hosts);
    if (hosts_ == 0) throw std::runtime_error("a loader process in a job without loader processes (data.loader_hosts = 0)");
    if (auto connected = link_->connect(launcher_rank, 1, Incarnation{0}, welcome.address); !connected) throw std::runtime_error(connected.error().message);
    client_->watch({[this](const std::vector<Peer>& peers) { meet(peers); }, [this](const std::string&) { finish(); }});
  }

  Result<Secret> secret() const {
    const auto text = environment_("TROUPE_SECRET");
    if (!text) return Error{"TROUPE_SECRET is not set: `troupe train` starts loader processes"};
    return Secret::from_hex(*text);
  }

  Result<Hello> hello(const Secret& secret) {
    TransportOptions options;
    options.session = session_of(secret);
    options.self = {self_, Incarnation{0}};
    options.devices = network_devices(environment_, {});
    link_ = std::make_unique<LetterLink>(
        directory_, *clock_, *log_, options, [this](Rank peer, const std::string&) { left(peer); },
        [this](TransportHandlers handlers) {
          handlers.letter = [this](const std::shared_ptr<const Parcel>& parcel) { slot_home(*parcel); };
          handlers.peer_left = [this](Rank peer) { left(peer); };
          return handlers;
        });
    Hello said;
    said.first = self_;
    said.world_size = place_.world_size;
    said.pid = static_cast<std::uint32_t>(::getpid());
    said.host = host_name();
    said.address = link_->address();
    return said;
  }

  void open_data() {
    const Welcome& welcome = client_->welcome();
    DocumentOptions how = take(document_options(config_.data, config_.model.hf_assets_path));
    how.warn = [this](const std::string& text) { log_->warning(text); };
    std::vector<CorpusOptions> sources = sources_of(config_.data);
    for (CorpusOptions& source : sources) source.index_folder = (std::filesystem::path(welcome.run_folder) / "index").string();
    const Corpora corpora = take(open_corpora(sources, how));
    for (const auto& documents : corpora) log_->info(fmt::format("loads for ranks {} + {} × i: {}", place_.rank.value(), hosts_, documents->describe()));
    const auto storage = make_posix_storage();
    const CheckpointStore own(std::filesystem::path(welcome.run_folder) / config_.checkpoint.folder, *storage);
    const auto point = take(restore_point_at(welcome.restore_step, config_.checkpoint, own, *storage));
    const std::uint64_t first_row = point ? point->start.data_row : 0;
    for (std::uint32_t rank = place_.rank.value(); rank < place_.world_size; rank += hosts_) {
      LoaderOptions options = loader_options(config_, rank, place_.world_size);
      options.first_step = welcome.restore_step.next();
      options.first_row = first_row;
      batch_bytes_ = options.layout.bytes();
      loaders_[Rank{rank}] = make_loader(corpora, options);
    }
  }

  /// On the control connection's thread: all processes of the job are there.
  void meet(const std::vector<Peer>& peers) {
    link_->know(peers);
    for (std::uint32_t rank = place_.rank.value(); rank < place_.world_size; rank += hosts_) {
      const auto peer = std::ranges::find_if(peers, [rank](const Peer& p) { return p.first.value() <= rank && rank - p.first.value() < p.ranks; });
      if (peer == peers.end()) continue;
      {
        const std::lock_guard lock(mutex_);
        served_.insert(peer->first);
      }
      if (auto connected = link_->connect_to(Rank{rank}); !connected) log_->error(connected.error().message);
    }
  }

  void slot_home(const Parcel& parcel) {
    if (parcel.envelope().getBody().which() != LetterKind::SLOT_HOME) return;
    const std::lock_guard lock(mutex_);
    slots_.push_back({address_of(parcel.envelope().getFrom()).rank, where_of(parcel.envelope())});
    changed_.notify_all();
  }

  void left(Rank peer) {
    const std::lock_guard lock(mutex_);
    served_.erase(peer);
    over_ |= served_.empty();
    changed_.notify_all();
  }

  void finish() {
    const std::lock_guard lock(mutex_);
    over_ = true;
    changed_.notify_all();
  }

  std::optional<FreeSlot> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return over_ || !slots_.empty(); });
    if (over_) return std::nullopt;
    const FreeSlot slot = slots_.front();
    slots_.pop_front();
    return slot;
  }

  void load(const FreeSlot& slot) {
    const auto loader = loaders_.find(slot.rank);
    if (loader == loaders_.end())
      return log_->warning(fmt::format("rank {} asks for batches here, but another loader process has its share", slot.rank.value()));
    const auto memory = std::make_shared<std::vector<std::byte>>(batch_bytes_);
    HostStream stream;
    const BatchFacts facts = loader->second->load(stream, slot.where.step, slot.where.micro, *memory);
    const Heading heading{{slot.rank, ActorKind::data_loader}, {self_, ActorKind::data_loader}, slot.where, {}, clock_->now(), 0};
    link_->send(write<schema::BatchReady>(
        heading,
        [&](auto body) {
          body.setTokens(facts.valid_tokens);
          body.setDigest(facts.digest);
        },
        Lease{SlotIndex{0}, *memory, [memory] {}}));
    ++sent_;
  }

  const WorkerPlace& place_;
  const Rank self_;
  Environment environment_ = process_environment();
  std::unique_ptr<Log> log_ = make_log(LogOptions{.who = fmt::format("loader {}", place_.rank.value()), .file = {}});
  std::unique_ptr<Clock> clock_ = make_system_clock();
  Directory directory_;  ///< empty: no actor lives here
  JobConfig config_;
  std::uint32_t hosts_ = 1;
  std::size_t batch_bytes_ = 0;
  std::uint64_t sent_ = 0;
  std::map<Rank, std::unique_ptr<LoaderProgram>> loaders_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<FreeSlot> slots_;
  std::set<Rank> served_;  ///< processes of the ranks that this one loads for, as long as they are there
  bool over_ = false;
  std::unique_ptr<LetterLink> link_;
  std::unique_ptr<ControlClient> client_;
};

}  // namespace

int run_loader(const WorkerPlace& place) { return LoaderProcess(place).run(); }

}  // namespace troupe
