#include "src/data/unpack.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>
#include <zlib.h>
#include <zstd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

namespace troupe {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t piece_bytes = std::size_t{1} << 20U;

enum class Packing { none, gzip, zstd };

struct Descriptor {
  explicit Descriptor(int opened) : value(opened) {}
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int value;
};

/// Where unpacked bytes go; the text of what went wrong, or nothing.
using Sink = std::function<std::string(std::span<const char>)>;

/// Takes the bytes of a compressed file in their order.
class Unpacker {
 public:
  virtual ~Unpacker() = default;
  virtual std::string take(std::span<char> packed, const Sink& sink) = 0;
  /// Between two members or frames: the file may end here.
  [[nodiscard]] virtual bool at_end() const = 0;
};

class Gunzip final : public Unpacker {
 public:
  Gunzip() { inflateInit2(&stream_, 15 + 16); }
  ~Gunzip() override { inflateEnd(&stream_); }
  std::string take(std::span<char> packed, const Sink& sink) override {
    stream_.next_in = reinterpret_cast<Bytef*>(packed.data());
    stream_.avail_in = static_cast<uInt>(packed.size());
    while (stream_.avail_in > 0) {
      if (at_end_) {
        if (*stream_.next_in == 0) {  // padding after the last member, as tar and tapes leave it
          ++stream_.next_in;
          --stream_.avail_in;
          continue;
        }
        inflateReset(&stream_);
        at_end_ = false;
      }
      do {
        stream_.next_out = reinterpret_cast<Bytef*>(out_.data());
        stream_.avail_out = static_cast<uInt>(out_.size());
        const int code = inflate(&stream_, Z_NO_FLUSH);
        if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
          return std::string("damaged gzip data: ") + (stream_.msg ? stream_.msg : "no reason given");
        at_end_ = code == Z_STREAM_END;
        if (auto wrong = sink(std::span(out_).first(out_.size() - stream_.avail_out)); !wrong.empty()) return wrong;
      } while (!at_end_ && stream_.avail_out == 0);
    }
    return {};
  }
  [[nodiscard]] bool at_end() const override { return at_end_; }

 private:
  z_stream stream_{};
  bool at_end_ = true;
  std::vector<char> out_ = std::vector<char>(piece_bytes);
};

class Unzstd final : public Unpacker {
 public:
  std::string take(std::span<char> packed, const Sink& sink) override {
    ZSTD_inBuffer in{packed.data(), packed.size(), 0};
    bool full = false;  // then there may be more to come out
    while (in.pos < in.size || full) {
      ZSTD_outBuffer out{out_.data(), out_.size(), 0};
      left_ = ZSTD_decompressStream(stream_.get(), &out, &in);
      if (ZSTD_isError(left_) != 0) return std::string("damaged zstd data: ") + ZSTD_getErrorName(left_);
      if (auto wrong = sink(std::span(out_).first(out.pos)); !wrong.empty()) return wrong;
      full = out.pos == out.size && left_ != 0;
    }
    return {};
  }
  [[nodiscard]] bool at_end() const override { return left_ == 0; }

