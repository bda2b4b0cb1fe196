#include "src/transport/loopback.hpp"

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "messages/kinds.hpp"

namespace troupe {
namespace {

struct Message {
  std::vector<std::byte> frame;          ///< empty: the link's goodbye
  std::shared_ptr<const Parcel> parcel;  ///< the sender's, for its payload
  Completion completion;
  std::uint64_t bytes = 0;
};
using MessagePtr = std::shared_ptr<Message>;

void answer(Message& message, const Result<void>& result) {
  message.parcel.reset();
  if (const Completion completion = std::exchange(message.completion, nullptr)) completion(result);
}

struct Link {
  Link(const Session& session, Party self, Party p, FrameCounts& counts) : peer(p), sealer(session, self, p), opener(session, self, p, counts) {}
  Party peer;
  FrameSealer sealer;
  FrameOpener opener;
  bool open = true;
  std::string refusal;
  std::uint64_t number = 0;
  Nanos due{0};  ///< of the newest message
  std::deque<MessagePtr> on_the_way;
  std::vector<MessagePtr> held;  ///< reordered: follow the next message
};

/// Takes a payload in: what was opened, and from whom.
struct Arrival {
  MessagePtr message;
  OpenedFrame opened;
  Rank sender;
};

struct Process {
  Process(const TransportOptions& o, TransportHandlers h) : options(o), handlers(std::move(h)) {}
  const TransportOptions options;
  const TransportHandlers handlers;
  FrameCounts refused;
  std::recursive_mutex calling;                 ///< held while handlers run; who takes it away waits for them
  bool alive = true;                            ///< under `calling` and the network's mutex
  std::map<Rank, std::shared_ptr<Link>> links;  ///< under the network's mutex, as all below
  std::map<Rank, std::vector<MessagePtr>> early;
  std::deque<Arrival> parked;
  TransportCounters counters;
};

std::string name(Rank rank) { return "rank " + std::to_string(rank.value()); }

}  // namespace

struct LoopbackNetwork::Wires : std::enable_shared_from_this<Wires> {
  Wires(Clock& c, Nanos l, Decide d) : clock(c), latency(l), decide(std::move(d)) {}
  Clock& clock;
  const Nanos latency;
  const Decide decide;
  std::mutex mutex;
  std::map<Rank, std::shared_ptr<Process>> processes;

