#include "messages/letter.hpp"

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

#include "messages/write.hpp"

namespace troupe {

Parcel::Parcel(kj::Array<capnp::word> words, Lease lease)
    : long_(kj::mv(words)), words_(long_), root_(capnp::readMessageUnchecked<schema::Envelope>(words_.begin() + 1)), lease_(std::move(lease)) {}

Parcel::Parcel(kj::ArrayPtr<const capnp::word> segment, Lease lease) : lease_(std::move(lease)) {
  const std::size_t count = segment.size() + 1;
  if (count > short_words) long_ = kj::heapArray<capnp::word>(count);
  capnp::word* const words = count > short_words ? long_.begin() : short_.data();
  const std::array<std::uint32_t, 2> table{0, static_cast<std::uint32_t>(segment.size())};  // number of segments - 1, words of the first
  std::memcpy(static_cast<void*>(words), table.data(), sizeof table);
  std::memcpy(static_cast<void*>(words + 1), segment.begin(), segment.size() * sizeof(capnp::word));
  words_ = kj::arrayPtr(words, count);
  root_ = capnp::readMessageUnchecked<schema::Envelope>(words + 1);
}

std::span<const std::byte> Parcel::bytes() const { return std::as_bytes(std::span(words_.begin(), words_.size())); }

Where where_of(schema::Envelope::Reader envelope) {
  const auto where = envelope.getWhere();
  return {EpochId{where.getEpoch()}, Step{where.getStep()}, Micro{where.getMicro()}, Unit{where.getUnit()}};
}

ActorAddress address_of(schema::Address::Reader address) { return {Rank{address.getRank()}, static_cast<ActorKind>(address.getActor())}; }

void set_heading(schema::Envelope::Builder envelope, const Heading& heading, const Lease& lease) {
  auto to = envelope.initTo();
  to.setRank(heading.to.rank.value());
  to.setActor(static_cast<std::uint16_t>(heading.to.actor));
  auto from = envelope.initFrom();
  from.setRank(heading.from.rank.value());
  from.setActor(static_cast<std::uint16_t>(heading.from.actor));
  auto where = envelope.initWhere();
  where.setEpoch(heading.where.epoch.value());
  where.setStep(heading.where.step.value());
  where.setMicro(heading.where.micro.value());
  where.setUnit(heading.where.unit.value());
  where.setOperation(heading.operation.value());
  where.setSlot(lease ? lease.slot().value() : 0);
  envelope.setSentNanos(static_cast<std::uint64_t>(heading.sent.count()));
  envelope.setFlow(heading.flow);
}

std::shared_ptr<const Parcel> seal(capnp::MallocMessageBuilder& builder, Lease lease) {
  const auto segments = builder.getSegmentsForOutput();
  if (segments.size() == 1 && (segments[0].size() + 1) * sizeof(capnp::word) <= max_letter_bytes) {
    return std::make_shared<const Parcel>(segments[0], std::move(lease));
  }
  const auto envelope = builder.getRoot<schema::Envelope>().asReader();
  const std::size_t words = envelope.totalSize().wordCount + 1;  // the root pointer
  if (const std::size_t bytes = (words + 1) * sizeof(capnp::word); bytes > max_letter_bytes) {
    throw std::length_error("cannot write a letter of kind " + std::string(name_of(envelope.getBody().which())) + ": it has " + std::to_string(bytes) +
                            " bytes, the limit is " + std::to_string(max_letter_bytes) + "; put bulk data into a slot");
  }
  capnp::MallocMessageBuilder joined(static_cast<unsigned>(words), capnp::AllocationStrategy::FIXED_SIZE);
  joined.setRoot(envelope);
  return std::make_shared<const Parcel>(capnp::messageToFlatArray(joined), std::move(lease));
}

}  // namespace troupe