 private:
  std::unique_ptr<ZSTD_DStream, decltype(&ZSTD_freeDStream)> stream_{ZSTD_createDStream(), &ZSTD_freeDStream};
  std::size_t left_ = 0;
  std::vector<char> out_ = std::vector<char>(piece_bytes);
};

Packing packing_of(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<unsigned char, 4> first{};
  if (file.value < 0 || ::pread(file.value, first.data(), first.size(), 0) < static_cast<ssize_t>(first.size())) return Packing::none;
  if (first[0] == 0x1f && first[1] == 0x8b) return Packing::gzip;
  const bool frame = first == std::array<unsigned char, 4>{0x28, 0xb5, 0x2f, 0xfd};
  const bool skippable = (first[0] & 0xf0U) == 0x50 && first[1] == 0x2a && first[2] == 0x4d && first[3] == 0x18;
  return frame || skippable ? Packing::zstd : Packing::none;
}

std::string name_of(const DataFile& file) {
  const std::string facts = fs::absolute(file.path).string() + "\n" + std::to_string(file.bytes) + " " + std::to_string(file.modified_nanos);
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

/// Unpacks one file to `target`, a name that appears when all of it is there.
Result<void> unpack(const DataFile& file, Packing packing, const std::string& target, std::uint64_t room, const UnpackOptions& options,
                    const std::function<void(std::uint64_t)>& read) {
  const auto wrong = [&](const std::string& text) { return Error{file.path + ": " + text}; };
  const Descriptor source(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC));
  if (source.value < 0) return wrong(std::string("cannot read: ") + std::strerror(errno));
  const std::string writing = target + ".part";
  const Descriptor copy(::open(writing.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (copy.value < 0) return wrong("cannot create " + writing + ": " + std::strerror(errno));
  std::uint64_t out = 0;
  const Sink sink = [&](std::span<const char> bytes) -> std::string {
    out += bytes.size();
    if (out > room)
      return "unpacked files would take more than data.unpack_limit_gib = " + std::to_string(options.most_bytes >> 30U) + " GiB in " + options.folder +
             "; raise it, or unpack the file yourself";
    return write_all(copy.value, bytes);
  };
  std::unique_ptr<Unpacker> unpacker;
  if (packing == Packing::gzip)
    unpacker = std::make_unique<Gunzip>();
  else
    unpacker = std::make_unique<Unzstd>();
  std::vector<char> piece(piece_bytes);
  std::string problem;
  for (std::uint64_t at = 0; problem.empty();) {
    const ssize_t got = ::pread(source.value, piece.data(), piece.size(), static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) problem = "cannot read at byte " + std::to_string(at) + ": " + std::strerror(errno);
    if (got <= 0) break;
    problem = unpacker->take(std::span(piece).first(static_cast<std::size_t>(got)), sink);
    at += static_cast<std::uint64_t>(got);
    read(static_cast<std::uint64_t>(got));
  }
  if (problem.empty() && !unpacker->at_end()) problem = "is cut off: the compressed data ends in the middle";
  if (problem.empty() && ::fsync(copy.value) != 0) problem = std::string("its plain copy cannot be written: ") + std::strerror(errno);
  if (problem.empty() && std::rename(writing.c_str(), target.c_str()) != 0) problem = "cannot rename " + writing + ": " + std::strerror(errno);
  if (problem.empty()) return {};
  ::unlink(writing.c_str());
  return wrong(problem);
}

}  // namespace

Result<void> unpack_files(std::vector<DataFile>& files, const UnpackOptions& options) {
  std::uint64_t total = 0, done = 0;
  std::vector<std::pair<DataFile*, Packing>> packed;
  for (DataFile& file : files) {
    const Packing packing = packing_of(file.path);
    if (packing == Packing::none) continue;
    if (options.folder.empty()) return Error{file.path + ": is compressed (" + (packing == Packing::gzip ? "gzip" : "zstd") + "); decompress it first"};
    packed.emplace_back(&file, packing);
    total += file.bytes;
  }
  const auto read = [&](std::uint64_t bytes) {
    done += bytes;
    if (options.progress) options.progress(done, total);
  };
  for (const auto& [file, packing] : packed) {
    const std::string target = (fs::path(options.folder) / name_of(*file)).string();
    std::error_code none;
    if (fs::exists(target, none)) {
      read(file->bytes);
    } else {
      const std::uint64_t used = bytes_in(options.folder);
      if (auto unpacked = unpack(*file, packing, target, options.most_bytes - std::min(options.most_bytes, used), options, read); !unpacked) return unpacked;
    }
    file->content = target;
    file->bytes = fs::file_size(target, none);
  }
  return {};
}

}  // namespace troupe
