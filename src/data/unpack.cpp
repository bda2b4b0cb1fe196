#include "src/data/unpack.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>

namespace troupe {
namespace {

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

/// Takes the bytes of a compressed file in their order.
class Unpacker {
 public:
  virtual ~Unpacker() = default;
  virtual std::string take(std::span<char> packed, const CopySink& sink) = 0;
  /// Between two members or frames: the file may end here.
  [[nodiscard]] virtual bool at_end() const = 0;
};

class Gunzip final : public Unpacker {
 public:
  Gunzip() { inflateInit2(&stream_, 15 + 16); }
  ~Gunzip() override { inflateEnd(&stream_); }
  std::string take(std::span<char> packed, const CopySink& sink) override {
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
  std::string take(std::span<char> packed, const CopySink& sink) override {
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

/// Unpacks one file; says what is wrong with it, or nothing.
std::string unpack(const DataFile& file, Packing packing, PlainCopies& copies, const CopySink& sink) {
  const Descriptor source(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC));
  if (source.value < 0) return std::string("cannot read: ") + std::strerror(errno);
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
    copies.read(static_cast<std::uint64_t>(got));
  }
  return problem.empty() && !unpacker->at_end() ? "is cut off: the compressed data ends in the middle" : problem;
}

}  // namespace

Result<void> unpack_files(std::vector<DataFile>& files, const UnpackOptions& options) {
  std::uint64_t total = 0;
  std::vector<std::pair<DataFile*, Packing>> packed;
  for (DataFile& file : files) {
    const Packing packing = packing_of(file.path);
    if (packing == Packing::none) continue;
    if (options.folder.empty()) return Error{file.path + ": is compressed (" + (packing == Packing::gzip ? "gzip" : "zstd") + "); decompress it first"};
    packed.emplace_back(&file, packing);
    total += file.bytes;
  }
  PlainCopies copies(options, total);
  for (const auto& [file, packing] : packed) {
    const auto fill = [&copies, how = packing, from = file](const CopySink& sink) { return unpack(*from, how, copies, sink); };
    if (auto given = copies.give(*file, "", fill); !given) return given;
  }
  return {};
}

}  // namespace troupe
