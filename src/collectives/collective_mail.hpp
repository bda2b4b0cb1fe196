#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "src/transport/transport.hpp"

namespace troupe {

class CollectiveInbox;

/// Sorts the letters of collectives between hosts out of what a process's transport receives, and hands them to the communicators of
/// this process. One a process. Make it, make the transport with around(handlers), call use(transport); communicators go before
/// the transport, the transport before the mail. Any thread; never blocks.
class CollectiveMail {
 public:
  CollectiveMail() = default;
  CollectiveMail(const CollectiveMail&) = delete;
  CollectiveMail& operator=(const CollectiveMail&) = delete;

  /// Handlers that take what belongs to collectives and leave the rest to `others`; a lost peer is told to both.
  [[nodiscard]] TransportHandlers around(TransportHandlers others);
  void use(Transport& transport) noexcept { transport_ = &transport; }
  [[nodiscard]] Transport& transport() const { return *transport_.load(); }

  // For communicators: from `add` to `remove` letters of this key go to the inbox; what came before `add` follows at once.
  void add(std::uint64_t key, const std::shared_ptr<CollectiveInbox>& inbox);
  void remove(std::uint64_t key);

 private:
  [[nodiscard]] std::shared_ptr<CollectiveInbox> find(std::uint64_t key);
  bool deliver(const std::shared_ptr<const Parcel>& parcel);
  [[nodiscard]] std::optional<Lease> slot_for(schema::Envelope::Reader envelope, std::uint64_t bytes);
  void peer_lost(Rank peer, const std::string& cause);

  std::atomic<Transport*> transport_{nullptr};
  std::mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<CollectiveInbox>> inboxes_;
  std::deque<std::shared_ptr<const Parcel>> early_;  ///< letters to communicators that are not there yet, oldest first
};

}  // namespace troupe