  void launch(const std::shared_ptr<Process>& from, const std::shared_ptr<Link>& link, MessagePtr message, const FrameFate& fate);
  void arrive(const std::shared_ptr<Process>& from, const std::shared_ptr<Link>& link);
  void take_in(const std::shared_ptr<Process>& from, const std::shared_ptr<Link>& link, const MessagePtr& message);
  void open(Process& to, Link& back, Rank sender, const MessagePtr& message);
  bool place(Process& to, Arrival& arrival);
  void retry(Process& process);
  void lose(Rank rank);
};

/// Under the mutex.
void LoopbackNetwork::Wires::launch(const std::shared_ptr<Process>& from, const std::shared_ptr<Link>& link, MessagePtr message, const FrameFate& fate) {
  if (fate.drop) {
    clock.after(latency, [this, self = shared_from_this(), from, message] {
      {
        const std::lock_guard lock(mutex);
        from->counters.in_flight_bytes -= message->bytes;
      }
      answer(*message, {});
    });
    return;
  }
  if (fate.corrupt && !message->frame.empty()) message->frame[message->frame.size() / 2] ^= std::byte{1};
  if (fate.reorder) {
    link->held.push_back(std::move(message));
    return;
  }
  std::vector<MessagePtr> all{std::move(message)};
  if (fate.duplicate) all.push_back(std::make_shared<Message>(Message{all.front()->frame, nullptr, nullptr, 0}));
  all.insert(all.end(), link->held.begin(), link->held.end());
  link->held.clear();
  link->due = std::max(link->due, clock.now() + latency + fate.delay);
  for (auto& one : all) {
    link->on_the_way.push_back(std::move(one));
    clock.after(link->due - clock.now(), [this, self = shared_from_this(), from, link] { arrive(from, link); });
  }
}

/// The oldest message of a link arrives; each launched message calls once, so order does not depend on the timers'.
void LoopbackNetwork::Wires::arrive(const std::shared_ptr<Process>& from, const std::shared_ptr<Link>& link) {
  MessagePtr message;
  {
    const std::lock_guard lock(mutex);
    if (link->on_the_way.empty()) return;  // taken back: its sender is gone
    message = std::move(link->on_the_way.front());
    link->on_the_way.pop_front();
    from->counters.in_flight_bytes -= message->bytes;
  }
  take_in(from, link, message);
}

void LoopbackNetwork::Wires::take_in(const std::shared_ptr<Process>& from, const std::shared_ptr<Link>& link, const MessagePtr& message) {
  std::shared_ptr<Process> to;
  {
    const std::lock_guard lock(mutex);
    if (const auto found = processes.find(link->peer.rank); found != processes.end()) to = found->second;
  }
  if (!to) return answer(*message, Error{"not delivered to " + name(link->peer.rank) + ": it is gone"});
  const std::lock_guard calling(to->calling);
  const Rank sender = from->options.self.rank;
  std::shared_ptr<Link> back;
  {
    const std::lock_guard lock(mutex);
    if (!to->alive)
      back = nullptr;
    else if (const auto found = to->links.find(sender); found != to->links.end())
      back = found->second;
    else
      return to->early[sender].push_back(message);
    if (back && !back->open) back = nullptr;
    if (back && message->frame.empty()) {
      back->open = false;
      back->refusal = "it has closed its link";
    }
  }
  if (!back) return answer(*message, Error{"not delivered to " + name(link->peer.rank) + ": it closed its link"});
  if (!message->frame.empty()) return open(*to, *back, sender, message);
  answer(*message, {});
  if (to->handlers.peer_left) to->handlers.peer_left(sender);
}

/// With the receiver's `calling`.
void LoopbackNetwork::Wires::open(Process& to, Link& back, Rank sender, const MessagePtr& message) {
  auto opened = back.opener.open(message->frame);
  if (!opened) return answer(*message, {});  // as on a network: the sender does not hear of it
  Arrival arrival{message, std::move(*opened), sender};
  if (arrival.opened.header.payload_bytes != 0 && !place(to, arrival)) {
    const std::lock_guard lock(mutex);
    to.parked.push_back(std::move(arrival));
    to.counters.parked = to.parked.size();
    return;
  }
  if (arrival.opened.header.payload_bytes != 0) return;
  {
    const std::lock_guard lock(mutex);
    ++to.counters.letters_received;
  }
  answer(*message, {});
  to.handlers.letter(std::make_shared<const Parcel>(kj::mv(arrival.opened.words), Lease{}));
}

/// Copies a payload into a slot and delivers its letter. False: no slot now. With the receiver's `calling`.
bool LoopbackNetwork::Wires::place(Process& to, Arrival& arrival) {
  const FrameHeader& header = arrival.opened.header;
  Lease lease = to.handlers.slot_for(capnp::FlatArrayMessageReader(arrival.opened.words).getRoot<schema::Envelope>(), header.payload_bytes);
  if (!lease) return false;
  const auto source = arrival.message->parcel ? arrival.message->parcel->lease().bytes() : std::span<std::byte>{};
  if (source.size() != header.payload_bytes || lease.bytes().size() < source.size() || payload_hash(source) != header.payload_hash) {
    to.refused.add(FrameProblem::payload);
    answer(*arrival.message, {});
    return true;
  }
  std::copy(source.begin(), source.end(), lease.bytes().begin());
  {
    const std::lock_guard lock(mutex);
    ++to.counters.letters_received;
    to.counters.payload_bytes_received += header.payload_bytes;
  }
  answer(*arrival.message, {});
  to.handlers.letter(std::make_shared<const Parcel>(kj::mv(arrival.opened.words), std::move(lease)));
  return true;
}

void LoopbackNetwork::Wires::retry(Process& process) {
  const std::lock_guard calling(process.calling);
  std::deque<Arrival> waiting;
  {
    const std::lock_guard lock(mutex);
    if (!process.alive) return;
    waiting.swap(process.parked);
  }
  while (!waiting.empty() && place(process, waiting.front())) waiting.pop_front();
  const std::lock_guard lock(mutex);
  process.parked.insert(process.parked.begin(), std::make_move_iterator(waiting.begin()), std::make_move_iterator(waiting.end()));
  process.counters.parked = process.parked.size();
}

/// All others hear that `rank` is gone.
void LoopbackNetwork::Wires::lose(Rank rank) {
  std::vector<std::shared_ptr<Process>> others;
  {
    const std::lock_guard lock(mutex);
    for (auto& [other, process] : processes) others.push_back(process);
  }
  for (const auto& process : others) {
    const std::lock_guard calling(process->calling);
    {
      const std::lock_guard lock(mutex);
      const auto link = process->links.find(rank);
      if (!process->alive || link == process->links.end() || !link->second->open) continue;
      link->second->open = false;
      link->second->refusal = "it was lost: killed";
    }
    process->handlers.peer_lost(rank, "killed");
  }
}

namespace {

class LoopbackTransport final : public Transport {
 public:
  LoopbackTransport(std::shared_ptr<LoopbackNetwork::Wires> wires, std::shared_ptr<Process> process) : wires_(std::move(wires)), process_(std::move(process)) {}

