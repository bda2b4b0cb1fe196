#include "src/transport/ucx_transport.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "messages/kinds.hpp"

namespace troupe {
namespace {

/// While a payload moves, the thread looks again and again for so long before it sleeps: waking takes longer than a fragment.
constexpr Nanos spin_limit = std::chrono::microseconds(200);
constexpr std::uint64_t ring_least = std::uint64_t{32} << 10;  ///< shorter payloads go with UCX
constexpr Nanos shut_down_limit = std::chrono::seconds(2);     ///< for UCX to give back what it holds

/// Whether UCX_TLS names a way that shares memory; one who excludes it wants none.
bool shares_memory(std::string_view transports) {
  while (!transports.empty()) {
    const auto end = std::min(transports.find(','), transports.size());
    const auto one = transports.substr(0, end);
    if (one == "posix" || one == "sysv" || one == "shm" || one == "sm" || one == "all") return true;
    transports.remove_prefix(std::min(end + 1, transports.size()));
  }
  return false;
}

}  // namespace

UcxTransport::UcxTransport(const TransportOptions& options, const Clock& clock, TransportHandlers handlers)
    : options_(options),
      clock_(clock),
      handlers_(std::move(handlers)),
      self_(shares_memory(options.transports) ? ProcessOnHost::self() : ProcessOnHost{}),
      worker_(std::make_unique<UcxWorker>(options, &UcxTransport::frame_arrived, this)) {
  thread_ = std::thread([this] { run(); });
}

UcxTransport::~UcxTransport() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (auto& [rank, link] : links_) {
      link->accepts_sends = false;
      link->refusal = "the transport is shutting down";
    }
  }
  worker_->signal();
  thread_.join();
  check_.reset();  // posts its last answers, which nobody takes
  std::deque<Job> left;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    left.swap(jobs_);
  }
  left.clear();     // with them go leases, whose ends may call slot_available(): while the worker is there, and outside of the mutex
  worker_.reset();  // may still call back for what was abandoned
  for (auto* outgoing : outgoing_) delete outgoing;
  for (auto* incoming : incoming_) delete incoming;
}

std::string UcxTransport::address() const { return self_.host == 0 ? worker_->address() : address_with_process(worker_->address(), self_); }

Result<void> UcxTransport::connect(Rank peer, Incarnation incarnation, const std::string& address) {
  const std::string who = "rank " + std::to_string(peer.value()) + " incarnation " + std::to_string(incarnation.value());
  if (address.empty()) return Error{"cannot connect to " + who + ": its address is empty"};
  const std::lock_guard lock(mutex_);
  if (stopping_) return Error{"cannot connect to " + who + ": the transport is shutting down"};
  if (const auto known = links_.find(peer); known != links_.end() && known->second->accepts_sends) {
    return Error{"cannot connect to " + who + ": a link to incarnation " + std::to_string(known->second->peer.incarnation.value()) +
                 " is open; close it first"};
  }
  auto link = std::make_shared<UcxLink>(options_.session, options_.self, Party{peer, incarnation}, refused_);
  links_[peer] = link;
  post_locked([this, link, address] { open_endpoint(link, address); });
  return {};
}

void UcxTransport::send(Rank peer, std::shared_ptr<const Parcel> parcel, Completion completion) {
  const Fault fault = options_.faults != nullptr ? options_.faults->decide(*parcel) : Fault{};
  if (fault.action == FaultAction::drop) {
    if (completion) completion({});
    return;
  }
  const std::uint64_t payload = parcel->lease() ? parcel->lease().bytes().size() : 0;
  const bool by_ring = !fault && payload >= ring_least && rings_to(peer);
  const std::uint64_t hash = payload == 0 || by_ring ? 0 : payload_hash(parcel->lease().bytes());
  const auto refuse = [&](const std::string& why) {
    if (completion)
      completion(Error{"cannot send " + std::string(name_of(parcel->envelope().getBody().which())) + " to rank " + std::to_string(peer.value()) + ": " + why});
  };
  std::unique_lock lock(mutex_);
  const auto found = links_.find(peer);
  if (found == links_.end() || !found->second->accepts_sends) {
    const std::string why = found == links_.end() ? "no link to it was opened" : found->second->refusal;
    lock.unlock();
    return refuse(why);
  }
  const Link link = found->second;
  const std::uint64_t bytes = payload + parcel->bytes().size();
  if (in_flight_ + bytes > options_.in_flight_limit) {
    lock.unlock();
    return refuse(std::to_string(in_flight_) + " bytes are in flight, the limit is " + std::to_string(options_.in_flight_limit) +
                  ": the receiver does not keep up");
  }
  if (by_ring && !link->ring_usable) {  // the link ended since, or is another one
    lock.unlock();
    return refuse("its link was ended meanwhile");
  }
  auto frame = by_ring ? link->sealer.seal_ahead(*parcel) : link->sealer.seal(*parcel, hash);
  if (!frame) {
    lock.unlock();
    if (completion) completion(frame.error());
    return;
  }
  in_flight_ += bytes;
  in_flight_peak_ = std::max(in_flight_peak_.load(), in_flight_.load());
  auto* outgoing = new UcxOutgoing{link, std::move(parcel), std::move(*frame), bytes, std::move(completion), clock_.now()};
  outgoing->sequence = link->sealer.sequence();
  if (by_ring) return post_locked([this, outgoing] { put_ahead(outgoing); });
  if (fault.action == FaultAction::corrupt) flip_a_bit(outgoing->frame, fault.random);
  if (fault) return post_locked([this, fault, outgoing] { put_with(fault, outgoing); });
  post_locked([this, outgoing] { put(outgoing); });
}

