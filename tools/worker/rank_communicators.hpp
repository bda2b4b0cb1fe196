#pragma once
#include <memory>
#include <span>
#include <stop_token>
#include <string>

#include "actors/rank_factory.hpp"
#include "src/collectives/communicator.hpp"
#include "src/collectives/shared_memory_communicator.hpp"
#include "src/collectives/transport_communicator.hpp"
#include "tools/launcher/letter_link.hpp"
#include "tools/worker/job_peers.hpp"

namespace troupe {

/// What carries the collectives of an epoch.
enum class CollectivePath { shared_memory, transport };

/// Decides by `setting` (comm.collectives) and where the members are. An error names the ranks, where they are and what to do: shared
/// memory wanted on several hosts, several ranks of one process over the transport, a member that no peer hosts. Pure.
[[nodiscard]] Result<CollectivePath> choose_collectives(const std::string& setting, std::span<const Peer> peers, std::span<const Rank> members);

/// Makes the communicators of the ranks of one process. What it is given outlives it; the communicators go before `link`.
class RankCommunicators {
 public:
  struct Ground {
    std::string setting = "auto";              ///< comm.collectives
    SharedMemoryRegistry* registry = nullptr;  ///< all ranks are threads of this process; null: they are processes
    const JobPeers* peers = nullptr;
    LetterLink* link = nullptr;
    CollectiveMail* mail = nullptr;  ///< around the link's transport
    const Clock* clock = nullptr;
  };
  explicit RankCommunicators(Ground ground) : ground_(std::move(ground)) {}
  /// The communicator `name` ("world") of all members of the epoch, or of a part of them: `start` with those as its members. Each group
  /// has a name of its own. Blocks until they have come; throws std::runtime_error with what does not fit and what the communicator says.
  /// `timeout`: how long a member may be silent.
  [[nodiscard]] std::shared_ptr<Communicator> make(const EpochStart& start, const std::string& name, Nanos timeout, const std::stop_token& stop) const;

 private:
  [[nodiscard]] std::shared_ptr<Communicator> over_transport(const EpochStart& start, std::span<const Peer> peers, const std::string& tag, Nanos timeout,
                                                             const std::stop_token& stop) const;
  Ground ground_;
};

}  // namespace troupe
