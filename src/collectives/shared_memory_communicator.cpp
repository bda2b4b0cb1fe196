#include "src/collectives/shared_memory_communicator.hpp"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "src/collectives/call_signature.hpp"
#include "src/collectives/piece_cursor.hpp"
#include "src/collectives/reduce.hpp"
#include "src/collectives/shared_region.hpp"

namespace troupe {
namespace {

constexpr std::uint64_t line = 64;
/// An all_reduce of up to this many bytes is summed whole by every member: one exchange instead of two.
constexpr std::uint64_t small_bytes = 32 * 1024;

class SharedMemoryCommunicator final : public Communicator {
 public:
  SharedMemoryCommunicator(const SharedMemoryOptions& options, const Clock& clock, std::shared_ptr<SharedRegion> region)
      : name_(options.tag), rank_(options.rank), size_(options.size), timeout_(options.timeout), clock_(clock), region_(std::move(region)) {}

  [[nodiscard]] std::uint32_t rank() const noexcept override { return rank_; }
  [[nodiscard]] std::uint32_t size() const noexcept override { return size_; }

  void all_gather(Stream&, std::span<const GatherPiece> pieces) override {
    const CallSignature signature = signature_of(pieces);
    const std::uint64_t chunk = region_->shape().chunk_bytes;
    PieceCursor writing, reading;
    const auto bytes_of = [&](std::size_t piece) { return std::uint64_t{pieces[piece].bytes}; };
    exchange(
        signature, rounds(signature.bytes, chunk),
        [&](std::span<std::byte> slot) {
          writing.walk(pieces.size(), bytes_of, chunk, [&](std::size_t piece, std::uint64_t offset, std::uint64_t count, std::uint64_t at) {
            std::memcpy(slot.data() + at, pieces[piece].data + rank_ * pieces[piece].bytes + offset, count);
          });
        },
        [&](std::uint64_t round) {
          reading.walk(pieces.size(), bytes_of, chunk, [&](std::size_t piece, std::uint64_t offset, std::uint64_t count, std::uint64_t at) {
            for_each_peer([&](std::uint32_t peer) {
              std::memcpy(pieces[piece].data + peer * pieces[piece].bytes + offset, region_->slot(peer, round).data() + at, count);
            });
          });
        });
  }

  void reduce_scatter(Stream&, std::span<const ReducePiece> pieces) override {
    const CallSignature signature = signature_of(pieces);
    const std::uint64_t part = part_bytes();
    PieceCursor writing, reading;
    const auto count_of = [&](std::size_t piece) { return std::uint64_t{pieces[piece].count}; };
    std::vector<const float*> sources(size_);
    exchange(
        signature, rounds(signature.bytes, part),
        [&](std::span<std::byte> slot) {
          writing.walk(pieces.size(), count_of, part / sizeof(float), [&](std::size_t piece, std::uint64_t offset, std::uint64_t count, std::uint64_t at) {
            for_each_peer([&](std::uint32_t peer) {
              std::memcpy(slot.data() + part_of(rank_, peer) + at * sizeof(float), pieces[piece].input + peer * pieces[piece].count + offset, count * sizeof(float));
            });
          });
        },
        [&](std::uint64_t round) {
          reading.walk(pieces.size(), count_of, part / sizeof(float), [&](std::size_t piece, std::uint64_t offset, std::uint64_t count, std::uint64_t at) {
            for_each_peer([&](std::uint32_t peer) { sources[peer] = floats(region_->slot(peer, round), part_of(peer, rank_)) + at; });
            sources[rank_] = pieces[piece].input + rank_ * pieces[piece].count + offset;
            sum_in_order(sources, pieces[piece].output + offset, count, pieces[piece].accumulate);
          });
        });
  }

