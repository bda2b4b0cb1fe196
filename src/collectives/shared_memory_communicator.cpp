#include "src/collectives/shared_memory_communicator.hpp"

#include <stdexcept>
#include <utility>

#include "src/collectives/chunk_exchange.hpp"
#include "src/collectives/chunked_communicator.hpp"
#include "src/collectives/shared_region.hpp"

namespace troupe {
namespace {

/// Chunks lie where all members see them; counters say who has written and read how far.
class SharedMemoryExchange final : public ChunkExchange {
  using Member = SharedRegion::Member;

 public:
  SharedMemoryExchange(const SharedMemoryOptions& options, const Clock& clock, std::shared_ptr<SharedRegion> region)
      : name_(options.tag), rank_(options.rank), size_(options.size), timeout_(options.timeout), clock_(clock), region_(std::move(region)) {}

  [[nodiscard]] std::uint32_t rank() const noexcept override { return rank_; }
  [[nodiscard]] std::uint32_t size() const noexcept override { return size_; }
  [[nodiscard]] std::uint64_t chunk_bytes() const noexcept override { return region_->shape().chunk_bytes; }
  [[nodiscard]] std::uint32_t chunks() const noexcept override { return region_->shape().slots; }

  void begin(const CallSignature& signature) override {
    if (region_->aborted()) throw CollectiveError(text(region_->cause()));
    current_ = signature;
    region_->member(rank_).signatures[signature.call % 2] = signature;
    region_->advance(rank_, &Member::called, signature.call);
  }

  // Two signatures a member suffice: nobody begins call n + 2 before all have compared call n, since all have then begun n + 1.
  [[nodiscard]] std::vector<CallSignature> calls() override {
    std::vector<CallSignature> all(size_, current_);
    for (std::uint32_t peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      await(peer, &Member::called, current_.call, "join in");
      all[peer] = region_->member(peer).signatures[current_.call % 2];
    }
    return all;
  }

  [[nodiscard]] std::span<std::byte> outgoing(std::uint64_t round) override {
    if (round >= chunks()) {
      for (std::uint32_t peer = 0; peer < size_; ++peer) {
        if (peer != rank_) await(peer, &Member::consumed, round - chunks() + 1, "read its chunks");
      }
    }
    return region_->slot(rank_, round);
  }
  void send(std::uint64_t round, ChunkKind, std::uint64_t) override { region_->advance(rank_, &Member::published, round + 1); }

  [[nodiscard]] std::span<const std::byte> incoming(std::uint32_t peer, std::uint64_t round, ChunkKind kind) override {
    await(peer, &Member::published, round + 1, "write its chunks");
    const std::span<const std::byte> chunk = region_->slot(peer, round);
    return kind == ChunkKind::same ? chunk : chunk.subspan(part_offset(peer, rank_), part_bytes());
  }
  void release(std::uint64_t round) override { region_->advance(rank_, &Member::consumed, round + 1); }

  void abort(const std::string& cause) noexcept override { region_->abort(cause); }
  [[noreturn]] void fail(const std::string& cause) override {
    region_->abort(cause);
    throw CollectiveError(text(region_->cause()));
  }

  /// The last step of making one: returns when all members have mapped the region.
  void meet() {
    region_->advance(rank_, &Member::joined, 1);
    for (std::uint32_t peer = 0; peer < size_; ++peer) {
      if (peer != rank_) await(peer, &Member::joined, 1, "join the communicator");
    }
  }

 private:
  void await(std::uint32_t peer, SharedRegion::Counter counter, std::uint64_t value, const char* what) {
    switch (region_->wait(rank_, peer, counter, value, clock_, timeout_)) {
      case SharedRegion::Wait::reached: return;
      case SharedRegion::Wait::aborted: throw CollectiveError(text(region_->cause()));
      case SharedRegion::Wait::late:
        fail("rank " + std::to_string(peer) + " did not " + what + " within " + std::to_string(std::chrono::duration<double>(timeout_).count()) +
             " s of rank " + std::to_string(rank_) + (current_.call == 0 ? "" : " in call " + std::to_string(current_.call) + ", " + describe(current_)));
    }
  }

  [[nodiscard]] std::string text(const std::string& cause) const { return "communicator " + name_ + ", rank " + std::to_string(rank_) + ": " + cause; }

  const std::string name_;
  const std::uint32_t rank_, size_;
  const Nanos timeout_;
  const Clock& clock_;
  const std::shared_ptr<SharedRegion> region_;
  CallSignature current_;
};

RegionShape shape_of(const SharedMemoryOptions& options) {
  const std::string who = "communicator " + options.tag + ": ";
  if (options.size == 0 || options.rank >= options.size)
    throw std::invalid_argument(who + "rank " + std::to_string(options.rank) + " is not one of " + std::to_string(options.size) + " members");
  if (options.chunks == 0 || options.chunk_bytes == 0 || options.tag.empty())
    throw std::invalid_argument(who + "it needs a tag, chunks and chunk_bytes over zero");
  return {.members = options.size, .slots = options.chunks, .chunk_bytes = usable_chunk_bytes(options.chunk_bytes, options.size)};
}

}  // namespace

std::unique_ptr<Communicator> make_shared_memory_communicator(const SharedMemoryOptions& options, const Clock& clock) {
  const RegionShape shape = shape_of(options);
  const Nanos deadline = clock.now() + options.timeout;
  auto region = options.registry ? options.registry->join(options.tag, options.rank, shape)
                                 : join_processes(options.tag, options.rank, shape, clock, deadline, options.stop);
  const std::stop_callback on_stop(options.stop, [&] { region->abort("stopped while waiting for its members"); });
  auto exchange = std::make_unique<SharedMemoryExchange>(options, clock, region);
  try {
    exchange->meet();
  } catch (...) {
    if (options.registry) options.registry->leave(options.tag, region);
    throw;
  }
  return std::make_unique<ChunkedCommunicator>(std::move(exchange));
}

}  // namespace troupe
