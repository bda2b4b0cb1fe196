#include "tools/launcher/snapshot_courier.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "messages/kinds.hpp"
#include "messages/write.hpp"

namespace troupe {
namespace {

constexpr std::uint64_t piece_bytes = std::uint64_t{4} << 20U;
constexpr std::size_t pieces_ahead = 4;   ///< sent and not yet received
constexpr std::size_t most_buffers = 16;  ///< of pieces that come in

bool is_piece(schema::Envelope::Reader envelope) {
  const Rank from = address_of(envelope.getFrom()).rank;
  return envelope.getBody().which() == LetterKind::SNAPSHOT_KEPT && (from == launcher_rank || is_agent(from));
}

SnapshotName name_of(schema::Envelope::Reader piece) {
  const Where where = where_of(piece);
  return {Rank{where.micro.value()}, piece.getBody().getSnapshotKept().getSlot() - 1U, where.epoch, where.step};
}

std::string describe(const SnapshotName& name) { return fmt::format("the snapshot of rank {} after step {}", name.rank.value(), name.step.value()); }

}  // namespace

/// Pieces of one snapshot that were sent and are not there yet. Shared with the transport, whose callbacks may come late.
struct SnapshotCourier::Window {
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t out = 0;
  std::string problem;

  /// False: a piece was not delivered.
  bool wait_for_room() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return out < pieces_ahead || !problem.empty(); });
    ++out;
    return problem.empty();
  }
  void arrived(const Result<void>& result) {
    const std::lock_guard lock(mutex);
    --out;
    if (!result && problem.empty()) problem = result.error().message;
    changed.notify_all();
  }
  std::string wait_for_all() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return out == 0 || !problem.empty(); });
    return problem;
  }
  void give_up() {
    const std::lock_guard lock(mutex);
    problem = "the agent ends";
    changed.notify_all();
  }
};

SnapshotCourier::SnapshotCourier(Rank self, Told told)
    : self_(self), told_(std::move(told)), carrying_([this] { carry(); }), taking_in_([this] { take_in(); }) {}

SnapshotCourier::~SnapshotCourier() { stop(); }

void SnapshotCourier::stop() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
    if (window_) window_->give_up();
  }
  changed_.notify_all();
  if (carrying_.joinable()) carrying_.join();
  if (taking_in_.joinable()) taking_in_.join();
  const std::lock_guard lock(mutex_);
  link_ = nullptr;
}

void SnapshotCourier::use(LetterLink& link) {
  const std::lock_guard lock(mutex_);
  link_ = &link;
}

void SnapshotCourier::use_memory(int descriptor) {
  const std::lock_guard lock(mutex_);
  memory_ = descriptor;
}

TransportHandlers SnapshotCourier::around(TransportHandlers others) {
  TransportHandlers handlers = others;
  handlers.letter = [this, next = std::move(others.letter)](std::shared_ptr<const Parcel> parcel) {
    if (!is_piece(parcel->envelope())) return next(std::move(parcel));
    const std::lock_guard lock(mutex_);
    if (over_) return;
    pieces_.push_back(std::move(parcel));
    changed_.notify_all();
  };
  handlers.slot_for = [this, next = std::move(others.slot_for)](schema::Envelope::Reader envelope, std::uint64_t bytes) {
    return is_piece(envelope) ? slot_for(bytes) : next(envelope, bytes);
  };
  return handlers;
}

Lease SnapshotCourier::slot_for(std::uint64_t bytes) {
  if (bytes > piece_bytes) return {};
  {
    const std::lock_guard lock(mutex_);
    if (over_ || buffers_out_ == most_buffers) return {};
    ++buffers_out_;
  }
  auto buffer = std::make_shared<std::vector<std::byte>>(bytes);
  return Lease{SlotIndex{0}, *buffer, [this, buffer] {
                 LetterLink* link = nullptr;
                 {
                   const std::lock_guard lock(mutex_);
                   --buffers_out_;
                   link = link_;
                 }
                 if (link != nullptr) link->transport().slot_available();
               }};
}

void SnapshotCourier::send(const SnapshotName& snapshot, Rank to) {
  const std::lock_guard lock(mutex_);
  errands_.push_back({snapshot, to});
  changed_.notify_all();
}

std::vector<SnapshotName> SnapshotCourier::held() const {
  int memory = -1;
  {
    const std::lock_guard lock(mutex_);
    memory = memory_;
  }
  std::vector<SnapshotName> found;
  if (memory < 0) return found;
  for (const std::uint32_t place : AgentMemory::places(memory))
    for (const auto& [slot, epoch, step] : AgentMemory(memory, place).whole()) found.push_back({Rank{place}, slot, epoch, step});
  return found;
}

void SnapshotCourier::forget(EpochId before, Rank first, std::uint32_t ranks) {
  const std::lock_guard lock(mutex_);
  forget_ = Forget{before, first, ranks};
  changed_.notify_all();
}

void SnapshotCourier::carry() {
  while (true) {
    Errand errand;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return over_ || !errands_.empty(); });
      if (over_) return;
      errand = errands_.front();
      errands_.pop_front();
    }
    std::string problem = carry_out(errand);
    const bool sent = problem.empty();
    if (!sent) problem = fmt::format("{} was not sent to another host: {}", describe(errand.snapshot), problem);
    told_({.snapshot = errand.snapshot, .at = errand.to, .sent = sent, .problem = std::move(problem)});
  }
}

