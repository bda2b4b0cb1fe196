#pragma once
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "src/transport/letter_faults.hpp"
#include "src/transport/payload_check.hpp"
#include "src/transport/transport.hpp"
#include "src/transport/ucx_link.hpp"
#include "src/transport/ucx_worker.hpp"

namespace troupe {

/// The transport over UCX. One thread touches the worker; the public methods seal frames under `mutex_`, so that sequence numbers and
/// the order of jobs agree, and hand jobs to that thread. Members are in three groups: any thread, under the mutex, transport's thread.
class UcxTransport final : public Transport {
 public:
  UcxTransport(const TransportOptions& options, const Clock& clock, TransportHandlers handlers);
  ~UcxTransport() override;
  UcxTransport(const UcxTransport&) = delete;
  UcxTransport& operator=(const UcxTransport&) = delete;

  [[nodiscard]] std::string address() const override;
  [[nodiscard]] Result<void> connect(Rank peer, Incarnation incarnation, const std::string& address) override;
  void send(Rank peer, std::shared_ptr<const Parcel> parcel, Completion completion) override;
  void close(Rank peer, CloseMode mode, Nanos limit, Completion completion) override;
  void slot_available() override;
  [[nodiscard]] TransportCounters counters() const override;

 private:
  using Link = std::shared_ptr<UcxLink>;
  using Job = std::function<void()>;

  // --- ucx_transport.cpp: the thread ---
  [[nodiscard]] bool rings_to(Rank peer);
  void run();
  bool run_jobs();
  void post(Job job);
  void post_locked(Job job);
  [[nodiscard]] int wait_limit() const;
  [[nodiscard]] bool payload_moves() const noexcept { return !incoming_.empty() || payloads_out_ != 0 || ring_moves(); }
  void shut_down();

  // --- ucx_links.cpp: links ---
  void open_endpoint(const Link& link, const std::string& address);
  void end_link(const Link& link, const std::string& refusal);
  void begin_close(const Link& link, CloseMode mode, Nanos deadline, Completion completion);
  void finish_close(const Link& link, const Result<void>& result);
  void lose(const Link& link, const std::string& cause);
  bool attend_links();
  void attend(const Link& link, Nanos now);
  void close_endpoint(const Link& link);
  void refuse_sends(const Link& link, const std::string& why);
  void say(const Link& link, FrameType type, std::uint64_t payload_bytes = 0, std::uint64_t hash = 0);
  static void endpoint_failed(void* argument, ucp_ep_h endpoint, ucs_status_t status);

  // --- ucx_ring.cpp: payloads over shared memory ---
  void offer_ring(const Link& link);
  void take_ring(const Link& link);
  void ring_taken(UcxLink& link);
  void put_ahead(UcxOutgoing* outgoing);
  void receive_by_ring(std::unique_ptr<UcxIncoming> incoming);
  bool move_rings();
  bool move_outgoing(const Link& link);
  bool move_incoming(const Link& link);
  [[nodiscard]] bool ring_moves() const noexcept;
  bool set_rings_sleeping(bool sleeping);
  void end_rings(const Link& link);

  // --- ucx_faults.cpp: frames that a fault rule strikes ---
  /// A frame that leaves later.
  struct Held {
    UcxOutgoing* outgoing;
    Nanos until;
    bool blocks;  ///< what is sent over its link later waits behind it
  };
  static void flip_a_bit(std::vector<std::byte>& frame, std::uint64_t random);
  void put_with(const Fault& fault, UcxOutgoing* outgoing);
  void hold(Held held);
  bool queue_behind(UcxOutgoing* outgoing);
  bool release_held(Nanos until);

  // --- ucx_letters.cpp: frames ---
  void put(UcxOutgoing* outgoing);
  void hand_over(UcxOutgoing* outgoing);
  void sent(UcxOutgoing* outgoing, ucs_status_t status);
  static ucs_status_t frame_arrived(void* self, const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
                                    const ucp_am_recv_param_t* parameters);
  bool admit(const Link& link, std::span<const std::byte> frame, void* descriptor, std::size_t bytes);
  void admit_early(const Link& link);
  void take_notice(const Link& link, const FrameHeader& header);
  void goodbye(const Link& link, FrameType type);
  /// `slot_too_short`: the payload is refused, and whoever asked gives its descriptor back (in UCX's callback by the status UCS_OK).
  enum class Asked : std::uint8_t { receiving, no_slot, slot_too_short };
  Asked ask_for_slot(std::unique_ptr<UcxIncoming>& incoming);
  void received(UcxIncoming* incoming, ucs_status_t status);
  void verified(UcxIncoming& incoming, bool intact);
  void deliver(const UcxLink& link, std::shared_ptr<const Parcel> parcel, std::uint64_t payload_bytes, Nanos arrived);
  void park(std::unique_ptr<UcxIncoming> incoming, std::uint64_t slots_freed);
  [[nodiscard]] bool must_queue(const UcxIncoming& incoming) const;
  void retry_parked();
  void drop_parked(const UcxLink& link);
  void complete(UcxOutgoing* outgoing, const Result<void>& result);
  void tell(UcxOutgoing& outgoing, const Result<void>& result);
  void abandon(UcxLink& link);
  void trace(const char* what, const Parcel& parcel, Nanos started, std::string_view outcome) const;

  const TransportOptions options_;
  const Clock& clock_;
  const TransportHandlers handlers_;
  const ProcessOnHost self_;  ///< host 0: shares no memory with anyone
  FrameCounts refused_;
  std::atomic<std::uint64_t> letters_sent_{0}, letters_received_{0}, payload_sent_{0}, payload_received_{0}, in_flight_{0}, in_flight_peak_{0},
      parked_count_{0}, shared_{0}, slots_freed_{0};

  std::mutex mutex_;
  std::map<Rank, Link> links_;  ///< the newest of each rank
  std::deque<Job> jobs_;
  bool stopping_ = false;
  bool sleeping_ = false;  ///< the thread sleeps or is about to: a job needs a signal
  bool stopped_ = false;   ///< the thread has ended: nobody runs jobs any more

  std::map<Rank, Link> known_;                       ///< as links_, as far as the thread has got
  std::vector<Link> attended_;                       ///< links whose endpoint is not closed yet, or with requests pending
  std::unordered_set<UcxOutgoing*> outgoing_;        ///< handed to UCX
  std::size_t payloads_out_ = 0;                     ///< of them with a payload
  std::unordered_set<UcxIncoming*> incoming_;        ///< handed to UCX
  std::deque<std::unique_ptr<UcxIncoming>> parked_;  ///< in order of arrival
  std::vector<UcxEarly> early_;
  std::vector<Held> held_;             ///< in the order in which they were sent
  std::unique_ptr<UcxWorker> worker_;  ///< goes before what its callbacks touch
  std::thread thread_;
  std::unique_ptr<PayloadCheck> check_ = std::make_unique<PayloadCheck>();
};

}  // namespace troupe
