#include "src/metrics/wandb_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "src/metrics/wandb_client.hpp"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace troupe {
namespace {

using nlohmann::json;
constexpr int answer_milliseconds = 60000, last_milliseconds = 60000;
constexpr std::size_t most_waiting = std::size_t{16} << 20U;

/// A pipe whose ends close with it unless taken.
struct Pipe {
  std::array<int, 2> ends{-1, -1};
  Pipe() { [[maybe_unused]] const int made = ::pipe2(ends.data(), O_CLOEXEC); }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    for (const int end : ends)
      if (end >= 0) ::close(end);
  }
  int take(std::size_t end) { return std::exchange(ends[end], -1); }
};

/// The first line of what the process says; empty when it says nothing in time, or ends.
std::string first_line(int from) {
  std::string text;
  std::array<char, 512> bytes{};
  while (text.find('\n') == std::string::npos) {
    pollfd waiting{from, POLLIN, 0};
    if (::poll(&waiting, 1, answer_milliseconds) <= 0) break;
    const auto count = ::read(from, bytes.data(), bytes.size());
    if (count <= 0) break;
    text.append(bytes.data(), static_cast<std::size_t>(count));
  }
  return text.substr(0, text.find('\n'));
}

Result<pid_t> spawn(const WandbProcess::Options& options, const std::filesystem::path& log, int input, int output) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, standard;
  sigemptyset(&none);
  sigfillset(&standard);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &standard);
  posix_spawnattr_setpgroup(&attributes, 0);  // a Ctrl-C is the launcher's business
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::string program = options.python, dash = "-c", script{wandb_client_script};
  std::array<char*, 4> arguments{program.data(), dash.data(), script.data(), nullptr};
  pid_t pid = 0;
  const int failed = ::posix_spawnp(&pid, program.c_str(), &actions, &attributes, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (failed != 0) return Error{fmt::format("metrics.enable_wandb: cannot start {}: {}; TROUPE_PYTHON names another Python", program, std::strerror(failed))};
  return pid;
}

/// Its exit code once it has ended (signals as 128 + N); nothing if it has not.
std::optional<int> wait_for_end(pid_t pid, int milliseconds) {
  const int handle = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0U));
  pollfd waiting{handle, POLLIN, 0};
  const bool ended = handle >= 0 && ::poll(&waiting, 1, milliseconds) > 0;
  if (handle >= 0) ::close(handle);
  int status = 0;
  if (!ended || ::waitpid(pid, &status, WNOHANG) != pid) return std::nullopt;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

Result<std::unique_ptr<WandbProcess>> WandbProcess::start(const Options& options) {
  std::error_code none;
  const std::filesystem::path logs = options.run_folder / "logs";
  std::filesystem::create_directories(logs, none);
  Pipe input, output;
  if (output.ends[1] < 0) return Error{std::string("metrics.enable_wandb: no pipe: ") + std::strerror(errno)};
  auto pid = spawn(options, logs / "wandb.log", input.ends[0], output.ends[1]);
  if (!pid) return pid.error();
  ::close(output.take(1));
  ::fcntl(input.ends[1], F_SETFL, O_NONBLOCK);  // training waits for no one
  std::unique_ptr<WandbProcess> process{new WandbProcess(*pid, input.take(1), logs / "wandb.log")};
  if (const std::string answer = first_line(output.ends[0]); answer != "ready") {
    ::kill(*pid, SIGKILL);
    return Error{
        fmt::format("metrics.enable_wandb: {} has no client of Weights & Biases ({}): install it with `{} -m pip install wandb`, or name a Python that "
                    "has it in TROUPE_PYTHON",
                    options.python, answer.empty() ? "no answer, see " + (logs / "wandb.log").string() : answer, options.python)};
  }
  const json first{{"init", {{"dir", std::filesystem::absolute(options.run_folder).string()}, {"config", options.config}}}};
  if (auto sent = process->send(first.dump()); !sent) return sent.error();
  return process;
}

WandbProcess::~WandbProcess() {
  if (input_ >= 0) ::close(input_);
  if (pid_ > 0) wait_for_end(pid_, 100);
}

Result<void> WandbProcess::send(const std::string& line) {
  if (broken_) return {};  // told once
  if (waiting_.size() + line.size() > most_waiting) return Error{"Weights & Biases is too far behind: the numbers of this step are lost to it"};
  waiting_ += line + "\n";
  return flush();
}

Result<void> WandbProcess::flush() {
  while (!waiting_.empty()) {
    const auto count = ::write(input_, waiting_.data(), waiting_.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return {};
    if (count < 0) {
      broken_ = true;
      return Error{"the process that reports to Weights & Biases has gone; what it said is in " + log_.string() + "; training goes on"};
    }
    waiting_.erase(0, static_cast<std::size_t>(count));
  }
  return {};
}

Result<void> WandbProcess::write(Step step, double, std::span<const Scalar> scalars) {
  json values = json::object();
  for (const Scalar& scalar : scalars) values[scalar.tag] = std::isfinite(scalar.value) ? json(scalar.value) : json();
  return send(json{{"step", step.value()}, {"values", std::move(values)}}.dump());
}

Result<void> WandbProcess::close() {
  ::fcntl(input_, F_SETFL, 0);  // wait for room now
  const auto flushed = broken_ ? Result<void>{} : flush();
  ::close(std::exchange(input_, -1));
  if (!flushed) return flushed.error();
  const auto code = wait_for_end(std::exchange(pid_, 0), last_milliseconds);
  if (broken_ || code == 0) return {};
  if (code) return Error{"the process that reports to Weights & Biases ended with code " + std::to_string(*code) + "; what it said is in " + log_.string()};
  return Error{"the process that reports to Weights & Biases is still at work after a minute; it ends by itself, what it says is in " + log_.string()};
}

}  // namespace troupe
