#include "src/transport/remote_links.hpp"

namespace troupe {

void RemoteLinks::set_home(Rank rank, Rank peer) {
  const std::lock_guard lock(mutex_);
  homes_[rank] = peer;
}

void RemoteLinks::send(std::shared_ptr<const Parcel> parcel) {
  const Rank to = address_of(parcel->envelope().getTo()).rank;
  Transport* transport = transport_.load();
  if (transport == nullptr) return failed(to, "this process has no transport yet");
  Rank peer = to;
  {
    const std::lock_guard lock(mutex_);
    if (const auto home = homes_.find(to); home != homes_.end()) peer = home->second;
  }
  transport->send(peer, std::move(parcel), [this, to](const Result<void>& result) {
    if (!result.ok()) failed(to, result.error().message);
  });
}

void RemoteLinks::failed(Rank to, const std::string& why) {
  ++failures_;
  if (on_failure_) on_failure_(to, why);
}

TransportHandlers deliver_into(PostOffice& post_office) {
  TransportHandlers handlers;
  handlers.letter = [&post_office](std::shared_ptr<const Parcel> parcel) { post_office.post(std::move(parcel)); };
  handlers.slot_for = [](schema::Envelope::Reader, std::uint64_t) { return Lease{}; };
  handlers.peer_lost = [](Rank, const std::string&) {};
  return handlers;
}

}  // namespace troupe
