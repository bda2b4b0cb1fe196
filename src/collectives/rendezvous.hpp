#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include "src/base/clock.hpp"
#include "src/collectives/shared_region.hpp"

namespace troupe {

/// Where threads of one process find each other's region. Any thread. Its owner is whoever starts the ranks.
class SharedMemoryRegistry {
 public:
  /// The region of `tag`, made by the first who asks. When all members have asked, the tag is free again.
  /// Throws CollectiveError when shape or rank contradict those of an earlier member.
  [[nodiscard]] std::shared_ptr<SharedRegion> join(const std::string& tag, std::uint32_t rank, const RegionShape& shape);
  /// A member that gave up: its tag is free again. Does nothing if all have come.
  void leave(const std::string& tag, const std::shared_ptr<SharedRegion>& region);

 private:
  struct Waiting {
    std::shared_ptr<SharedRegion> region;
    std::uint64_t count = 0;
    std::vector<bool> present;
  };
  std::mutex mutex_;
  std::map<std::string, Waiting> waiting_;
};

/// How processes of one host find each other: member 0 makes the memory, which has no name, and hands its descriptor to the others over
/// a socket in Linux's abstract namespace, which the kernel drops with the process. Only processes of the same user are served.
/// Blocks until this member has the memory, `deadline` by the clock, or stop. Throws CollectiveError naming who is missing or differs.
[[nodiscard]] std::shared_ptr<SharedRegion> join_processes(const std::string& tag, std::uint32_t rank, const RegionShape& shape, const Clock& clock,
                                                           Nanos deadline, const std::stop_token& stop);

}  // namespace troupe
