#pragma once
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/ids.hpp"
#include "src/base/result.hpp"
#include "tools/launcher/signals.hpp"

namespace troupe {

/// A worker to start: it hosts `ranks` ranks from `first` on, or is a loader process.
struct WorkerCommand {
  std::filesystem::path executable;
  std::vector<std::string> arguments;                            ///< without the program's name
  std::vector<std::pair<std::string, std::string>> environment;  ///< beside what this process has
  std::filesystem::path log;                                     ///< stdout and stderr are appended here
  Rank first;
  std::uint32_t ranks = 1;
  Incarnation incarnation = {};              ///< of this process: 0, then +1 for each time that it is started again
  int memory = -1;                           ///< a descriptor that the worker gets as number 5; -1: none
  std::optional<std::uint32_t> loader = {};  ///< number of a loader process
};

/// How a worker ended.
struct WorkerEnd {
  Rank first;
  std::uint32_t ranks = 1;
  pid_t pid = 0;
  int signal = 0;              ///< that ended it; 0: it exited
  int code = 0;                ///< exit code when it exited
  bool lost = false;           ///< somebody else reaped it: how it ended is unknown
  bool on_our_demand = false;  ///< killed by stop() or kill()
  std::filesystem::path log;
  Incarnation incarnation = {};
  std::string host = {};                     ///< where it ran; empty: this one
  std::string problem = {};                  ///< not empty: it could not even be started, and why
  bool let_go = false;                       ///< the run had no need of it any more
  std::optional<std::uint32_t> loader = {};  ///< number of a loader process
  [[nodiscard]] bool clean() const noexcept { return signal == 0 && code == 0 && !lost && problem.empty(); }
  /// "rank 1 (pid 77 on host-b) was killed by signal 9 (Killed)".
  [[nodiscard]] std::string describe() const;
};

/// Starts and watches the workers of this host. The thread that calls start() must outlive them: workers ask the system to be
/// killed when it ends. Single-threaded. The destructor kills and reaps what is left.
class HostAgent {
 public:
  HostAgent() = default;
  HostAgent(const HostAgent&) = delete;
  HostAgent& operator=(const HostAgent&) = delete;
  ~HostAgent();
  /// In a process group of its own, so that a terminal's Ctrl-C reaches only the launcher. File descriptors 3 and 4 of the worker
  /// are this process's stdout and stderr.
  [[nodiscard]] Result<void> start(const WorkerCommand& command);
  /// Those that ended since the last call. Does not block; SIGCHLD says when to ask.
  [[nodiscard]] std::vector<WorkerEnd> reap();
  [[nodiscard]] std::size_t running() const noexcept { return workers_.size(); }
  /// Ends the process that hosts ranks from `first` on, if it runs, whatever it does or waits for. False: there is none. Does not wait: reap().
  bool kill(Rank first);
  /// Waits for all to end by themselves, at most `patience`, then kills what is left. Returns all ends. A signal that comes into
  /// `signals` meanwhile (but SIGCHLD and SIGUSR1) ends the patience.
  std::vector<WorkerEnd> stop(std::chrono::milliseconds patience, const SignalQueue* signals = nullptr);
  /// The signal that ended stop()'s patience.
  [[nodiscard]] std::optional<int> cut_short() const noexcept { return cut_short_; }

 private:
  struct Worker {
    pid_t pid;
    WorkerCommand command;
    bool killed = false;
  };
  [[nodiscard]] bool must_hurry(const SignalQueue* signals);
  std::vector<Worker> workers_;
  std::optional<int> cut_short_;
};

/// The last `lines` lines of a text file, at most `bytes` of them; empty if it cannot be read.
[[nodiscard]] std::string tail_of(const std::filesystem::path& file, std::size_t lines, std::size_t bytes = 8192);

}  // namespace troupe
