#include "src/collectives/collective_mail.hpp"

#include <utility>
#include <vector>

#include "messages/kinds.hpp"
#include "src/collectives/collective_inbox.hpp"

namespace troupe {
namespace {

constexpr std::size_t early_limit = 4096;

bool is_collective(schema::Envelope::Reader envelope) { return envelope.getBody().which() == LetterKind::COLLECTIVE_PART; }
std::uint64_t key_of(schema::Envelope::Reader envelope) { return envelope.getBody().getCollectivePart().getCommunicator(); }

}  // namespace

TransportHandlers CollectiveMail::around(TransportHandlers others) {
  TransportHandlers handlers = others;
  handlers.letter = [this, next = std::move(others.letter)](std::shared_ptr<const Parcel> parcel) {
    if (!deliver(parcel)) next(std::move(parcel));
  };
  handlers.slot_for = [this, next = std::move(others.slot_for)](schema::Envelope::Reader envelope, std::uint64_t bytes) {
    auto ours = slot_for(envelope, bytes);
    return ours ? std::move(*ours) : next(envelope, bytes);
  };
  handlers.peer_lost = [this, next = std::move(others.peer_lost)](Rank peer, const std::string& cause) {
    peer_lost(peer, cause);
    next(peer, cause);
  };
  return handlers;
}

std::shared_ptr<CollectiveInbox> CollectiveMail::find(std::uint64_t key) {
  const std::lock_guard lock(mutex_);
  const auto found = inboxes_.find(key);
  return found == inboxes_.end() ? nullptr : found->second;
}

void CollectiveMail::add(std::uint64_t key, const std::shared_ptr<CollectiveInbox>& inbox) {
  const std::lock_guard lock(mutex_);
  inboxes_[key] = inbox;
  for (const auto& parcel : early_) {
    if (key_of(parcel->envelope()) == key) inbox->put(parcel);
  }
  std::erase_if(early_, [&](const auto& parcel) { return key_of(parcel->envelope()) == key; });
}

void CollectiveMail::remove(std::uint64_t key) {
  const std::lock_guard lock(mutex_);
  inboxes_.erase(key);
}

bool CollectiveMail::deliver(const std::shared_ptr<const Parcel>& parcel) {
  if (!is_collective(parcel->envelope())) return false;
  std::shared_ptr<CollectiveInbox> inbox;
  {
    const std::lock_guard lock(mutex_);
    const auto found = inboxes_.find(key_of(parcel->envelope()));
    if (found == inboxes_.end()) {
      // A member that was made before ours says so; chunks come only after all have.
      if (early_.size() >= early_limit) early_.pop_front();
      if (!parcel->lease()) early_.push_back(parcel);
      return true;
    }
    inbox = found->second;
  }
  inbox->put(parcel);
  return true;
}

std::optional<Lease> CollectiveMail::slot_for(schema::Envelope::Reader envelope, std::uint64_t bytes) {
  if (!is_collective(envelope)) return std::nullopt;
  if (const auto inbox = find(key_of(envelope))) return inbox->slot_for(envelope, bytes);
  return nowhere(bytes);  // of a communicator that is gone
}

void CollectiveMail::peer_lost(Rank peer, const std::string& cause) {
  std::vector<std::shared_ptr<CollectiveInbox>> all;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, inbox] : inboxes_) all.push_back(inbox);
  }
  for (const auto& inbox : all) inbox->peer_lost(peer, cause);
}

}  // namespace troupe
