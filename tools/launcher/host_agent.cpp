#include "tools/launcher/host_agent.hpp"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <fstream>

#include "tools/launcher/socket.hpp"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace troupe {
namespace {

std::vector<std::string> merged_environment(const std::vector<std::pair<std::string, std::string>>& additions) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const bool replaced = std::ranges::any_of(additions, [&](const auto& addition) { return text.starts_with(addition.first + "="); });
    if (!replaced) all.emplace_back(text);
  }
  for (const auto& [name, value] : additions) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  all.reserve(texts.size() + 1);
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

/// posix_spawn's attributes and file actions, freed at the end.
struct SpawnSetup {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  SpawnSetup() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
  }
  SpawnSetup(const SpawnSetup&) = delete;
  SpawnSetup& operator=(const SpawnSetup&) = delete;
  ~SpawnSetup() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
};

void describe_spawn(SpawnSetup& setup, int log, int memory) {
  posix_spawn_file_actions_adddup2(&setup.actions, STDOUT_FILENO, 3);
  posix_spawn_file_actions_adddup2(&setup.actions, STDERR_FILENO, 4);
  if (memory >= 0) posix_spawn_file_actions_adddup2(&setup.actions, memory, 5);
  posix_spawn_file_actions_addopen(&setup.actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&setup.actions, log, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&setup.actions, log, STDERR_FILENO);
  sigset_t none, standard;
  sigemptyset(&none);
  sigfillset(&standard);
  posix_spawnattr_setsigmask(&setup.attributes, &none);
  posix_spawnattr_setsigdefault(&setup.attributes, &standard);
  posix_spawnattr_setpgroup(&setup.attributes, 0);
  posix_spawnattr_setflags(&setup.attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
}

std::string ranks_text(Rank first, std::uint32_t ranks) {
  return ranks == 1 ? fmt::format("rank {}", first.value()) : fmt::format("the process of ranks {} to {}", first.value(), first.value() + ranks - 1);
}

}  // namespace

std::string WorkerEnd::describe() const {
  const std::string name = loader ? fmt::format("loader process {}", *loader) : ranks_text(first, ranks);
  if (!problem.empty()) return fmt::format("{}{}: {}", name, host.empty() ? "" : " on " + host, problem);
  const std::string who = fmt::format("{} (pid {}{})", name, pid, host.empty() ? "" : " on " + host);
  if (lost) return fmt::format("{} has ended; how is unknown, another part of the system has taken its exit code", who);
  if (signal != 0) return fmt::format("{} was killed by signal {} ({})", who, signal, ::strsignal(signal));
  return fmt::format("{} exited with code {}", who, code);
}

HostAgent::~HostAgent() { stop(std::chrono::milliseconds{0}); }

Result<void> HostAgent::start(const WorkerCommand& command) {
  Descriptor opened{::open(command.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)};
  if (!opened) return Error{fmt::format("cannot write {}: {}", command.log.string(), std::strerror(errno))};
  const Descriptor log{::fcntl(opened.get(), F_DUPFD_CLOEXEC, 10)};  // above those that the worker's setup overwrites
  const Descriptor memory{command.memory < 0 ? -1 : ::fcntl(command.memory, F_DUPFD_CLOEXEC, 10)};
  SpawnSetup setup;
  describe_spawn(setup, log.get(), memory.get());
  std::vector<std::string> arguments{command.executable.string()};
  arguments.insert(arguments.end(), command.arguments.begin(), command.arguments.end());
  std::vector<std::string> environment = merged_environment(command.environment);
  pid_t pid = 0;
  const int problem =
      ::posix_spawn(&pid, command.executable.c_str(), &setup.actions, &setup.attributes, pointers(arguments).data(), pointers(environment).data());
  if (problem != 0)
    return Error{fmt::format("cannot start {}: {}; it belongs beside the program troupe (built with TROUPE_TORCH)", command.executable.string(),
                             std::strerror(problem))};
  workers_.push_back(Worker{pid, command});
  return {};
}

