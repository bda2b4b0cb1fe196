#include "src/metrics/tensorboard_file.hpp"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "src/base/host_name.hpp"
#include "src/metrics/crc32c.hpp"

namespace troupe {
namespace {

/// Fields of tensorboard's event.proto and summary.proto.
namespace field {
constexpr std::uint32_t wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7;  // Event
constexpr std::uint32_t value = 1;                                                                // Summary
constexpr std::uint32_t tag = 1, simple_value = 2;                                                // Summary.Value
constexpr std::uint32_t status = 1;                                                               // SessionLog; 1: START
}  // namespace field

template <class T>
void put_fixed(std::string& out, T value) {
  static_assert(std::endian::native == std::endian::little);
  std::array<char, sizeof(T)> bytes{};
  std::memcpy(bytes.data(), &value, sizeof(T));
  out.append(bytes.data(), bytes.size());
}

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7U) out += static_cast<char>((value & 0x7fU) | 0x80U);
  out += static_cast<char>(value);
}

enum class Wire : std::uint32_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };
void put_key(std::string& out, std::uint32_t number, Wire wire) { put_varint(out, (number << 3U) | static_cast<std::uint32_t>(wire)); }

void put_bytes(std::string& out, std::uint32_t number, std::string_view bytes) {
  put_key(out, number, Wire::bytes);
  put_varint(out, bytes.size());
  out += bytes;
}

std::string event_head(double wall_time, std::uint64_t step) {
  std::string event;
  put_key(event, field::wall_time, Wire::fixed64);
  put_fixed(event, wall_time);
  if (step > 0) {
    put_key(event, field::step, Wire::varint);
    put_varint(event, step);
  }
  return event;
}

std::uint32_t masked_crc(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return ((crc >> 15U) | (crc << 17U)) + 0xa282ead8U;
}

std::string record_of(std::string_view event) {
  std::string record;
  put_fixed(record, static_cast<std::uint64_t>(event.size()));
  put_fixed(record, masked_crc(record));
  record += event;
  put_fixed(record, masked_crc(event));
  return record;
}

}  // namespace

Result<std::unique_ptr<TensorBoardFile>> TensorBoardFile::open(const std::filesystem::path& folder, Step first, double wall_time) {
  std::error_code problem;
  std::filesystem::create_directories(folder, problem);
  if (problem) return Error{folder.string() + ": " + problem.message()};
  for (int number = 0; number < 1000; ++number) {
    const auto path = folder / fmt::format("events.out.tfevents.{:010}.{}.{}.{}", static_cast<std::int64_t>(wall_time), host_name(), ::getpid(), number);
    const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
    if (descriptor < 0 && errno == EEXIST) continue;
    if (descriptor < 0) return Error{path.string() + ": " + std::strerror(errno)};
    std::unique_ptr<TensorBoardFile> file{new TensorBoardFile(descriptor, path)};
    std::string version = event_head(wall_time, 0);
    put_bytes(version, field::file_version, "brain.Event:2");
    std::string session = event_head(wall_time, first.value()), start;
    put_key(start, field::status, Wire::varint);
    put_varint(start, 1);
    put_bytes(session, field::session_log, start);
    for (const std::string& event : {version, session})
      if (auto written = file->append(event); !written) return written.error();
    return file;
  }
  return Error{folder.string() + ": no free name for an event file"};
}

TensorBoardFile::~TensorBoardFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<void> TensorBoardFile::append(const std::string& event) {
  const std::string record = record_of(event);
  const off_t before = ::lseek(descriptor_, 0, SEEK_END);
  const auto written = ::write(descriptor_, record.data(), record.size());
  if (written == static_cast<ssize_t>(record.size())) return {};
  const std::string why = written < 0 ? std::strerror(errno) : "no space left";
  [[maybe_unused]] const int cut = ::ftruncate(descriptor_, before);  // a torn record would hide all that follow
  return Error{path_.string() + ": " + why + "; the numbers of this step are missing in it"};
}

Result<void> TensorBoardFile::write(Step step, double wall_time, std::span<const Scalar> scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    std::string value;
    put_bytes(value, field::tag, scalar.tag);
    put_key(value, field::simple_value, Wire::fixed32);
    put_fixed(value, static_cast<float>(scalar.value));
    put_bytes(summary, field::value, value);
  }
  std::string event = event_head(wall_time, step.value());
  put_bytes(event, field::summary, summary);
  return append(event);
}

Result<void> TensorBoardFile::close() {
  if (descriptor_ >= 0 && ::fsync(descriptor_) != 0) return Error{path_.string() + ": " + std::strerror(errno)};
  return {};
}

std::filesystem::path tensorboard_folder(const std::filesystem::path& parent, bool resumes, double wall_time) {
  std::filesystem::path newest;
  std::error_code none;
  const auto is_ours = [](const std::string& name) {
    return name.size() == 13 && name[8] == '-' && std::all_of(name.begin(), name.end(), [](unsigned char c) { return c == '-' || std::isdigit(c) != 0; });
  };
  if (resumes) {
    for (const auto& entry : std::filesystem::directory_iterator(parent, none))
      if (is_ours(entry.path().filename().string()) && entry.path() > newest) newest = entry.path();
  }
  return newest.empty() ? parent / fmt::format("{:%Y%m%d-%H%M}", fmt::localtime(static_cast<std::time_t>(wall_time))) : newest;
}

}  // namespace troupe