/// Large payloads to this peer go through memory shared with it, and are hashed on the way.
bool UcxTransport::rings_to(Rank peer) {
  const std::lock_guard lock(mutex_);
  const auto found = links_.find(peer);
  return found != links_.end() && found->second->ring_usable;
}

void UcxTransport::close(Rank peer, CloseMode mode, Nanos limit, Completion completion) {
  std::unique_lock lock(mutex_);
  const auto found = links_.find(peer);
  if (found == links_.end()) {
    lock.unlock();
    if (completion) completion(Error{"cannot close the link to rank " + std::to_string(peer.value()) + ": none was opened"});
    return;
  }
  const Link link = found->second;
  if (link->accepts_sends) link->refusal = "its link was closed here";
  link->accepts_sends = false;
  post_locked([this, link, mode, deadline = clock_.now() + limit, done = std::move(completion)] { begin_close(link, mode, deadline, done); });
}

/// Called for every slot that goes home, and mostly nothing waits for one. A payload that is parked at this moment is not forgotten: its
/// thread looks at the number of freed slots again after it has counted the payload.
void UcxTransport::slot_available() {
  ++slots_freed_;
  if (parked_count_ != 0) post([this] { retry_parked(); });
}

TransportCounters UcxTransport::counters() const {
  TransportCounters counters{letters_sent_, letters_received_, payload_sent_, payload_received_, in_flight_, in_flight_peak_, parked_count_, shared_, {}};
  for (std::size_t i = 0; i < frame_problem_count; ++i) counters.refused[i] = refused_.of(static_cast<FrameProblem>(i));
  return counters;
}

void UcxTransport::post(Job job) {
  const std::lock_guard lock(mutex_);
  if (!stopped_) post_locked(std::move(job));
}

void UcxTransport::post_locked(Job job) {
  if (std::exchange(sleeping_, false)) worker_->signal();
  jobs_.push_back(std::move(job));
}

bool UcxTransport::run_jobs() {
  std::deque<Job> jobs;
  {
    const std::lock_guard lock(mutex_);
    jobs.swap(jobs_);
  }
  for (auto& job : jobs) job();
  return !jobs.empty();
}

void UcxTransport::run() {
  Nanos last_work{0};
  for (;;) {
    bool worked = run_jobs();
    while (worker_->progress()) worked = true;
    if (move_rings()) worked = true;
    if (attend_links()) worked = true;
    if (release_held(clock_.now())) worked = true;
    if (payload_moves()) {
      const Nanos now = clock_.now();
      if (worked) last_work = now;
      if (!worked && now - last_work < spin_limit) {
        std::this_thread::yield();
        continue;
      }
    }
    if (worked) continue;
    {
      const std::lock_guard lock(mutex_);
      if (!jobs_.empty()) continue;
      if (stopping_) break;
      sleeping_ = true;  // from now on whoever posts a job rings for it
    }
    if (!set_rings_sleeping(true)) worker_->wait(wait_limit());
    set_rings_sleeping(false);
    const std::lock_guard lock(mutex_);
    sleeping_ = false;
  }
  shut_down();
}

/// Until the next deadline of a link. UCX ends a broken endpoint's requests in callbacks that do not wake a sleeper: look often then.
int UcxTransport::wait_limit() const {
  Nanos next = Nanos::max();
  for (const auto& link : attended_) {
    if (link->state == UcxLink::State::gone) return 1;
    if (link->state != UcxLink::State::open) next = std::min(next, link->deadline);
  }
  for (const Held& held : held_) next = std::min(next, held.until);
  if (next == Nanos::max()) return -1;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(next - clock_.now()).count() + 1;
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1000));
}

void UcxTransport::shut_down() {
  const auto links = attended_;
  for (const auto& link : links) {
    if (link->state == UcxLink::State::gone) continue;
    end_link(link, "the transport is shutting down");
    finish_close(link, Error{"the link to rank " + std::to_string(link->peer.rank.value()) + " was cut: the transport is shutting down"});
  }
  for (auto& early : early_) {
    if (early.descriptor != nullptr) ucp_am_data_release(worker_->handle(), early.descriptor);
  }
  early_.clear();
  release_held(Nanos::max());
  const Nanos deadline = clock_.now() + shut_down_limit;
  while (!attended_.empty() && clock_.now() < deadline) {
    const bool worked = worker_->progress();
    if (!attend_links() && !worked) worker_->wait(1);
  }
}

std::unique_ptr<Transport> make_ucx_transport(const TransportOptions& options, const Clock& clock, TransportHandlers handlers) {
  return std::make_unique<UcxTransport>(options, clock, std::move(handlers));
}

}  // namespace troupe