  void all_reduce(Stream& stream, TensorView values, Reduction reduction) override {
    const CallSignature signature{.kind = CollectiveKind::all_reduce,
                                  .dtype = static_cast<std::uint32_t>(values.dtype),
                                  .detail = static_cast<std::uint32_t>(reduction),
                                  .pieces = 1,
                                  .bytes = values.bytes()};
    if (values.dtype == DType::f64) reduce_all<double>(signature, {values.as<double>(), signature.bytes / sizeof(double)}, reduction);
    else if (values.dtype != DType::f32) refuse_type(signature, values.dtype);
    else if (reduction == Reduction::sum && size_ > 2 && signature.bytes > small_bytes) sum_by_parts(stream, signature, values);
    else reduce_all<float>(signature, {values.as<float>(), signature.bytes / sizeof(float)}, reduction);
  }

  void broadcast(Stream&, std::span<std::byte> data, std::uint32_t root) override {
    const CallSignature signature{
        .kind = CollectiveKind::broadcast, .dtype = static_cast<std::uint32_t>(DType::u8), .detail = root, .pieces = 1, .bytes = data.size()};
    const std::uint64_t chunk = region_->shape().chunk_bytes;
    const auto piece = [&](std::uint64_t index) { return data.subspan(index * chunk, std::min<std::uint64_t>(chunk, data.size() - index * chunk)); };
    std::uint64_t written = 0, read = 0;
    exchange(
        signature, rounds(data.size(), chunk),
        [&](std::span<std::byte> slot) {
          const auto from = piece(written++);
          if (rank_ == root) std::memcpy(slot.data(), from.data(), from.size());
        },
        [&](std::uint64_t round) {
          const auto to = piece(read++);
          if (rank_ != root) std::memcpy(to.data(), region_->slot(root, round).data(), to.size());
        });
  }

  void all_to_all(Stream&, std::span<const std::byte> input, std::span<std::byte> output) override {
    const CallSignature signature{.kind = CollectiveKind::all_to_all, .dtype = static_cast<std::uint32_t>(DType::u8), .pieces = size_, .bytes = input.size()};
    if (input.size() != output.size() || input.size() % size_ != 0)
      fail("all_to_all needs input and output of equal size, a multiple of the " + std::to_string(size_) + " members; got " + std::to_string(input.size()) +
           " and " + std::to_string(output.size()) + " bytes");
    const std::uint64_t bytes = input.size() / size_, part = part_bytes();
    std::uint64_t written = 0, read = 0;
    exchange(
        signature, rounds(bytes, part),
        [&](std::span<std::byte> slot) {
          const std::uint64_t first = part * written++, count = std::min(part, bytes - first);
          for_each_peer([&](std::uint32_t peer) { std::memcpy(slot.data() + part_of(rank_, peer), input.data() + peer * bytes + first, count); });
        },
        [&](std::uint64_t round) {
          const std::uint64_t first = part * read++, count = std::min(part, bytes - first);
          for_each_peer([&](std::uint32_t peer) {
            std::memcpy(output.data() + peer * bytes + first, region_->slot(peer, round).data() + part_of(peer, rank_), count);
          });
        });
    if (bytes > 0) std::memcpy(output.data() + rank_ * bytes, input.data() + rank_ * bytes, bytes);
  }

  void abort(const std::string& cause) noexcept override { region_->abort(cause); }

  /// The last step of making one: returns when all members have mapped the region.
  void meet() {
    region_->advance(rank_, &SharedRegion::Member::joined, 1);
    for_each_peer([&](std::uint32_t peer) { await(peer, &SharedRegion::Member::joined, 1, "join the communicator"); });
  }

 private:
  [[nodiscard]] static std::uint64_t rounds(std::uint64_t bytes, std::uint64_t grain) noexcept { return bytes / grain + (bytes % grain != 0); }
  [[nodiscard]] static const float* floats(std::span<const std::byte> slot, std::uint64_t offset) noexcept {
    return reinterpret_cast<const float*>(slot.data() + offset);
  }
  /// Where a chunk is divided by receiver: bytes of one receiver's part, and its place in `from`'s chunk (a member sends itself nothing).
  [[nodiscard]] std::uint64_t part_bytes() const noexcept { return std::max(region_->shape().chunk_bytes / std::max(1U, size_ - 1) / line * line, line); }
  [[nodiscard]] std::uint64_t part_of(std::uint32_t from, std::uint32_t to) const noexcept { return part_bytes() * (to < from ? to : to - 1); }

