#pragma once
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "messages/letter.hpp"
#include "src/base/clock.hpp"
#include "src/collectives/call_signature.hpp"

namespace troupe {

/// What every member of a communicator must want alike.
struct CommunicatorTerms {
  std::uint32_t size = 1, chunks = 1;
  std::uint64_t chunk_bytes = 0;
  bool operator==(const CommunicatorTerms&) const = default;
};

/// Memory for a payload that nobody wants any more. It is received and dropped: as long as it waited, so would the link's next ones.
[[nodiscard]] Lease nowhere(std::uint64_t bytes);

/// What one communicator of this process has received and not yet used, and the buffers that chunks are received into: `chunks + 1` for
/// each peer, so that a peer's chunks never wait for another's. The transport's thread puts in, the member's thread takes out.
class CollectiveInbox : public std::enable_shared_from_this<CollectiveInbox> {
 public:
  /// `processes[r]`: the process of member r. `freed`: a buffer is free again; called without locks.
  CollectiveInbox(std::uint32_t rank, std::vector<Rank> processes, const CommunicatorTerms& terms, std::function<void()> freed);

  // The transport's side.
  void put(const std::shared_ptr<const Parcel>& parcel);
  [[nodiscard]] Lease slot_for(schema::Envelope::Reader envelope, std::uint64_t bytes);
  void peer_lost(Rank process, const std::string& cause);

  // The member's side.
  /// The first cause stays; everybody who waits is woken. True: it was the first.
  bool kill(const std::string& cause);
  [[nodiscard]] std::optional<std::string> cause() const;
  enum class Wait { here, dead, late };
  /// Until condition() under the inbox's lock, death, or `limit`. One thread at a time; the transport's asks for the condition too.
  [[nodiscard]] Wait wait(const std::function<bool()>& condition, const Clock& clock, Nanos limit);
  void wake();  ///< something that a condition looks at has changed, under lock()
  [[nodiscard]] std::unique_lock<std::mutex> lock() const { return std::unique_lock(mutex_); }

  // Under lock(), or in a wait's condition.
  [[nodiscard]] bool joined(std::uint32_t peer) const { return peers_[peer].terms.has_value(); }
  [[nodiscard]] const CommunicatorTerms& terms_of(std::uint32_t peer) const { return *peers_[peer].terms; }
  [[nodiscard]] const CallSignature* call_of(std::uint32_t peer, std::uint64_t number) const;
  [[nodiscard]] const Lease* chunk_of(std::uint32_t peer, std::uint64_t round) const;

  void forget_call(std::uint64_t number);   ///< and those before
  void forget_chunks(std::uint64_t round);  ///< and those before: their buffers are free

 private:
  struct Peer {
    std::optional<CommunicatorTerms> terms;
    std::map<std::uint64_t, CallSignature> calls;
    std::map<std::uint64_t, Lease> chunks;
    std::vector<std::vector<std::byte>> buffers;
    std::vector<std::uint32_t> free;
  };
  [[nodiscard]] bool sent_by_member(schema::Envelope::Reader envelope) const;
  void take_back(std::uint32_t peer, std::uint32_t buffer);

  const std::uint32_t rank_;
  const std::vector<Rank> processes_;
  const CommunicatorTerms terms_;
  const std::function<void()> freed_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<bool()>* awaited_ = nullptr;  ///< what the member sleeps for
  std::vector<Peer> peers_;
  std::optional<std::string> cause_;
};

}  // namespace troupe
