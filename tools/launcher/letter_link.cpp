#include "tools/launcher/letter_link.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>

#include "messages/frame.hpp"
#include "messages/kinds.hpp"

namespace troupe {
namespace {

std::string as_text(const std::vector<std::byte>& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

}  // namespace

LetterLink::LetterLink(Directory& directory, const Clock& clock, Log& log, const TransportOptions& options, std::function<void(Rank, const std::string&)> lost,
                       const Around& around)
    : directory_(directory), clock_(clock), log_(log) {
  TransportHandlers handlers;
  handlers.letter = [this](std::shared_ptr<const Parcel> parcel) {
    {
      const std::lock_guard lock(mutex_);
      if (deaf_) return;
    }
    directory_.post(std::move(parcel));
  };
  handlers.slot_for = [](schema::Envelope::Reader, std::uint64_t) { return Lease{}; };
  handlers.peer_lost = std::move(lost);
  handlers.peer_left = [](Rank) {};
  transport_ = make_ucx_transport(options, clock, around ? around(std::move(handlers)) : std::move(handlers));
}

LetterLink::~LetterLink() = default;

std::vector<std::byte> LetterLink::address() const {
  const std::string text = transport_->address();
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return {data, data + text.size()};
}

Result<void> LetterLink::connect(Rank first, std::uint32_t ranks, Incarnation incarnation, const std::vector<std::byte>& address) {
  forget(first);
  if (auto connected = transport_->connect(first, incarnation, as_text(address)); !connected) return connected;
  const std::lock_guard lock(mutex_);
  peers_.push_back(first);
  for (std::uint32_t i = 0; i < ranks; ++i) processes_[Rank{first.value() + i}] = first;
  return {};
}

void LetterLink::forget(Rank first) {
  {
    const std::lock_guard lock(mutex_);
    if (std::erase(peers_, first) == 0) return;
    std::erase_if(processes_, [first](const auto& entry) { return entry.second == first; });
  }
  transport_->close(first, CloseMode::force, Nanos{0}, nullptr);
}

void LetterLink::know(const std::vector<Peer>& peers) {
  for (const Peer& peer : peers) {
    const bool again = [&] {
      const std::lock_guard lock(mutex_);
      const auto before = known_.find(peer.first);
      return before != known_.end() && before->second.incarnation != peer.incarnation;
    }();
    if (again) forget(peer.first);
    const std::lock_guard lock(mutex_);
    for (std::uint32_t i = 0; i < peer.ranks; ++i) known_[Rank{peer.first.value() + i}] = peer;
  }
}

Result<Rank> LetterLink::connected_process_of(Rank rank) {
  const std::lock_guard one_at_a_time(connecting_);
  Peer peer;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = processes_.find(rank); found != processes_.end()) return found->second;
    const auto known = known_.find(rank);
    if (known == known_.end()) return Error{fmt::format("the process of rank {} is not known", rank.value())};
    peer = known->second;
  }
  if (auto connected = connect(peer.first, peer.ranks, peer.incarnation, peer.address); !connected) return connected.error();
  return peer.first;
}

Result<void> LetterLink::connect_to(Rank rank) {
  auto process = connected_process_of(rank);
  if (!process) return process.error();
  return {};
}

Rank LetterLink::process_of(Rank rank) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = processes_.find(rank); found != processes_.end()) return found->second;
    if (!known_.contains(rank)) return rank;  // the transport says that there is no such peer
  }
  auto process = connected_process_of(rank);
  if (process) return *process;
  log_.warning(process.error().message);
  return rank;
}

void LetterLink::send(std::shared_ptr<const Parcel> parcel) {
  const Rank to{parcel->envelope().getTo().getRank()};
  const LetterKind kind = parcel->envelope().getBody().which();
  if (const std::size_t length = frame_header_bytes + parcel->bytes().size() + frame_mac_bytes; length > max_frame_bytes)
    return log_.error(fmt::format("a letter {} to rank {} of {} bytes was not sent: the limit between processes is {}; its reader waits in vain", name_of(kind),
                                  to.value(), length, max_frame_bytes));
  transport_->send(process_of(to), std::move(parcel), [this, to, kind](const Result<void>& sent) {
    if (!sent) log_.debug(fmt::format("a letter {} to rank {} was not delivered: {}", name_of(kind), to.value(), sent.error().message));
  });
}

void LetterLink::deafen() {
  const std::lock_guard lock(mutex_);
  deaf_ = true;
}

void LetterLink::close(Nanos limit) {
  struct Rest {
    std::mutex mutex;
    std::condition_variable changed;
    std::size_t open = 0;
  };
  const auto rest = std::make_shared<Rest>();
  std::vector<Rank> peers;
  {
    const std::lock_guard lock(mutex_);
    peers = peers_;
  }
  rest->open = peers.size();
  for (const Rank peer : peers)
    transport_->close(peer, CloseMode::flush, limit, [rest](const Result<void>&) {
      const std::lock_guard lock(rest->mutex);
      --rest->open;
      rest->changed.notify_all();
    });
  std::unique_lock lock(rest->mutex);
  rest->changed.wait_for(lock, limit, [&] { return rest->open == 0; });
}

Session session_of(const Secret& secret) {
  Session session;
  session.key = secret.derive("the key of letters");
  const Digest name = secret.derive("the number of the job");
  std::memcpy(&session.job, name.data(), sizeof(session.job));
  return session;
}

}  // namespace troupe