std::string SnapshotCourier::carry_out(const Errand& errand) {
  const SnapshotName& name = errand.snapshot;
  const Rank to = errand.to;
  LetterLink* link = nullptr;
  int memory = -1;
  const auto window = std::make_shared<Window>();
  {
    const std::lock_guard lock(mutex_);
    if (over_) return "the agent ends";
    link = link_;
    memory = memory_;
    window_ = window;
  }
  if (link == nullptr || memory < 0) return "this process is not linked to others";
  if (name.rank.value() >= AgentMemory::largest_place || name.slot >= AgentMemory::most_slots) return "the host agent's memory has no such place";
  auto found = AgentMemory(memory, name.rank.value()).own(name.slot, name.epoch, name.step);
  if (!found) return found.error().message;
  if (auto connected = link->connect_to(to); !connected) return connected.error().message;
  const auto kept = std::make_shared<AgentMemory::Kept>(std::move(*found));
  const std::uint64_t total = kept->bytes().size();
  std::uint32_t number = 0;
  for (std::uint64_t at = 0; at < total; at += piece_bytes, ++number) {
    if (!window->wait_for_room()) {
      window->arrived({});
      break;
    }
    const auto piece = kept->bytes().subspan(at, std::min(piece_bytes, total - at));
    // A lease's bytes may be written; those of a payload that is sent are only read, and these could not be written.
    const Lease lease(SlotIndex{0}, {const_cast<std::byte*>(piece.data()), piece.size()}, [kept] {});  // NOLINT(cppcoreguidelines-pro-type-const-cast)
    const Heading heading{
        {to, ActorKind::checkpoint}, {self_, ActorKind::checkpoint}, Where{name.epoch, name.step, Micro{name.rank.value()}, Unit{number}}, {}, Nanos{0}, 0};
    auto parcel = write<schema::SnapshotKept>(
        heading,
        [&](auto body) {
          body.setSlot(static_cast<std::uint8_t>(name.slot + 1));
          body.setBytes(total);
          body.setOk(true);
        },
        lease);
    link->transport().send(to, std::move(parcel), [window](const Result<void>& result) { window->arrived(result); });
  }
  return window->wait_for_all();
}

void SnapshotCourier::take_in() {
  while (true) {
    std::shared_ptr<const Parcel> piece;
    std::deque<std::shared_ptr<const Parcel>> given_up;  // let go of without the lock, which their slots take
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return over_ || !pieces_.empty() || forget_; });
      if (over_) {
        given_up.swap(pieces_);
        return;
      }
      if (const auto what = std::exchange(forget_, std::nullopt)) {
        lock.unlock();
        forget_now(*what);
        continue;
      }
      piece = std::move(pieces_.front());
      pieces_.pop_front();
    }
    const SnapshotName name = name_of(piece->envelope());
    try {
      write_piece(name, *piece);
    } catch (const std::exception& problem) {
      incoming_.erase(name.rank);
      told_({.snapshot = name, .at = self_, .problem = fmt::format("no room for a copy of {}: {}", describe(name), problem.what())});
    }
  }
}

void SnapshotCourier::write_piece(const SnapshotName& name, const Parcel& parcel) {
  const auto envelope = parcel.envelope();
  const auto body = envelope.getBody().getSnapshotKept();
  const auto bytes = parcel.lease().bytes();
  const std::uint64_t at = where_of(envelope).unit.value() * piece_bytes;
  const bool fits = bytes.size() == piece_bytes || at + bytes.size() == body.getBytes();
  if (name.slot >= AgentMemory::most_slots || bytes.empty() || at + bytes.size() > body.getBytes() || !fits) return;  // nothing that a courier sends
  auto& place = places_[name.rank];
  if (!place) place = std::make_unique<AgentMemory>(memory_, name.rank.value());
  if (place->written_by_rank(name.slot)) {  // it is late: what the rank keeps there now is newer
    std::erase_if(incoming_, [&](const auto& entry) { return entry.first == name.rank && entry.second.name.slot == name.slot; });
    return;
  }
  Incoming& copy = incoming_[name.rank];
  const std::size_t number = where_of(envelope).unit.value();
  if (copy.bytes != body.getBytes() || copy.name != name) {
    for (const auto& [slot, epoch, step] : place->whole()) {
      if (slot != name.slot || std::pair(epoch, step) < std::pair(name.epoch, name.step)) continue;
      incoming_.erase(name.rank);  // it was sent again and had come, or is late, and what came after it stays
      if (number == 0 && epoch == name.epoch && step == name.step) told_({.snapshot = name, .at = self_});
      return;
    }
    place->reserve_one(body.getBytes(), name.slot);
    const std::size_t pieces = (body.getBytes() + piece_bytes - 1) / piece_bytes;
    copy = Incoming{.name = name,
                    .bytes = body.getBytes(),
                    .pieces = std::vector<bool>(pieces),
                    .missing = pieces,
                    .into = place->open(name.slot, AgentMemory::Writer::courier)};
  }
  if (copy.pieces[number]) return;
  std::memcpy(copy.into.data() + at, bytes.data(), bytes.size());
  copy.pieces[number] = true;
  if (--copy.missing > 0) return;
  place->seal(name.slot, name.epoch, name.step, copy.bytes);
  incoming_.erase(name.rank);
  told_({.snapshot = name, .at = self_});
}

void SnapshotCourier::forget_now(const Forget& what) {
  std::erase_if(incoming_, [&](const auto& copy) { return copy.second.name.epoch < what.before; });
  for (auto place = places_.begin(); place != places_.end();) {
    const bool own = place->first >= what.first && place->first.value() - what.first.value() < what.ranks;
    if (own || incoming_.contains(place->first) || !place->second) {
      ++place;
      continue;
    }
    place->second->forget(what.before);
    place = places_.erase(place);  // unmapped: what is written there next takes its memory first
  }
}

}  // namespace troupe