  template <class Visit>
  void for_each_peer(Visit visit) const {
    for (std::uint32_t step = 1; step < size_; ++step) visit((rank_ + step) % size_);  // members start at different peers
  }

  /// Every member writes `rounds` chunks and reads the others', up to `slots` chunks ahead of the slowest reader. write(slot) is
  /// called once a round, read(number of the chunk) once a round when all members' chunks of it are there.
  template <class Write, class Read>
  void exchange(CallSignature signature, std::uint64_t rounds, Write write, Read read) {
    using Member = SharedRegion::Member;
    begin(signature);
    const std::uint64_t slots = region_->shape().slots, first = round_;
    round_ += rounds;
    std::uint64_t written = 0;
    const auto write_next = [&] {
      const std::uint64_t round = first + written++;
      if (round >= slots) for_each_peer([&](std::uint32_t peer) { await(peer, &Member::consumed, round - slots + 1, "read its chunks"); });
      write(region_->slot(rank_, round));
      region_->advance(rank_, &Member::published, round + 1);
    };
    if (rounds > 0) write_next();  // travels with the signature
    compare_calls();
    for (std::uint64_t index = 0; index < rounds; ++index) {
      while (written < rounds && written < index + slots) write_next();
      for_each_peer([&](std::uint32_t peer) { await(peer, &Member::published, first + index + 1, "write its chunks"); });
      read(first + index);
      region_->advance(rank_, &Member::consumed, first + index + 1);
    }
  }

  void begin(CallSignature& signature) {
    if (region_->aborted()) throw CollectiveError(text(region_->cause()));
    signature.call = ++call_;
    current_ = signature;
    region_->member(rank_).signatures[call_ % 2] = signature;
    region_->advance(rank_, &SharedRegion::Member::called, call_);
  }

  // Two signatures a member suffice: nobody begins call n + 2 before all have compared call n, since all have then begun n + 1.
  void compare_calls() {
    std::vector<CallSignature> calls(size_, current_);
    for_each_peer([&](std::uint32_t peer) {
      await(peer, &SharedRegion::Member::called, call_, "join in");
      calls[peer] = region_->member(peer).signatures[call_ % 2];
    });
    if (const std::string difference = describe_mismatch(calls); !difference.empty()) fail(difference);
  }

  void await(std::uint32_t peer, SharedRegion::Counter counter, std::uint64_t value, const char* what) {
    switch (region_->wait(rank_, peer, counter, value, clock_, timeout_)) {
      case SharedRegion::Wait::reached: return;
      case SharedRegion::Wait::aborted: throw CollectiveError(text(region_->cause()));
      case SharedRegion::Wait::late:
        fail("rank " + std::to_string(peer) + " did not " + what + " within " + std::to_string(std::chrono::duration<double>(timeout_).count()) +
             " s of rank " + std::to_string(rank_) + (call_ == 0 ? "" : " in call " + std::to_string(call_) + ", " + describe(current_)));
    }
  }

  [[nodiscard]] std::string text(const std::string& cause) const { return "communicator " + name_ + ", rank " + std::to_string(rank_) + ": " + cause; }

  /// Ends the communicator for all members.
  [[noreturn]] void fail(const std::string& cause) {
    region_->abort(cause);
    throw CollectiveError(text(region_->cause()));
  }

  [[noreturn]] void refuse_type(CallSignature signature, DType dtype) {
    exchange(signature, 0, [](std::span<std::byte>) {}, [](std::uint64_t) {});
    fail("all_reduce takes float32 and float64, not " + std::string(name_of(dtype)));
  }

