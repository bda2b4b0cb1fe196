#pragma once
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>

#include "src/model/programs.hpp"
#include "src/runtime/runtime.hpp"
#include "src/transport/transport.hpp"

namespace troupe {

/// The name of loader process `number` as a party of the job: ranks above the world.
[[nodiscard]] constexpr Rank loader_rank(std::uint32_t number, std::uint32_t world_size) noexcept { return Rank{world_size + number}; }
/// Which of `hosts` loader processes loads for `rank`.
[[nodiscard]] constexpr std::uint32_t loader_of(Rank rank, std::uint32_t hosts) noexcept { return rank.value() % hosts; }

/// The training side of loader processes: a slot of `batches` that the DataLoader has taken is told to the loader by a SlotHome (the
/// credit), and the batch is received straight into it. One a process; any thread. Make it, make the transport with around(handlers);
/// it outlives the transport and the programs.
class LoaderBatches {
 public:
  [[nodiscard]] TransportHandlers around(TransportHandlers others);
  /// The loader of `rank`, whose batches come from the process `loader`. `load` blocks until the batch is in the slot; it throws
  /// std::runtime_error when the loader is lost, when a payload was refused, and after abort(rank). Slots are host memory.
  [[nodiscard]] std::shared_ptr<LoaderProgram> program(Runtime& runtime, EpochId epoch, Rank rank, Rank loader);
  /// Ends what `rank` waits for. Never blocks.
  void abort(Rank rank, const std::string& cause);

 private:
  class Program;
  using Key = std::tuple<Rank, Step, Micro>;
  struct Waiting {
    std::span<std::byte> slot;
    Rank loader;
    bool receiving = false;  ///< the transport writes into the slot
    std::optional<BatchFacts> facts;
    std::string problem;
  };
  BatchFacts receive(Runtime& runtime, EpochId epoch, const Key& key, Rank loader, std::span<std::byte> slot);
  [[nodiscard]] Lease slot_for(schema::Envelope::Reader envelope);
  void received(const Parcel& parcel);
  void given_back(const Key& key);
  void lost(Rank peer, const std::string& cause);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, Waiting> waiting_;
  std::map<Rank, std::string> aborted_;
  std::map<Rank, std::string> lost_;
};

}  // namespace troupe