namespace {

/// The last line of the log of a process that could not write it: it was killed, or is gone without a trace.
void note_in_log(const WorkerEnd& end) {
  std::ifstream before(end.log, std::ios::ate | std::ios::binary);
  const bool midway = before && before.tellg() > 0 && before.seekg(-1, std::ios::end) && before.get() != '\n';  // killed in the middle of a line
  std::ofstream log(end.log, std::ios::app);
  if (midway) log << '\n';
  log << fmt::format("[troupe] {:%Y-%m-%d %H:%M:%S} - launcher - error - {}\n", fmt::localtime(std::time(nullptr)), end.describe());
}

}  // namespace

std::vector<WorkerEnd> HostAgent::reap() {
  std::vector<WorkerEnd> ends;
  std::erase_if(workers_, [&](const Worker& worker) {
    int status = 0;
    const pid_t ended = ::waitpid(worker.pid, &status, WNOHANG);
    const bool lost = ended < 0 && errno == ECHILD;  // its PID may be another process's already: never touch it again
    if (ended != worker.pid && !lost) return false;
    if (lost) status = 0;
    ends.push_back(WorkerEnd{.first = worker.command.first,
                             .ranks = worker.command.ranks,
                             .pid = worker.pid,
                             .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0,
                             .code = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
                             .lost = lost,
                             .on_our_demand = worker.killed,
                             .log = worker.command.log,
                             .incarnation = worker.command.incarnation,
                             .loader = worker.command.loader});
    if (lost || (ends.back().signal != 0 && !worker.killed)) note_in_log(ends.back());
    return true;
  });
  return ends;
}

bool HostAgent::kill(Rank first) {
  const auto found = std::ranges::find_if(workers_, [first](const Worker& worker) { return worker.command.first == first; });
  if (found == workers_.end()) return false;
  found->killed = true;
  ::kill(-found->pid, SIGKILL);
  ::kill(found->pid, SIGKILL);
  return true;
}

bool HostAgent::must_hurry(const SignalQueue* signals) {
  while (signals != nullptr) {
    const auto signal = signals->next();
    if (!signal) break;
    if (*signal != SIGCHLD && *signal != SIGUSR1 && *signal != SIGHUP) cut_short_ = signal;
  }
  return cut_short_.has_value();
}

std::vector<WorkerEnd> HostAgent::stop(std::chrono::milliseconds patience, const SignalQueue* signals) {
  auto deadline = std::chrono::steady_clock::now() + patience;
  std::vector<WorkerEnd> ends;
  const auto collect = [&] {
    auto more = reap();
    ends.insert(ends.end(), more.begin(), more.end());
  };
  for (collect(); !workers_.empty(); collect()) {
    const Worker& worker = workers_.front();
    if (must_hurry(signals)) deadline = std::min(deadline, std::chrono::steady_clock::now());
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    if (left <= 0) {
      for (Worker& late : workers_) {
        late.killed = true;
        ::kill(-late.pid, SIGKILL);
        ::kill(late.pid, SIGKILL);
      }
    }
    const Descriptor watched{static_cast<int>(::syscall(SYS_pidfd_open, worker.pid, 0U))};
    std::array<pollfd, 2> waiting{pollfd{watched.get(), POLLIN, 0}, pollfd{signals == nullptr ? -1 : signals->get(), POLLIN, 0}};
    ::poll(waiting.data(), waiting.size(), left > 0 ? static_cast<int>(left) : 1000);
  }
  return ends;
}

std::string tail_of(const std::filesystem::path& file, std::size_t lines, std::size_t bytes) {
  std::ifstream stream(file, std::ios::binary | std::ios::ate);
  if (!stream) return {};
  const auto size = static_cast<std::size_t>(stream.tellg());
  const std::size_t from = size > bytes ? size - bytes : 0;
  stream.seekg(static_cast<std::streamoff>(from));
  std::string text(size - from, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::size_t at = text.size();
  for (std::size_t line = 0; line < lines && at != std::string::npos; ++line) at = at == 0 ? std::string::npos : text.rfind('\n', at - 1);
  return at == std::string::npos ? text : text.substr(at + 1);
}

}  // namespace troupe
