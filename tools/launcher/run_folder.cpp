#include "tools/launcher/run_folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <vector>

namespace troupe {
namespace {

namespace fs = std::filesystem;

/// What a run writes, beside its checkpoints and RUN/lock.
constexpr std::array<const char*, 8> own_names{"config.toml", "metrics.jsonl", "journal.jsonl", "control.json", "logs", "trace", "index", "wandb"};

bool holds_pid(const fs::path& lock) {
  std::ifstream file(lock);
  std::string line;
  return std::getline(file, line) && !line.empty() && line.find_first_not_of("0123456789") == std::string::npos;
}

/// A lock file with a PID, or a journal whose first line is one of ours: a run of Troupe was here.
bool has_mark(const fs::path& path) {
  if (holds_pid(path / "lock")) return true;
  std::string line;
  std::ifstream journal(path / "journal.jsonl");
  if (!std::getline(journal, line)) return false;
  const auto json = nlohmann::json::parse(line, nullptr, false);
  return json.is_object() && json.contains("event") && json.contains("time");
}

bool is_checkpoint(const fs::path& entry) {
  const std::string name = entry.filename().string();
  return name.starts_with("step-") && name.size() > 5 && name.find_first_of("0123456789", 5) == 5;
}

std::vector<fs::path> checkpoints_in(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none))
    if (is_checkpoint(entry.path())) found.push_back(entry.path());
  return found;
}

/// The names in it that a run may have written, and the others.
struct Names {
  std::set<std::string> own, others;
};
Names names_in(const RunFolder::Request& request) {
  std::set<std::string> mine(own_names.begin(), own_names.end());
  mine.insert({"lock", "checkpoint", request.checkpoints.begin()->string()});
  for (const fs::path& output : request.outputs) mine.insert(output.begin()->string());
  std::error_code none;
  Names names;
  for (const auto& entry : fs::directory_iterator(request.path, none)) {
    const std::string name = entry.path().filename().string();
    if (name == "lock" && (holds_pid(entry.path()) || fs::is_empty(entry.path(), none))) continue;  // empty: of one that died at once
    const bool given = !request.keep.empty() && fs::equivalent(entry.path(), request.keep, none);   // the user's, unless a run wrote it
    (mine.contains(name) && !(given && !has_mark(request.path)) ? names.own : names.others).insert(name);
  }
  return names;
}

RunFolder::Content look_at(const RunFolder::Request& request) {
  const Names names = names_in(request);
  if (names.own.empty() && names.others.empty()) return RunFolder::Content::fresh;
  if (request.resumable) return RunFolder::Content::resumable;
  std::error_code ignored;
  const auto steps = fs::file_size(request.path / "metrics.jsonl", ignored);
  const bool stepped = !ignored && steps > 0;
  const bool saved = !checkpoints_in(request.path / request.checkpoints).empty() || !checkpoints_in(request.path / "checkpoint").empty();
  return names.others.empty() && has_mark(request.path) && !stepped && !saved ? RunFolder::Content::fresh : RunFolder::Content::foreign;
}

/// Why this folder may not be used as asked; nothing if it may.
std::optional<Error> objection(const RunFolder::Request& request) {
  const std::string where = request.path.string();
  if (request.overwrite) {
    const Names names = names_in(request);
    if (names.own.empty() || has_mark(request.path)) return std::nullopt;
    return Error{
        fmt::format("the folder {} holds {}, but no run of Troupe has left its mark there (lock with a PID, journal.jsonl): --overwrite deletes only what a "
                    "run wrote. Move it away, or choose another "
                    "job.dump_folder",
                    where, *names.own.begin())};
  }
  if (look_at(request) != RunFolder::Content::foreign) return std::nullopt;
  return Error{fmt::format("the folder {} is not empty and {}: choose another job.dump_folder, or give --overwrite to delete what an earlier run left there",
                           where, request.why_not.empty() ? "holds no sealed checkpoint to resume from" : request.why_not)};
}

/// Deletes what an earlier run wrote, and nothing else.
Result<void> clear(const RunFolder::Request& request) {
  std::vector<fs::path> doomed;
  doomed.reserve(own_names.size() + request.outputs.size());
  for (const char* name : own_names) doomed.push_back(request.path / name);
  for (const fs::path& output : request.outputs) doomed.push_back(request.path / output);
  for (const fs::path& folder : {fs::path{"checkpoint"}, request.checkpoints})
    for (fs::path& checkpoint : checkpoints_in(request.path / folder)) doomed.push_back(std::move(checkpoint));
  for (const fs::path& entry : doomed) {
    std::error_code problem;
    if (!request.keep.empty() && fs::equivalent(entry, request.keep, problem)) continue;
    problem.clear();
    fs::remove_all(entry, problem);
    if (problem) return Error{fmt::format("cannot delete {}: {} (--overwrite)", entry.string(), problem.message())};
  }
  return {};
}

