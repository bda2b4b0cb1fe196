#include "src/data/plain_copy.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace troupe {
namespace {

namespace fs = std::filesystem;

std::string name_of(const DataFile& file, const std::string& how) {
  const std::string facts = fs::absolute(file.path).string() + "\n" + std::to_string(file.bytes) + " " + std::to_string(file.modified_nanos) + how;
  return "unpacked-" + std::to_string(XXH3_64bits(facts.data(), facts.size()));
}

std::uint64_t bytes_in(const std::string& folder) {
  std::uint64_t bytes = 0;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none))
    if (entry.path().filename().string().starts_with("unpacked-")) bytes += entry.file_size(none);
  return bytes;
}

std::string write_all(int descriptor, std::span<const char> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return std::string("its plain copy cannot be written: ") + std::strerror(written < 0 ? errno : EIO);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

}  // namespace

void PlainCopies::read(std::uint64_t bytes) {
  done_ += bytes;
  if (options_.progress) options_.progress(done_, total_);
}

Result<void> PlainCopies::give(DataFile& file, const std::string& how, const std::function<std::string(const CopySink&)>& fill) {
  const std::string target = (fs::path(options_.folder) / name_of(file, how)).string();
  std::error_code none;
  if (fs::exists(target, none))
    read(file.bytes);
  else if (auto written = write(file, target, fill); !written)
    return written;
  file.content = target;
  file.bytes = fs::file_size(target, none);
  return {};
}

Result<void> PlainCopies::write(const DataFile& file, const std::string& target, const std::function<std::string(const CopySink&)>& fill) const {
  const std::string writing = target + ".part";
  const int copy = ::open(writing.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (copy < 0) return Error{file.path + ": cannot create " + writing + ": " + std::strerror(errno)};
  const std::uint64_t used = bytes_in(options_.folder);
  const std::uint64_t room = options_.most_bytes - std::min(options_.most_bytes, used);
  std::uint64_t out = 0;
  const CopySink sink = [&](std::span<const char> bytes) -> std::string {
    out += bytes.size();
    if (out <= room) return write_all(copy, bytes);
    return "unpacked files would take more than data.unpack_limit_gib = " + std::to_string(options_.most_bytes >> 30U) + " GiB in " + options_.folder +
           "; raise it, or unpack the file yourself";
  };
  std::string problem = fill(sink);
  if (problem.empty() && ::fsync(copy) != 0) problem = std::string("its plain copy cannot be written: ") + std::strerror(errno);
  ::close(copy);
  if (problem.empty() && std::rename(writing.c_str(), target.c_str()) != 0) problem = "cannot rename " + writing + ": " + std::strerror(errno);
  if (problem.empty()) return {};
  ::unlink(writing.c_str());
  return Error{file.path + ": " + problem};
}

}  // namespace troupe
