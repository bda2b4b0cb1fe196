#include "tests/transport/node.hpp"

#include <algorithm>

namespace troupe::test {

Node::Node(Rank rank, const std::string& transports, std::size_t slots, std::size_t slot_bytes, OnLetter on_letter, std::uint64_t in_flight_limit)
    : rank_(rank), clock_(make_system_clock()), slots_(slots, std::vector<std::byte>(slot_bytes)), used_(slots), on_letter_(std::move(on_letter)) {
  TransportHandlers handlers;
  handlers.letter = [this](std::shared_ptr<const Parcel> parcel) {
    if (on_letter_) on_letter_(*this, parcel);
    note([&] { letters.push_back(on_letter_ ? nullptr : std::move(parcel)); });
  };
  handlers.slot_for = [this](schema::Envelope::Reader, std::uint64_t bytes) { return take_slot(bytes); };
  handlers.peer_lost = [this](Rank peer, const std::string& cause) { note([&] { lost.push_back(std::to_string(peer.value()) + ": " + cause); }); };
  handlers.peer_left = [this](Rank peer) { note([&] { left.push_back(peer); }); };
  TransportOptions options;
  options.session = test_session();
  options.self = {rank, Incarnation{0}};
  options.transports = transports;
  options.in_flight_limit = in_flight_limit;
  transport_ = make_ucx_transport(options, *clock_, std::move(handlers));
  told_of_slots_ = transport_.get();
}

Node::~Node() {
  {
    std::vector<std::shared_ptr<const Parcel>> gone;
    {
      const std::lock_guard lock(mutex_);
      gone.swap(letters);
    }
  }
  told_of_slots_ = nullptr;
  transport_.reset();
  letters.clear();  // those that came meanwhile hold slots
}

void Node::note(const std::function<void()>& change) {
  const std::lock_guard lock(mutex_);
  change();
  changed_.notify_all();
}

Lease Node::take_slot(std::uint64_t /*bytes*/) {
  const std::lock_guard lock(mutex_);
  const auto free = std::find(used_.begin(), used_.end(), false);
  if (free == used_.end()) return {};
  *free = true;
  slots_used_at_once = std::max(slots_used_at_once, static_cast<std::size_t>(std::count(used_.begin(), used_.end(), true)));
  const auto index = static_cast<std::size_t>(free - used_.begin());
  return Lease{SlotIndex{static_cast<std::uint32_t>(index)}, slots_[index], [this, index] {
                 note([&] { used_[index] = false; });
                 if (Transport* const transport = told_of_slots_) transport->slot_available();
               }};
}

void Node::send(Rank peer, std::shared_ptr<const Parcel> parcel) {
  transport_->send(peer, std::move(parcel), [this](const Result<void>& result) {
    note([&] {
      ++(result.ok() ? sent : failed);
      if (!result.ok()) errors.push_back(result.error().message);
    });
  });
}

std::string Node::close(Rank peer, CloseMode mode, Nanos limit) {
  bool over = false;
  std::string answer;
  transport_->close(peer, mode, limit, [&](const Result<void>& result) {
    note([&] {
      if (!result.ok()) answer = result.error().message;
      over = true;
    });
  });
  return wait([&](const Node&) { return over; }, limit + std::chrono::seconds(5)) ? answer : "close hangs";
}

bool Node::wait(const std::function<bool(const Node&)>& condition, Nanos limit) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, limit, [&] { return condition(*this); });
}

std::shared_ptr<const Parcel> batch(Rank from, Rank to, std::uint64_t step, std::size_t payload) {
  const Heading heading{
      .to = {to, ActorKind::compute}, .from = {from, ActorKind::data_loader}, .where = {EpochId{1}, Step{step}, Micro{0}, Unit{0}}, .operation = {}};
  Lease lease;
  if (payload != 0) {
    auto memory = std::make_shared<std::vector<std::byte>>(payload);
    for (std::size_t i = 0; i + 8 <= payload; i += 8) {
      const std::uint64_t value = step * 0x9e3779b97f4a7c15ULL + i;
      std::memcpy(memory->data() + i, &value, sizeof value);
    }
    lease = Lease{SlotIndex{0}, *memory, [memory] {}};
  }
  return write<schema::BatchReady>(heading, [&](auto body) { body.setTokens(step); }, std::move(lease));
}

bool is_batch_payload(std::span<const std::byte> bytes, std::uint64_t step) {
  for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data() + i, sizeof value);
    if (value != step * 0x9e3779b97f4a7c15ULL + i) return false;
  }
  return true;
}

}  // namespace troupe::test