  ~LoopbackTransport() override {
    const std::lock_guard calling(process_->calling);
    std::vector<MessagePtr> unsent;
    {
      const std::lock_guard lock(wires_->mutex);
      process_->alive = false;
      const auto self = wires_->processes.find(process_->options.self.rank);
      if (self != wires_->processes.end() && self->second == process_) wires_->processes.erase(self);
      for (auto& [rank, link] : process_->links) {
        unsent.insert(unsent.end(), link->on_the_way.begin(), link->on_the_way.end());
        unsent.insert(unsent.end(), link->held.begin(), link->held.end());
        link->on_the_way.clear();
        link->held.clear();
      }
      for (auto& arrival : process_->parked) unsent.push_back(arrival.message);
      for (auto& [rank, early] : process_->early) unsent.insert(unsent.end(), early.begin(), early.end());
    }
    for (auto& message : unsent) answer(*message, Error{"not delivered: a transport of the link went away"});
  }

  [[nodiscard]] std::string address() const override { return "loopback " + std::to_string(process_->options.self.rank.value()); }

  [[nodiscard]] Result<void> connect(Rank peer, Incarnation incarnation, const std::string& address) override {
    std::shared_ptr<Link> link;
    std::vector<MessagePtr> early;
    {
      const std::lock_guard lock(wires_->mutex);
      if (address != "loopback " + std::to_string(peer.value())) return Error{"cannot connect to " + name(peer) + ": '" + address + "' is not its address"};
      const auto known = process_->links.find(peer);
      if (known != process_->links.end() && known->second->open) return Error{"cannot connect to " + name(peer) + ": a link to it is open; close it first"};
      link = std::make_shared<Link>(process_->options.session, process_->options.self, Party{peer, incarnation}, process_->refused);
      process_->links[peer] = link;
      early.swap(process_->early[peer]);
    }
    for (auto& message : early) {
      wires_->clock.after(Nanos{0}, [wires = wires_, process = process_, link, peer, message] {
        const std::lock_guard calling(process->calling);
        if (!message->frame.empty()) return wires->open(*process, *link, peer, message);
        answer(*message, {});
        if (process->handlers.peer_left) process->handlers.peer_left(peer);
      });
    }
    return {};
  }

  void send(Rank peer, std::shared_ptr<const Parcel> parcel, Completion completion) override {
    std::string problem;
    {
      const std::lock_guard lock(wires_->mutex);
      problem = try_send(peer, parcel, completion);
    }
    if (!problem.empty() && completion)
      completion(Error{"cannot send " + std::string(name_of(parcel->envelope().getBody().which())) + " to " + name(peer) + ": " + problem});
  }

