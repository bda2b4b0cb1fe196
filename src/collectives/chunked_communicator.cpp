#include "src/collectives/chunked_communicator.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/collectives/piece_cursor.hpp"
#include "src/collectives/reduce.hpp"

namespace troupe {
namespace {

/// An all_reduce of up to this many bytes is summed whole by every member: one exchange instead of two.
constexpr std::uint64_t small_bytes = 32 * 1024;

const float* floats(std::span<const std::byte> chunk, std::uint64_t index) noexcept { return reinterpret_cast<const float*>(chunk.data()) + index; }

void combine(std::span<const float* const> sources, std::span<float> to, Reduction reduction) noexcept {
  if (reduction == Reduction::max)
    max_in_order(sources, to.data(), to.size());
  else
    sum_in_order(sources, to.data(), to.size(), false);
}
void combine(std::span<const double* const> sources, std::span<double> to, Reduction reduction) noexcept {
  if (reduction == Reduction::max)
    max_in_order(sources, to.data(), to.size());
  else
    sum_in_order(sources, to.data(), to.size());
}

CallSignature plain_signature(CollectiveKind kind, std::uint64_t bytes) noexcept {
  return {.kind = kind, .dtype = static_cast<std::uint32_t>(DType::u8), .pieces = 1, .bytes = bytes};
}

}  // namespace

ChunkedCommunicator::ChunkedCommunicator(std::unique_ptr<ChunkExchange> exchange)
    : exchange_(std::move(exchange)), rank_(exchange_->rank()), size_(exchange_->size()), collected_(size_) {}

/// Members start at different peers, so that they do not all read the same one.
template <class Visit>
void ChunkedCommunicator::for_each_peer(Visit visit) const {
  for (std::uint32_t step = 1; step < size_; ++step) visit((rank_ + step) % size_);
}

/// write(index, bytes, chunk) fills a chunk, read(index, bytes, round) uses the others' of the same index; both go through the call's
/// bytes in order. The first chunk travels with the signature; no other is written, and nothing is read, before the calls are compared.
template <class Write, class Read>
void ChunkedCommunicator::run(const Rounds& rounds, Write write, Read read) {
  begin(rounds.signature);
  const std::uint64_t count = rounds.bytes / rounds.grain + (rounds.bytes % rounds.grain != 0), first = round_;
  round_ += count;
  const auto bytes_of = [&](std::uint64_t index) { return std::min(rounds.grain, rounds.bytes - index * rounds.grain); };
  std::uint64_t written = 0;
  const auto write_next = [&] {
    const std::uint64_t index = written++;
    const auto chunk = exchange_->outgoing(first + index);
    if (rounds.sends) write(index, bytes_of(index), chunk);
    exchange_->send(first + index, rounds.kind, rounds.sends ? bytes_of(index) : 0);
  };
  if (count > 0) write_next();
  compare_calls();
  for (std::uint64_t index = 0; index < count; ++index) {
    while (written < count && written < index + exchange_->chunks()) write_next();
    read(index, bytes_of(index), first + index);
    exchange_->release(first + index);
  }
}

void ChunkedCommunicator::begin(CallSignature signature) {
  signature.call = ++call_;
  exchange_->begin(signature);
}

void ChunkedCommunicator::compare_calls() {
  if (const std::string difference = describe_mismatch(exchange_->calls()); !difference.empty()) exchange_->fail(difference);
}

/// A call that moves nothing itself.
void ChunkedCommunicator::agree(const CallSignature& signature) {
  begin(signature);
  compare_calls();
}

const std::vector<std::span<const std::byte>>& ChunkedCommunicator::collect(std::uint64_t round, ChunkKind kind) {
  for_each_peer([&](std::uint32_t peer) { collected_[peer] = exchange_->incoming(peer, round, kind); });
  return collected_;
}

void ChunkedCommunicator::all_gather(Stream&, std::span<const GatherPiece> pieces) {
  const CallSignature signature = signature_of(pieces);
  PieceCursor writing, reading;
  const auto bytes_of = [&](std::size_t piece) { return std::uint64_t{pieces[piece].bytes}; };
  run(
      {signature, ChunkKind::same, signature.bytes, exchange_->chunk_bytes()},
      [&](std::uint64_t, std::uint64_t bytes, std::span<std::byte> chunk) {
        writing.walk(pieces.size(), bytes_of, bytes, [&](std::size_t piece, std::uint64_t offset, std::uint64_t count, std::uint64_t at) {
          std::memcpy(chunk.data() + at, pieces[piece].data + rank_ * pieces[piece].bytes + offset, count);
        });
      },
      [&](std::uint64_t, std::uint64_t bytes, std::uint64_t round) {
        const auto& chunks = collect(round, ChunkKind::same);
        reading.walk(pieces.size(), bytes_of, bytes, [&](std::size_t piece, std::uint64_t offset, std::uint64_t count, std::uint64_t at) {
          for_each_peer([&](std::uint32_t peer) { std::memcpy(pieces[piece].data + peer * pieces[piece].bytes + offset, chunks[peer].data() + at, count); });
        });
      });
}

void ChunkedCommunicator::reduce_scatter(Stream&, std::span<const ReducePiece> pieces) {
  const CallSignature signature = signature_of(pieces);
  PieceCursor writing, reading;
  const auto count_of = [&](std::size_t piece) { return std::uint64_t{pieces[piece].count}; };
  std::vector<const float*> sources(size_);
  run(
      {signature, ChunkKind::parts, signature.bytes, exchange_->part_bytes()},
      [&](std::uint64_t, std::uint64_t bytes, std::span<std::byte> chunk) {
        writing.walk(pieces.size(), count_of, bytes / sizeof(float), [&](std::size_t piece, std::uint64_t offset, std::uint64_t count, std::uint64_t at) {
          for_each_peer([&](std::uint32_t peer) {
            std::memcpy(chunk.data() + exchange_->part_offset(rank_, peer) + at * sizeof(float), pieces[piece].input + peer * pieces[piece].count + offset,
                        count * sizeof(float));
          });
        });
      },
      [&](std::uint64_t, std::uint64_t bytes, std::uint64_t round) {
        const auto& chunks = collect(round, ChunkKind::parts);
        reading.walk(pieces.size(), count_of, bytes / sizeof(float), [&](std::size_t piece, std::uint64_t offset, std::uint64_t count, std::uint64_t at) {
          for_each_peer([&](std::uint32_t peer) { sources[peer] = floats(chunks[peer], at); });
          sources[rank_] = pieces[piece].input + rank_ * pieces[piece].count + offset;
          sum_in_order(sources, pieces[piece].output + offset, count, pieces[piece].accumulate);
        });
      });
}

void ChunkedCommunicator::all_reduce(Stream& stream, TensorView values, Reduction reduction) {
  const CallSignature signature{.kind = CollectiveKind::all_reduce,
                                .dtype = static_cast<std::uint32_t>(values.dtype),
                                .detail = static_cast<std::uint32_t>(reduction),
                                .pieces = 1,
                                .bytes = values.bytes()};
  if (values.dtype == DType::f64) return reduce_whole<double>(signature, {values.as<double>(), signature.bytes / sizeof(double)}, reduction);
  if (values.dtype != DType::f32) {
    agree(signature);  // a member that asks for another type is the better error
    exchange_->fail("all_reduce takes float32 and float64, not " + std::string(name_of(values.dtype)));
  }
  if (reduction == Reduction::sum && size_ > 2 && signature.bytes > small_bytes) return sum_by_parts(stream, signature, values);
  reduce_whole<float>(signature, {values.as<float>(), signature.bytes / sizeof(float)}, reduction);
}

/// All members read everything and combine it themselves.
template <class T>
void ChunkedCommunicator::reduce_whole(const CallSignature& signature, std::span<T> values, Reduction reduction) {
  const std::uint64_t grain = exchange_->chunk_bytes();
  const auto piece = [&](std::uint64_t index, std::uint64_t bytes) { return values.subspan(index * grain / sizeof(T), bytes / sizeof(T)); };
  std::vector<const T*> sources(size_);
  run(
      {signature, ChunkKind::same, signature.bytes, grain},
      [&](std::uint64_t index, std::uint64_t bytes, std::span<std::byte> chunk) { std::memcpy(chunk.data(), piece(index, bytes).data(), bytes); },
      [&](std::uint64_t index, std::uint64_t bytes, std::uint64_t round) {
        const auto to = piece(index, bytes);
        const auto& chunks = collect(round, ChunkKind::same);
        for_each_peer([&](std::uint32_t peer) { sources[peer] = reinterpret_cast<const T*>(chunks[peer].data()); });
        sources[rank_] = to.data();
        combine(std::span<const T* const>(sources), to, reduction);
      });
}

/// Each member sums its part, then all gather the parts; what does not divide is summed by all.
void ChunkedCommunicator::sum_by_parts(Stream& stream, const CallSignature& signature, TensorView values) {
  agree(signature);
  float* const data = values.as<float>();
  const std::uint64_t total = signature.bytes / sizeof(float), count = total / size_;
  const ReducePiece sum{data, data + rank_ * count, count};
  reduce_scatter(stream, {&sum, 1});
  const GatherPiece gather{reinterpret_cast<std::byte*>(data), count * sizeof(float)};
  all_gather(stream, {&gather, 1});
  CallSignature rest = signature;
  rest.bytes = (total - count * size_) * sizeof(float);
  if (rest.bytes > 0) reduce_whole<float>(rest, {data + count * size_, total - count * size_}, Reduction::sum);
}

void ChunkedCommunicator::broadcast(Stream&, std::span<std::byte> data, std::uint32_t root) {
  CallSignature signature = plain_signature(CollectiveKind::broadcast, data.size());
  signature.detail = root;
  if (root >= size_) exchange_->fail("broadcast from rank " + std::to_string(root) + " of " + std::to_string(size_) + " members");
  const std::uint64_t grain = exchange_->chunk_bytes();
  run(
      {signature, ChunkKind::same, data.size(), grain, rank_ == root},
      [&](std::uint64_t index, std::uint64_t bytes, std::span<std::byte> chunk) { std::memcpy(chunk.data(), data.data() + index * grain, bytes); },
      [&](std::uint64_t index, std::uint64_t bytes, std::uint64_t round) {
        if (rank_ != root) std::memcpy(data.data() + index * grain, exchange_->incoming(root, round, ChunkKind::same).data(), bytes);
      });
}

void ChunkedCommunicator::all_to_all(Stream&, std::span<const std::byte> input, std::span<std::byte> output) {
  if (input.size() != output.size() || input.size() % size_ != 0)
    exchange_->fail("all_to_all needs input and output of equal size, a multiple of the " + std::to_string(size_) + " members; got " +
                    std::to_string(input.size()) + " and " + std::to_string(output.size()) + " bytes");
  CallSignature signature = plain_signature(CollectiveKind::all_to_all, input.size());
  signature.pieces = size_;
  const std::uint64_t bytes_each = input.size() / size_, grain = exchange_->part_bytes();
  run(
      {signature, ChunkKind::parts, bytes_each, grain},
      [&](std::uint64_t index, std::uint64_t bytes, std::span<std::byte> chunk) {
        for_each_peer([&](std::uint32_t peer) {
          std::memcpy(chunk.data() + exchange_->part_offset(rank_, peer), input.data() + peer * bytes_each + index * grain, bytes);
        });
      },
      [&](std::uint64_t index, std::uint64_t bytes, std::uint64_t round) {
        const auto& chunks = collect(round, ChunkKind::parts);
        for_each_peer([&](std::uint32_t peer) { std::memcpy(output.data() + peer * bytes_each + index * grain, chunks[peer].data(), bytes); });
      });
  if (bytes_each > 0) std::memcpy(output.data() + rank_ * bytes_each, input.data() + rank_ * bytes_each, bytes_each);
}

}  // namespace troupe
