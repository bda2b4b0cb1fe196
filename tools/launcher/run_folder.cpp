#include "tools/launcher/run_folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

namespace troupe {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 7> own_names{"config.toml", "metrics.jsonl", "journal.jsonl", "control.json", "logs", "trace", "checkpoint"};

RunFolder::Content look_at(const fs::path& path, bool resumable) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(path)) names.insert(entry.path().filename().string());
  names.erase("lock");
  if (names.empty()) return RunFolder::Content::fresh;
  if (resumable) return RunFolder::Content::resumable;
  for (const char* name : own_names) names.erase(name);
  std::error_code ignored;
  const auto steps = fs::file_size(path / "metrics.jsonl", ignored);
  const bool stepped = !ignored && steps > 0;
  const bool own = fs::exists(path / "config.toml", ignored) || fs::exists(path / "logs", ignored);
  return names.empty() && own && !stepped && !fs::exists(path / "checkpoint", ignored) ? RunFolder::Content::fresh : RunFolder::Content::foreign;
}

std::string holder_of(int lock) {
  std::array<char, 32> text{};
  const auto got = ::pread(lock, text.data(), text.size() - 1, 0);
  std::string pid(text.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
  while (!pid.empty() && pid.back() == '\n') pid.pop_back();
  return pid.empty() ? "unknown" : pid;
}

Error cannot(const std::string& what, const fs::path& path) { return Error{fmt::format("cannot {} {}: {} (job.dump_folder)", what, path.string(), std::strerror(errno))}; }

}  // namespace

Result<RunFolder> RunFolder::open(const Request& request) {
  std::error_code problem;
  fs::create_directories(request.path, problem);
  if (problem) return Error{fmt::format("cannot create the run's folder {}: {} (job.dump_folder)", request.path.string(), problem.message())};
  const auto refuse_foreign = [&] {
    return Error{fmt::format("the folder {} is not empty and {}: choose another job.dump_folder, or give --overwrite to delete what an earlier run left there", request.path.string(),
                             request.why_not.empty() ? "holds no sealed checkpoint to resume from" : request.why_not)};
  };
  const fs::path lock_path = request.path / "lock";
  if (!fs::exists(lock_path, problem) && !request.overwrite && look_at(request.path, request.resumable) == Content::foreign) return refuse_foreign();  // leave no trace in it
  Descriptor lock{::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)};
  if (!lock) return cannot("write into the run's folder: open", lock_path);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0)
    return Error{fmt::format("the folder {} belongs to a live run with PID {}: wait for it, stop it (kill {}), or choose another job.dump_folder", request.path.string(), holder_of(lock.get()),
                             holder_of(lock.get()))};
  RunFolder folder(request.path, std::move(lock));
  folder.content_ = look_at(request.path, request.resumable);
  if (folder.content_ == Content::foreign && !request.overwrite) return refuse_foreign();
  if (request.overwrite || folder.content_ == Content::fresh) {
    for (const char* name : own_names) fs::remove_all(request.path / name, problem);
    folder.content_ = Content::fresh;
  }
  for (const char* name : {"logs", "trace"}) {
    fs::create_directories(request.path / name, problem);
    if (problem) return Error{fmt::format("cannot create {}: {}", (request.path / name).string(), problem.message())};
  }
  const std::string pid = fmt::format("{}\n", ::getpid());
  if (::ftruncate(folder.lock_.get(), 0) != 0 || ::pwrite(folder.lock_.get(), pid.data(), pid.size(), 0) < 0) return cannot("write", lock_path);
  return folder;
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

Result<void> RunFolder::write_control(const std::string& address, const std::string& token) const {
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
