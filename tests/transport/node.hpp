#pragma once
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "messages/write.hpp"
#include "src/transport/transport.hpp"

namespace troupe::test {

inline Session test_session() {
  Session session{.job = 42, .key = {}};
  session.key.fill(std::byte{7});
  return session;
}

/// A transport with slots, which notes all that happens; methods may be called from the test's thread at any time.
class Node {
 public:
  using OnLetter = std::function<void(Node&, std::shared_ptr<const Parcel>)>;

  /// `slots` of `slot_bytes` each; `on_letter` (transport's thread) instead of keeping the letters.
  Node(Rank rank, const std::string& transports, std::size_t slots = 0, std::size_t slot_bytes = 0, OnLetter on_letter = {},
       std::uint64_t in_flight_limit = 1 << 30);
  ~Node();
  [[nodiscard]] Transport& transport() { return *transport_; }
  [[nodiscard]] Rank rank() const { return rank_; }

  void send(Rank peer, std::shared_ptr<const Parcel> parcel);
  /// Waits for the close's answer: empty when ok.
  [[nodiscard]] std::string close(Rank peer, CloseMode mode, Nanos limit = std::chrono::seconds(5));
  /// Blocks until `condition` holds, at most `limit`; looked at whenever something happened. Under the node's mutex.
  [[nodiscard]] bool wait(const std::function<bool(const Node&)>& condition, Nanos limit = std::chrono::seconds(20));

  // Under the mutex, or in a wait's condition.
  std::vector<std::shared_ptr<const Parcel>> letters;
  std::vector<std::string> lost;
  std::vector<Rank> left;
  std::size_t sent = 0, failed = 0, slots_used_at_once = 0;
  std::vector<std::string> errors;
  [[nodiscard]] std::size_t slots_in_use() const { return static_cast<std::size_t>(std::count(used_.begin(), used_.end(), true)); }

 private:
  Lease take_slot(std::uint64_t bytes);
  void note(const std::function<void()>& change);

  const Rank rank_;
  std::unique_ptr<Clock> clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::vector<std::byte>> slots_;
  std::vector<bool> used_;
  OnLetter on_letter_;
  std::unique_ptr<Transport> transport_;
  std::atomic<Transport*> told_of_slots_{nullptr};  ///< read by whichever thread lets go of a slot; null while the node ends
};

/// A BatchReady of the given step; with a payload of bytes that follow from the step.
[[nodiscard]] std::shared_ptr<const Parcel> batch(Rank from, Rank to, std::uint64_t step, std::size_t payload = 0);
[[nodiscard]] bool is_batch_payload(std::span<const std::byte> bytes, std::uint64_t step);

}  // namespace troupe::test
