#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "actors/coordinator.hpp"
#include "actors/job_events.hpp"
#include "src/base/log.hpp"
#include "src/base/result.hpp"
#include "src/trace/ring_tracer.hpp"
#include "tools/launcher/secret.hpp"
#include "tools/launcher/socket.hpp"

namespace troupe {

class SnapshotCourier;

/// Something of the agent of another host of the job.
struct HostEvent {
  enum class Kind : std::uint8_t { joined, told, gone };
  Kind kind = Kind::joined;
  std::uint32_t node = 0;
  std::string text;  ///< joined: the host's name; told: a HostReport
};

struct JobHostOptions {
  std::uint32_t world_size = 1;
  std::uint32_t nodes = 1;                                ///< hosts with an equal number of ranks; all but the first have agents that join
  std::function<void(const HostEvent&)> host_event = {};  ///< on the control connection's thread; must not block. Needed for more than one node
  std::uint32_t loader_hosts = 0;                         ///< loader processes, ranks world_size, world_size + 1, … of the control connection
  std::string job;                                        ///< unique for each run
  Secret secret;
  std::string listen_on = "127.0.0.1";
  std::uint16_t port = 0;  ///< 0: any free one
  std::string config;      ///< merged, as TOML; what workers are told
  std::filesystem::path run_folder;
  std::string network_devices = "lo";  ///< of the transport
  bool watches_connections = false;    ///< no host agent sees workers die: the end of a rank's control connection is its death
  /// Checks what `troupe set` and `troupe inject` ask for; the error is told to whoever asks. Empty: nothing is taken.
  std::function<Result<void>(ChangeRequest&, std::uint32_t ranks)> check_change;
  SnapshotCourier* courier = nullptr;  ///< of this host's agent, outlives the host; null: snapshots are not copied to other hosts
  RingTracer* tracer = nullptr;        ///< of launcher_rank, outlives the host; null: the run keeps no timeline
  CoordinatorOptions coordinator;      ///< its world size, job and storage lane are filled in here
};

/// Hosts the Coordinator in this process: the launcher's, or rank 0's where there is none. Owns its actor system, letters and the
/// control connections. Made, asked and destroyed on the main thread.
class JobHost {
 public:
  /// Listens before it returns; a port in use is an error. `events` and `log` outlive the host.
  [[nodiscard]] static Result<std::unique_ptr<JobHost>> start(JobHostOptions options, JobEvents& events, Log& log);
  virtual ~JobHost() = default;
  [[nodiscard]] virtual std::uint16_t port() const noexcept = 0;
  /// All ranks stop at the next step boundary.
  virtual void request_stop(const std::string& reason) = 0;
  /// A rank's process has ended, in this of its lives. Ignored once the rank has stopped as it should, or its next life was asked for.
  virtual void report_death(Rank rank, const std::string& cause, int signal, Incarnation incarnation = {}) = 0;
  /// A fault rule has fired on a rank, as its ledger says.
  virtual void report_firing(Rank rank, std::uint32_t rule, const Where& where, const std::string& operation) = 0;
  /// Asks for a change of the live run, as `troupe set` does; its answer tells what became of it, on another thread.
  virtual void request_change(ChangeRequest change) = 0;
  struct Copied {
    Rank rank;
    std::uint32_t slot = 0;
    EpochId epoch;
    Step step;
    std::string problem;
  };
  /// The second copy of a rank's snapshot, in the memory of another host, is whole, or (with a problem) will not be.
  virtual void report_copy(const Copied& copy) = 0;
  /// All hosts hold what they can of a state (RecoveryOptions::spread).
  virtual void report_spread(std::uint32_t number) = 0;
  /// Has the agent of another host do something (HostOrder), if there is one.
  virtual void order(std::uint32_t node, const std::string& text) = 0;
  /// What `troupe inspect`, `set` and `trace` ask over the control connection (live_requests.hpp). Any thread; may block for two seconds.
  [[nodiscard]] virtual std::string ask(const std::string& request) = 0;
  /// How the job ended; empty while it lives. `bell` rings when it changes.
  [[nodiscard]] virtual std::optional<JobEnd> end() const = 0;
  [[nodiscard]] virtual const Bell& bell() const noexcept = 0;
};

}  // namespace troupe
