#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "src/checkpoint/agent_memory.hpp"
#include "src/transport/transport.hpp"
#include "tools/launcher/letter_link.hpp"

namespace troupe {

/// A rank's snapshot in the memory of a host agent.
struct SnapshotName {
  Rank rank;
  std::uint32_t slot = 0;
  EpochId epoch;
  Step step;
  bool operator==(const SnapshotName&) const = default;
};

/// Sends snapshots from the memory of this host's agent into that of another's, and takes in what others send, over the job's transport: so that the state
/// of a host's ranks outlives the host. A snapshot goes in pieces, SnapshotKept letters with a payload, in any order; the copy counts as whole when all are
/// there. A piece that is damaged on its way is dropped, and nobody told: whoever ordered the copy has it sent again (snapshot_copies.hpp). Public functions:
/// any thread, and but for stop() none blocks; two threads of its own copy and wait.
class SnapshotCourier {
 public:
  /// What has become of a copy.
  struct News {
    SnapshotName snapshot;
    Rank at;                   ///< the peer that is to hold it
    bool sent = false;         ///< all of it has left this host; whether it came whole its receiver tells
    std::string problem = {};  ///< it could not be sent or taken in; else, and if not `sent`, it is whole in this host's memory
  };
  /// On a thread of the courier; must not block.
  using Told = std::function<void(const News&)>;
  /// `self`: this process among the transport's peers.
  SnapshotCourier(Rank self, Told told);
  ~SnapshotCourier();
  SnapshotCourier(const SnapshotCourier&) = delete;
  SnapshotCourier& operator=(const SnapshotCourier&) = delete;

  /// Puts this receiver before the link's others.
  [[nodiscard]] TransportHandlers around(TransportHandlers others);
  /// The link whose handlers those are: stop() before it goes.
  void use(LetterLink& link);
  /// Gives up what is on its way, for good.
  void stop();
  /// The host agent's memory (AgentMemory), which outlives this.
  void use_memory(int descriptor);

  /// To the agent that is peer `to`.
  void send(const SnapshotName& snapshot, Rank to);
  /// All that is whole in this host's memory, of its own ranks and of others.
  [[nodiscard]] std::vector<SnapshotName> held() const;
  /// Gives back the memory of what came in and was kept in an epoch before this one, but for the ranks first … first + ranks − 1, who write there themselves.
  void forget(EpochId before, Rank first, std::uint32_t ranks);

 private:
  struct Errand {
    SnapshotName snapshot;
    Rank to;
  };
  struct Window;
  /// A copy that comes in.
  struct Incoming {
    SnapshotName name;
    std::uint64_t bytes = 0;
    std::vector<bool> pieces;  ///< that are here: one that is sent again counts once
    std::size_t missing = 0;
    std::span<std::byte> into;
  };
  void carry();
  void take_in();
  [[nodiscard]] std::string carry_out(const Errand& errand);
  void write_piece(const SnapshotName& name, const Parcel& parcel);
  struct Forget {
    EpochId before;
    Rank first;
    std::uint32_t ranks = 0;
  };
  void forget_now(const Forget& what);
  [[nodiscard]] Lease slot_for(std::uint64_t bytes);

  const Rank self_;
  const Told told_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  LetterLink* link_ = nullptr;
  int memory_ = -1;
  bool over_ = false;
  std::size_t buffers_out_ = 0;  ///< pieces that are on their way in, or wait to be written
  std::deque<Errand> errands_;
  std::shared_ptr<Window> window_;  ///< of the errand that is carried out
  std::deque<std::shared_ptr<const Parcel>> pieces_;
  std::optional<Forget> forget_;
  std::map<Rank, std::unique_ptr<AgentMemory>> places_;  ///< of the thread that takes in
  std::map<Rank, Incoming> incoming_;                    ///< the same
  std::thread carrying_, taking_in_;
};

}  // namespace troupe