  void close(Rank peer, CloseMode mode, Nanos /*limit*/, Completion completion) override {
    Result<void> result;
    {
      const std::lock_guard lock(wires_->mutex);
      const auto found = process_->links.find(peer);
      if (found == process_->links.end()) {
        result = Error{"cannot close the link to " + name(peer) + ": none was opened"};
      } else if (found->second->open) {
        found->second->open = false;
        found->second->refusal = "its link was closed here";
        const auto goodbye = std::make_shared<Message>();
        if (mode == CloseMode::flush) goodbye->completion = std::exchange(completion, nullptr);
        wires_->launch(process_, found->second, goodbye, {});
      }
    }
    if (completion) completion(result);
  }

  void slot_available() override {
    wires_->clock.after(Nanos{0}, [wires = wires_, process = process_] { wires->retry(*process); });
  }

  [[nodiscard]] TransportCounters counters() const override {
    const std::lock_guard lock(wires_->mutex);
    TransportCounters counters = process_->counters;
    for (std::size_t i = 0; i < frame_problem_count; ++i) counters.refused[i] = process_->refused.of(static_cast<FrameProblem>(i));
    return counters;
  }

 private:
  /// Under the network's mutex. What is wrong, or nothing.
  std::string try_send(Rank peer, const std::shared_ptr<const Parcel>& parcel, Completion& completion) {
    const auto found = process_->links.find(peer);
    if (found == process_->links.end()) return "no link to it was opened";
    if (!found->second->open) return found->second->refusal;
    const std::uint64_t payload = parcel->lease() ? parcel->lease().bytes().size() : 0;
    const std::uint64_t bytes = payload + parcel->bytes().size();
    TransportCounters& counters = process_->counters;
    if (counters.in_flight_bytes + bytes > process_->options.in_flight_limit) {
      return std::to_string(counters.in_flight_bytes) + " bytes are in flight, the limit is " + std::to_string(process_->options.in_flight_limit);
    }
    auto frame = found->second->sealer.seal(*parcel, payload == 0 ? 0 : payload_hash(parcel->lease().bytes()));
    if (!frame) return frame.error().message;
    counters.in_flight_bytes += bytes;
    counters.in_flight_peak = std::max(counters.in_flight_peak, counters.in_flight_bytes);
    ++counters.letters_sent;
    counters.payload_bytes_sent += payload;
    const std::uint64_t number = ++found->second->number;
    const FrameFate fate = wires_->decide ? wires_->decide(process_->options.self.rank, peer, number, parcel->envelope()) : FrameFate{};
    wires_->launch(process_, found->second, std::make_shared<Message>(Message{std::move(*frame), parcel, std::exchange(completion, nullptr), bytes}), fate);
    return {};
  }

  const std::shared_ptr<LoopbackNetwork::Wires> wires_;
  const std::shared_ptr<Process> process_;
};

}  // namespace

LoopbackNetwork::LoopbackNetwork(Clock& clock, Nanos latency, Decide decide) : wires_(std::make_shared<Wires>(clock, latency, std::move(decide))) {}
LoopbackNetwork::~LoopbackNetwork() = default;

std::unique_ptr<Transport> LoopbackNetwork::join(const TransportOptions& options, TransportHandlers handlers) {
  auto process = std::make_shared<Process>(options, std::move(handlers));
  const std::lock_guard lock(wires_->mutex);
  wires_->processes[options.self.rank] = process;
  return std::make_unique<LoopbackTransport>(wires_, process);
}

void LoopbackNetwork::kill(Rank rank, Nanos notice) {
  std::shared_ptr<Process> process;
  {
    const std::lock_guard lock(wires_->mutex);
    const auto found = wires_->processes.find(rank);
    if (found == wires_->processes.end()) return;
    process = found->second;
    wires_->processes.erase(found);
  }
  {
    const std::lock_guard calling(process->calling);
    const std::lock_guard lock(wires_->mutex);
    process->alive = false;
    for (auto& [peer, link] : process->links) {
      link->open = false;
      link->refusal = "this process was killed";
    }
  }
  wires_->clock.after(notice, [wires = wires_, rank] { wires->lose(rank); });
}

}  // namespace troupe