  /// All members read everything and combine it themselves.
  template <class T>
  void reduce_all(const CallSignature& signature, std::span<T> values, Reduction reduction) {
    const std::uint64_t grain = region_->shape().chunk_bytes / sizeof(T);
    const auto piece = [&](std::uint64_t index) { return values.subspan(index * grain, std::min<std::uint64_t>(grain, values.size() - index * grain)); };
    std::vector<const T*> sources(size_);
    std::uint64_t written = 0, read = 0;
    exchange(
        signature, rounds(values.size(), grain),
        [&](std::span<std::byte> slot) {
          const auto from = piece(written++);
          std::memcpy(slot.data(), from.data(), from.size_bytes());
        },
        [&](std::uint64_t round) {
          const auto to = piece(read++);
          for_each_peer([&](std::uint32_t peer) { sources[peer] = reinterpret_cast<const T*>(region_->slot(peer, round).data()); });
          sources[rank_] = to.data();
          combine(std::span<const T* const>(sources), to, reduction);
        });
  }

  static void combine(std::span<const float* const> sources, std::span<float> to, Reduction reduction) noexcept {
    if (reduction == Reduction::max) max_in_order(sources, to.data(), to.size());
    else sum_in_order(sources, to.data(), to.size(), false);
  }
  static void combine(std::span<const double* const> sources, std::span<double> to, Reduction reduction) noexcept {
    if (reduction == Reduction::max) max_in_order(sources, to.data(), to.size());
    else sum_in_order(sources, to.data(), to.size());
  }

  /// Each member sums its part, then all gather the parts; what does not divide is summed by all.
  void sum_by_parts(Stream& stream, const CallSignature& signature, TensorView values) {
    exchange(signature, 0, [](std::span<std::byte>) {}, [](std::uint64_t) {});
    float* const data = values.as<float>();
    const std::uint64_t total = signature.bytes / sizeof(float), count = total / size_;
    const ReducePiece sum{data, data + rank_ * count, count};
    reduce_scatter(stream, {&sum, 1});
    const GatherPiece gather{reinterpret_cast<std::byte*>(data), count * sizeof(float)};
    all_gather(stream, {&gather, 1});
    CallSignature rest = signature;
    rest.bytes = (total - count * size_) * sizeof(float);
    if (rest.bytes > 0) reduce_all<float>(rest, {data + count * size_, total - count * size_}, Reduction::sum);
  }

  const std::string name_;
  const std::uint32_t rank_, size_;
  const Nanos timeout_;
  const Clock& clock_;
  const std::shared_ptr<SharedRegion> region_;
  std::uint64_t call_ = 0;   ///< of this member's latest call
  std::uint64_t round_ = 0;  ///< chunks of all earlier calls; the same on all members
  CallSignature current_;
};

RegionShape shape_of(const SharedMemoryOptions& options) {
  const std::string who = "communicator " + options.tag + ": ";
  if (options.size == 0 || options.rank >= options.size)
    throw std::invalid_argument(who + "rank " + std::to_string(options.rank) + " is not one of " + std::to_string(options.size) + " members");
  if (options.chunks == 0 || options.chunk_bytes == 0 || options.tag.empty()) throw std::invalid_argument(who + "it needs a tag, chunks and chunk_bytes over zero");
  const std::uint64_t least = std::uint64_t{std::max(1U, options.size - 1)} * line;  // a line for each receiver
  return {.members = options.size, .slots = options.chunks, .chunk_bytes = (std::max(options.chunk_bytes, least) + line - 1) / line * line};
}

}  // namespace

std::unique_ptr<Communicator> make_shared_memory_communicator(const SharedMemoryOptions& options, const Clock& clock) {
  const RegionShape shape = shape_of(options);
  const Nanos deadline = clock.now() + options.timeout;
  auto region = options.registry ? options.registry->join(options.tag, options.rank, shape)
                                 : join_processes(options.tag, options.rank, shape, clock, deadline, options.stop);
  const std::stop_callback on_stop(options.stop, [&] { region->abort("stopped while waiting for its members"); });
  auto communicator = std::make_unique<SharedMemoryCommunicator>(options, clock, region);
  try {
    communicator->meet();
  } catch (...) {
    if (options.registry) options.registry->leave(options.tag, region);
    throw;
  }
  return communicator;
}

}  // namespace troupe
