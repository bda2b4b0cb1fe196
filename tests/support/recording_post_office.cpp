#include "tests/support/recording_post_office.hpp"

#include <caf/actor.hpp>

#include "messages/edge_kind.hpp"

namespace troupe {

void RecordingPostOffice::post(std::shared_ptr<const Parcel> parcel) {
  const schema::Envelope::Reader envelope = parcel->envelope();
  const auto address = [](schema::Address::Reader of) { return ActorAddress{Rank{of.getRank()}, static_cast<ActorKind>(of.getActor())}; };
  Entry entry{envelope.getBody().which(),
              address(envelope.getFrom()),
              address(envelope.getTo()),
              where_of(envelope),
              OperationIndex{envelope.getWhere().getOperation()},
              {},
              nullptr};
  if (entry.kind == LetterKind::SLOT_HOME) {
    const auto home = envelope.getBody().getSlotHome();
    entry.slot = "slot " + std::to_string(home.getSlot()) + " of " + name_of(static_cast<EdgeKind>(home.getEdge()));
  }
  if (directory_.find(entry.to)) {
    entries_.push_back(std::move(entry));
    directory_.post(std::move(parcel));
    return;
  }
  entry.parcel = std::move(parcel);
  entries_.push_back(std::move(entry));
}

void RecordingPostOffice::forget() {
  std::vector<std::shared_ptr<const Parcel>> last;  // their leases' ends post letters here
  for (Entry& entry : entries_) last.push_back(std::move(entry.parcel));
}

}  // namespace troupe
