#include "tools/chaos/chaos_job.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

namespace troupe {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string text_of(const fs::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// Entries of a folder; none if it is not there.
std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code problem;
  for (fs::directory_iterator it(folder, problem), end; !problem && it != end; it.increment(problem)) entries.push_back(it->path());
  return entries;
}

}  // namespace

std::vector<std::string> LineTail::more() {
  std::vector<std::string> lines;
  std::ifstream stream(file_, std::ios::binary);
  if (!stream) return lines;
  stream.seekg(static_cast<std::streamoff>(offset_));
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  std::size_t from = 0;
  for (std::size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', from)) {
    lines.push_back(text.substr(from, end - from));
    from = end + 1;
  }
  offset_ += from;
  return lines;
}

ChaosJob::ChaosJob(JobConfig config, std::uint32_t ranks, fs::path folder)
    : ranks_(ranks), folder_(std::move(folder)), metrics_(run() / "metrics.jsonl"), journal_(run() / "journal.jsonl") {
  fs::create_directories(folder_ / "tmp");
  config.job.dump_folder = run().string();
  std::ofstream(folder_ / "job.toml") << config.to_toml();
}

Result<void> ChaosJob::start(bool overwrite) {
  WorkerCommand command{.executable = fs::read_symlink("/proc/self/exe"),
                        .arguments = {"train", (folder_ / "job.toml").string(), "--nproc", std::to_string(ranks_)},
                        .environment = {{"TMPDIR", (folder_ / "tmp").string()}},
                        .log = folder_ / "output.log",
                        .first = Rank{0},
                        .ranks = 1};
  if (overwrite) command.arguments.emplace_back("--overwrite");
  metrics_ = LineTail(run() / "metrics.jsonl");  // cut, or begun anew
  if (overwrite) journal_ = LineTail(run() / "journal.jsonl");
  return agent_.start(command);
}

void ChaosJob::look() {
  for (WorkerEnd& end : agent_.reap()) ends_.push_back(std::move(end));  // first, so that all that it told is read below
  for (const std::string& line : metrics_.more())
    if (const json told = json::parse(line, nullptr, false); told.contains("step")) newest_ = Step{told["step"].get<std::uint64_t>()};
  for (const std::string& line : journal_.more()) note(line);
}

void ChaosJob::note(const std::string& line) {
  const json told = json::parse(line, nullptr, false);
  if (!told.contains("event")) return;
  const auto event = told["event"].get<std::string>();
  if (event == "joined") {
    const auto pid = told["pid"].get<std::int64_t>();
    facts_.pids[Rank{told["rank"].get<std::uint32_t>()}] = pid;
    facts_.all_pids.insert(pid);
  } else if (event == "epoch") {
    ++facts_.epochs;
  } else if (event == "recovering") {
    ++facts_.recoveries_begun;
  } else if (event == "respawn") {
    ++facts_.respawns;
  } else if (event == "recovered") {
    facts_.recoveries.push_back(told["seconds"].get<double>());
  } else if (event == "fault_fired") {
    facts_.rules_fired.insert(told["rule"].get<std::uint64_t>());
  } else if (event == "fault") {
    const auto cause = told["cause"].get<std::string>();
    if (cause.find("did not come to rest") != std::string::npos || cause.find("ranks have stopped") != std::string::npos) facts_.not_at_rest.push_back(cause);
  }
}

bool ChaosJob::signal_rank(Rank rank, int signal) const {
  const auto found = facts_.pids.find(rank);
  if (found == facts_.pids.end()) return false;
  const auto process = fs::path("/proc") / std::to_string(found->second);
  if (!text_of(process / "comm").starts_with("troupe-worker")) return false;
  return ::kill(static_cast<pid_t>(found->second), signal) == 0;
}

bool ChaosJob::saving() const {
  return std::ranges::any_of(entries_of(run() / "checkpoint"),
                             [](const fs::path& entry) { return entry.filename().string().find(".tmp") != std::string::npos; });
}

bool ChaosJob::has_checkpoint() const {
  return std::ranges::any_of(entries_of(run() / "checkpoint"), [](const fs::path& entry) {
    const std::string name = entry.filename().string();
    return name.starts_with("step-") && name.find('.') == std::string::npos;
  });
}

std::vector<std::string> ChaosJob::told() const {
  std::vector<std::string> lines;
  std::ifstream stream(run() / "metrics.jsonl");
  for (std::string line; std::getline(stream, line);) {
    const json all = json::parse(line, nullptr, false);
    json part = json::object();
    for (const char* key : {"step", "loss", "grad_norm", "lr", "outcome", "digest", "tokens", "step_tokens"})
      if (all.contains(key)) part[key] = all[key];
    lines.push_back(part.dump());
  }
  return lines;
}

std::vector<std::string> ChaosJob::leftovers(std::chrono::milliseconds patience) {
  std::vector<std::string> found;
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (::waitpid(-1, nullptr, WNOHANG) >= 0) {  // fails once there is no child, neither alive nor to be reaped
    if (std::chrono::steady_clock::now() < deadline) {
      ::poll(nullptr, 0, 5);
      continue;
    }
    for (const std::int64_t pid : facts_.all_pids) {
      if (!text_of(fs::path("/proc") / std::to_string(pid) / "comm").starts_with("troupe-worker")) continue;
      found.push_back(fmt::format("process {} lives on", pid));
      ::kill(static_cast<pid_t>(pid), SIGKILL);
    }
    if (found.empty()) found.emplace_back("a process of the job lives on that never joined it");
    break;
  }
  std::istringstream segments(text_of("/proc/sysvipc/shm"));
  std::string line;
  std::getline(segments, line);
  for (std::int64_t key = 0, id = 0, mode = 0, bytes = 0, creator = 0; segments >> key >> id >> mode >> bytes >> creator && std::getline(segments, line);)
    if (facts_.all_pids.contains(creator))
      found.push_back(fmt::format("segment {} of System V shared memory, {} bytes, made by process {}", id, bytes, creator));
  for (const fs::path& entry : entries_of(folder_ / "tmp")) found.push_back("temporary file " + entry.string());
  if (saving()) found.push_back("half of a checkpoint in " + (run() / "checkpoint").string());
  if (fs::exists(run() / "control.json")) found.push_back((run() / "control.json").string());
  return found;
}

void become_subreaper() {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1L, 0L, 0L, 0L) != 0) throw std::runtime_error("this system has no subreapers (prctl)");
}

std::set<std::string> shared_memory_files() {
  std::set<std::string> names;
  for (const fs::path& entry : entries_of("/dev/shm")) {
    struct stat facts {};
    if (::stat(entry.c_str(), &facts) == 0 && facts.st_uid == ::getuid()) names.insert(entry.string());
  }
  return names;
}

bool is_mapped(const std::string& shared_memory_file) {
  return std::ranges::any_of(entries_of("/proc"), [&](const fs::path& process) {
    const char first = process.filename().string().front();
    return first >= '0' && first <= '9' && text_of(process / "maps").find(shared_memory_file) != std::string::npos;
  });
}

}  // namespace troupe
