#pragma once
#include <memory>
#include <vector>

#include "src/collectives/chunk_exchange.hpp"
#include "src/collectives/communicator.hpp"

namespace troupe {

/// The collectives themselves, over whatever carries chunks: every member writes its chunks and reads the others', some ahead of the
/// slowest reader, and sums what it reads in rank order. Blocks its caller until the work is done.
class ChunkedCommunicator final : public Communicator {
 public:
  explicit ChunkedCommunicator(std::unique_ptr<ChunkExchange> exchange);

  [[nodiscard]] std::uint32_t rank() const noexcept override { return rank_; }
  [[nodiscard]] std::uint32_t size() const noexcept override { return size_; }
  void all_gather(Stream& stream, std::span<const GatherPiece> pieces) override;
  void reduce_scatter(Stream& stream, std::span<const ReducePiece> pieces) override;
  void all_reduce(Stream& stream, TensorView values, Reduction reduction) override;
  void broadcast(Stream& stream, std::span<std::byte> data, std::uint32_t root) override;
  void all_to_all(Stream& stream, std::span<const std::byte> input, std::span<std::byte> output) override;
  void abort(const std::string& cause) noexcept override { exchange_->abort(cause); }

 private:
  /// A call as rounds of chunks: in each, `grain` bytes of the call's `bytes` (the last fewer) go to the others.
  struct Rounds {
    CallSignature signature;
    ChunkKind kind = ChunkKind::same;
    std::uint64_t bytes = 0, grain = 1;
    bool sends = true;
  };
  template <class Write, class Read>
  void run(const Rounds& rounds, Write write, Read read);
  void begin(CallSignature signature);
  void compare_calls();
  void agree(const CallSignature& signature);
  const std::vector<std::span<const std::byte>>& collect(std::uint64_t round, ChunkKind kind);
  template <class Visit>
  void for_each_peer(Visit visit) const;
  template <class T>
  void reduce_whole(const CallSignature& signature, std::span<T> values, Reduction reduction);
  void sum_by_parts(Stream& stream, const CallSignature& signature, TensorView values);

  const std::unique_ptr<ChunkExchange> exchange_;
  const std::uint32_t rank_, size_;
  std::uint64_t call_ = 0;   ///< number of the latest call
  std::uint64_t round_ = 0;  ///< chunks of all earlier calls; the same on all members
  std::vector<std::span<const std::byte>> collected_;
};

}  // namespace troupe
