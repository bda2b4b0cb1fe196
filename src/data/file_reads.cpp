#include "src/data/file_reads.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

namespace troupe {
namespace {

constexpr std::size_t most_open_files = 16;

}  // namespace

FileReads::FileReads(std::span<const DataFile> files, ReadFile read_file) : files_(files), read_file_(std::move(read_file)) {
  if (read_file_) return;
  read_file_ = [](std::uint32_t, int descriptor, std::span<char> out, std::uint64_t offset) {
    return pread(descriptor, out.data(), out.size(), static_cast<off_t>(offset));
  };
}

FileReads::~FileReads() {
  for (const auto& [file, descriptor] : open_) close(descriptor);
}

/// -1 and errno where it cannot be opened.
int FileReads::open_file(std::uint32_t file) {
  const auto known = std::find_if(open_.begin(), open_.end(), [&](const auto& entry) { return entry.first == file; });
  if (known != open_.end()) {
    std::rotate(known, known + 1, open_.end());
    return open_.back().second;
  }
  const int descriptor = open(files_[file].content.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return descriptor;
  if (open_.size() == most_open_files) {
    close(open_.front().second);
    open_.erase(open_.begin());
  }
  open_.emplace_back(file, descriptor);
  return descriptor;
}

void FileReads::fill(std::uint32_t file, int descriptor, std::uint64_t offset, std::span<char> out) {
  while (!out.empty()) {
    const ssize_t got = read_file_(file, descriptor, out, offset);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      throw std::runtime_error(files_[file].path + ": cannot read at byte " + std::to_string(offset) + ": " +
                               (got < 0 ? std::strerror(errno) : "the file is shorter than when it was indexed"));
    }
    offset += static_cast<std::uint64_t>(got);
    out = out.subspan(static_cast<std::size_t>(got));
  }
}

void FileReads::read(std::uint32_t file, std::uint64_t offset, std::span<char> out) {
  const int descriptor = open_file(file);
  if (descriptor < 0) throw std::runtime_error("cannot read " + files_[file].path + ": " + std::strerror(errno));
  fill(file, descriptor, offset, out);
}

void FileReads::probe(std::uint32_t file, std::uint64_t last_byte) {
  const int descriptor = open_file(file);
  if (descriptor < 0 && errno == ENOENT) return;
  if (descriptor < 0) throw std::runtime_error("cannot read " + files_[file].path + ": " + std::strerror(errno));
  char byte = 0;
  fill(file, descriptor, last_byte, {&byte, 1});
}

}  // namespace troupe
