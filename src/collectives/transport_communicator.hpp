#pragma once
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "src/collectives/collective_mail.hpp"
#include "src/collectives/communicator.hpp"

namespace troupe {

/// A communicator over the transport: members in different processes, on one host or on several.
struct TransportCommunicatorOptions {
  std::string tag;                         ///< unique for each communicator of each epoch of each run
  EpochId epoch{1};                        ///< that its letters carry
  std::vector<Rank> processes;             ///< of each member, as the transport names peers; each another one
  std::uint32_t rank = 0;                  ///< this member's place in `processes`
  Nanos timeout{30'000'000'000};           ///< how long a member may be silent, at the start and in a call
  std::uint64_t chunk_bytes = 512 * 1024;  ///< a payload; equal on all members
  std::uint32_t chunks = 4;                ///< in flight to each peer; memory: chunks × chunk_bytes, and (chunks + 1) × chunk_bytes for each peer
  std::stop_token stop{};                  ///< ends the wait for the other members
};

/// Blocks until all members have come. The links to all of them are connected before. Sums are in rank order, in the same bits as over
/// shared memory. Throws CollectiveError when a member is missing at the timeout, when `stop` was requested, and when members
/// disagree about size or chunks; std::invalid_argument on options that make no sense. `mail` and `clock` outlive the communicator.
[[nodiscard]] std::unique_ptr<Communicator> make_transport_communicator(const TransportCommunicatorOptions& options, const Clock& clock, CollectiveMail& mail);

}  // namespace troupe
