#include "src/checkpoint/shard_reads.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>

#include "src/checkpoint/state_rows.hpp"

namespace troupe {
namespace {

constexpr std::size_t most_threads = 3;  // one waits for the disk while another hashes and copies

}  // namespace

Result<const ShardHeader*> ShardReads::header_of(std::uint32_t file) {
  if (const auto known = headers_.find(file); known != headers_.end()) return &known->second;
  const auto reader = storage_.open(path(file));
  if (!reader) return reader.error();
  auto header = read_shard_header(**reader, folder_, manifest_.files[file]);
  if (!header) return header.error();
  return &headers_.emplace(file, std::move(*header)).first->second;
}

Result<void> ShardReads::add(std::uint32_t file, std::uint64_t begin, std::span<std::byte> to) {
  const auto header = header_of(file);
  if (!header) return header.error();
  const std::uint64_t data_begin = (*header)->safetensors.data_begin, data_bytes = manifest_.files[file].bytes - data_begin;
  if (begin < data_begin || begin - data_begin > data_bytes || to.size() > data_bytes - (begin - data_begin))
    return Error{path(file) + ": the manifest places bytes beyond the file's end"};
  for (std::uint64_t at = begin - data_begin; !to.empty();) {
    const auto part = to.first(std::min<std::uint64_t>(to.size(), piece_bytes - at % piece_bytes));
    wanted_[{file, at / piece_bytes}].push_back({at % piece_bytes, part});
    at += part.size();
    to = to.subspan(part.size());
  }
  return {};
}

Result<void> ShardReads::add_rows(const StoredTensor& stored, std::int64_t first, std::int64_t count, std::span<std::byte> out) {
  const std::uint64_t row = row_bytes(stored.shape, stored.dtype);
  for (std::int64_t at = first; at < first + count;) {
    const auto part = std::find_if(stored.parts.begin(), stored.parts.end(), [&](const auto& p) { return p.first_row <= at && at < p.first_row + p.rows; });
    if (part == stored.parts.end()) return Error{"row " + std::to_string(at) + " lies in no file of the checkpoint"};
    const std::int64_t rows = std::min(first + count, part->first_row + part->rows) - at;
    const auto to = out.subspan(static_cast<std::uint64_t>(at - first) * row, static_cast<std::uint64_t>(rows) * row);
    if (auto added = add(part->file, part->begin + static_cast<std::uint64_t>(at - part->first_row) * row, to); !added) return added;
    at += rows;
  }
  return {};
}

Result<void> ShardReads::add_all() {
  for (std::uint32_t file = 0; file < manifest_.files.size(); ++file) {
    const auto header = header_of(file);
    if (!header) return header.error();
    for (std::uint64_t piece = 0; piece < (*header)->pieces.size(); ++piece) wanted_[{file, piece}];
  }
  return {};
}

/// What the threads of one `run` share: each takes the next piece until there is none, or one has failed.
class ShardReads::Turn {
 public:
  Turn(ShardReads& reads, std::vector<Piece> pieces) : reads_(reads), pieces_(std::move(pieces)) {}
  void work(const std::function<void(std::uint64_t, std::uint64_t)>& progress = {}) {
    try {
      const PieceBuffer buffer;
      std::map<std::uint32_t, std::unique_ptr<StorageReader>> open;
      for (std::size_t i = next_++; i < pieces_.size() && !failed_; i = next_++)
        if (const auto done = read(pieces_[i], buffer, open); !done) {
          fail(done.error());
        } else {
          ++read_;
          if (progress) progress(read_ * piece_bytes, pieces_.size() * piece_bytes);
        }
    } catch (const std::exception& error) {
      fail(Error{error.what()});
    }
  }
  [[nodiscard]] Result<void> result() const { return problem_ ? Result<void>{*problem_} : Result<void>{}; }

 private:
  Result<void> read(const Piece& piece, const PieceBuffer& buffer, std::map<std::uint32_t, std::unique_ptr<StorageReader>>& open) {
    auto& reader = open[piece.file];
    if (!reader) {
      auto opened = reads_.storage_.open(reads_.path(piece.file));
      if (!opened) return opened.error();
      reader = std::move(*opened);
    }
    const auto& header = reads_.headers_.at(piece.file);
    const std::uint64_t left = reader->size() - header.safetensors.data_begin - piece.number * piece_bytes;
    if (piece.ranges.size() == 1 && piece.ranges.front().to.size() == std::min(piece_bytes, left)) {  // all of it goes to one place: nothing to copy
      const auto read_there = read_piece(*reader, reads_.path(piece.file), header, piece.number, piece.ranges.front().to);
      return read_there ? Result<void>{} : Result<void>{read_there.error()};
    }
    const auto bytes = read_piece(*reader, reads_.path(piece.file), header, piece.number, buffer.bytes());
    if (!bytes) return bytes.error();
    for (const Range& range : piece.ranges) std::memcpy(range.to.data(), bytes->data() + range.begin, range.to.size());
    return {};
  }
  void fail(const Error& error) {
    const std::lock_guard lock(mutex_);
    if (!problem_) problem_ = error;
    failed_ = true;
  }
  ShardReads& reads_;
  std::vector<Piece> pieces_;
  std::atomic<std::size_t> next_ = 0, read_ = 0;
  std::atomic<bool> failed_ = false;
  std::mutex mutex_;
  std::optional<Error> problem_;
};

Result<void> ShardReads::run(const std::function<void(std::uint64_t done, std::uint64_t total)>& progress) {
  std::vector<Piece> pieces;
  pieces.reserve(wanted_.size());
  for (auto& [place, ranges] : wanted_) pieces.push_back({place.first, place.second, std::move(ranges)});
  wanted_.clear();
  const std::size_t threads = std::min(most_threads, pieces.size());
  const std::uint64_t all = pieces.size() * piece_bytes;
  Turn turn(*this, std::move(pieces));
  std::vector<std::jthread> workers;
  for (std::size_t i = 1; i < threads; ++i) workers.emplace_back([&turn] { turn.work(); });
  turn.work(progress);
  workers.clear();
  if (progress && turn.result()) progress(all, all);
  return turn.result();
}

}  // namespace troupe