/// Why another process's lock keeps this one out. Its PID stands in the file soon after it has the lock; until then none does, or that of a run before.
Error held_by_another(const fs::path& folder, int lock) {
  std::array<char, 32> text{};
  const auto got = ::pread(lock, text.data(), text.size() - 1, 0);
  pid_t pid = 0;
  std::from_chars(text.data(), text.data() + std::max<ssize_t>(got, 0), pid);
  if (pid <= 0 || (::kill(pid, 0) != 0 && errno == ESRCH))
    return Error{
        fmt::format("the folder {} belongs to another run, which has just begun or is on another host: wait for it, stop it, or choose another "
                    "job.dump_folder",
                    folder.string())};
  return Error{fmt::format("the folder {} belongs to a live run with PID {}: wait for it, stop it (kill {}), or choose another job.dump_folder",
                           folder.string(), pid, pid)};
}

Error cannot(const std::string& what, const fs::path& path) {
  return Error{fmt::format("cannot {} {}: {} (job.dump_folder)", what, path.string(), std::strerror(errno))};
}

}  // namespace

Result<RunFolder> RunFolder::open(const Request& request) {
  std::error_code problem;
  fs::create_directories(request.path, problem);
  if (problem) return Error{fmt::format("cannot create the run's folder {}: {} (job.dump_folder)", request.path.string(), problem.message())};
  const fs::path lock_path = request.path / "lock";
  if (!fs::exists(lock_path, problem))
    if (auto refused = objection(request)) return *std::move(refused);  // leave no trace in it
  Descriptor lock{::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)};
  if (!lock) return cannot("write into the run's folder: open", lock_path);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return held_by_another(request.path, lock.get());
  RunFolder folder(request.path, std::move(lock));
  if (auto refused = objection(request)) return *std::move(refused);
  folder.content_ = look_at(request);
  if (request.overwrite || folder.content_ == Content::fresh) {
    if (has_mark(request.path))
      if (auto cleared = clear(request); !cleared) return cleared.error();
    folder.content_ = Content::fresh;
  }
  const std::string pid = fmt::format("{}\n", ::getpid());
  if (::ftruncate(folder.lock_.get(), 0) != 0 || ::pwrite(folder.lock_.get(), pid.data(), pid.size(), 0) < 0) return cannot("write", lock_path);
  for (const char* name : {"logs", "trace"}) {
    fs::create_directories(request.path / name, problem);
    if (problem) return Error{fmt::format("cannot create {}: {}", (request.path / name).string(), problem.message())};
  }
  return folder;
}

RunFolder::~RunFolder() {
  std::error_code ignored;
  if (lock_ && has_control_) fs::remove(path_ / "control.json", ignored);
}

bool RunFolder::in_place() const {
  struct stat held {
  }, named{};
  if (::fstat(lock_.get(), &held) != 0) return true;
  if (::stat((path_ / "lock").c_str(), &named) != 0) return errno != ENOENT && errno != ENOTDIR;
  return held.st_ino == named.st_ino && held.st_dev == named.st_dev;
}

fs::path RunFolder::log_of(std::uint32_t rank) const { return path_ / "logs" / fmt::format("rank-{}.log", rank); }

Result<void> RunFolder::write(const std::string& name, const std::string& text, unsigned mode) const {
  const fs::path target = path_ / name, beside = path_ / fmt::format(".{}.{}", name, ::getpid());
  {
    const Descriptor file{::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode)};
    if (!file) return cannot("write", beside);
    std::string_view rest = text;
    while (!rest.empty()) {
      const auto written = ::write(file.get(), rest.data(), rest.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return cannot("write", beside);
      rest.remove_prefix(static_cast<std::size_t>(written));
    }
  }
  if (::rename(beside.c_str(), target.c_str()) != 0) return cannot("rename into place", target);
  return {};
}

Result<void> RunFolder::write_control(const std::string& address, const std::string& token) {
  has_control_ = true;
  return write("control.json", nlohmann::json{{"address", address}, {"token", token}, {"pid", ::getpid()}}.dump() + "\n", 0600);
}

Result<ControlFile> read_control(const fs::path& run_folder) {
  const fs::path file = run_folder / "control.json";
  std::ifstream stream(file);
  if (!stream) return Error{fmt::format("cannot read {}: is a run live there?", file.string())};
  try {
    const auto json = nlohmann::json::parse(stream);
    return ControlFile{json.at("address").get<std::string>(), json.at("token").get<std::string>(), json.at("pid").get<std::int64_t>()};
  } catch (const std::exception& problem) {
    return Error{fmt::format("{}: {}", file.string(), problem.what())};
  }
}

}  // namespace troupe
