#pragma once
#include <memory>
#include <stop_token>
#include <string>

#include "src/collectives/communicator.hpp"
#include "src/collectives/rendezvous.hpp"

namespace troupe {

/// A communicator over the memory of one host. `registry`: members are threads of this process that share it; null: members are
/// processes of this user. Both give the same bits.
struct SharedMemoryOptions {
  std::string tag;  ///< names the communicator on this host; unique for each communicator of each epoch of each run
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  Nanos timeout{30'000'000'000};             ///< how long a member may be silent, at the start and in a call
  std::uint64_t chunk_bytes = 256 * 1024;    ///< grain of the pipeline, equal on all members; rounded up to a multiple of 64
  std::uint32_t chunks = 4;                  ///< in flight a member; the memory used is size × chunks × chunk_bytes
  SharedMemoryRegistry* registry = nullptr;  ///< outlives the call, not the communicator
  std::stop_token stop{};                    ///< ends the wait for the other members
};

/// Blocks until all members have come, then returns; no file, name or socket is left behind, also when members die at any point.
/// Throws CollectiveError when a member is missing at the timeout, when `stop` was requested, and when members disagree about size
/// or chunks; std::invalid_argument on options that make no sense. `clock` outlives the communicator.
[[nodiscard]] std::unique_ptr<Communicator> make_shared_memory_communicator(const SharedMemoryOptions& options, const Clock& clock);

}  // namespace troupe
