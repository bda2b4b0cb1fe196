#pragma once
#include <capnp/message.h>

#include <array>
#include <cstddef>
#include <memory>
#include <utility>

#include "messages/kinds.hpp"

namespace troupe {

/// The longest letter, Cap'n Proto's segment table included. Bulk data goes into slots, never into a letter.
inline constexpr std::size_t max_letter_bytes = std::size_t{1} << 20;

/// Words of the builder's first segment, on the stack: nearly every letter fits.
inline constexpr std::size_t letter_scratch_words = 96;

/// Sets everything of the envelope but the body; the slot is the lease's.
void set_heading(schema::Envelope::Builder envelope, const Heading& heading, const Lease& lease);

/// Joins what was built into one segment. Throws std::length_error, naming the kind, if the letter is longer than max_letter_bytes.
[[nodiscard]] std::shared_ptr<const Parcel> seal(capnp::MallocMessageBuilder& builder, Lease lease);

/// Writes a letter of kind T. `fill` sets the body: [](auto body) { body.setTokens(4); }. Any thread; never blocks.
template <class T, class Fill>
[[nodiscard]] std::shared_ptr<const Parcel> write(const Heading& heading, Fill&& fill, Lease lease = {}) {
  std::array<capnp::word, letter_scratch_words> scratch{};  // Cap'n Proto requires zeroes
  capnp::MallocMessageBuilder builder(kj::arrayPtr(scratch.data(), scratch.size()));
  auto envelope = builder.initRoot<schema::Envelope>();
  set_heading(envelope, heading, lease);
  std::forward<Fill>(fill)(Body<T>::init(envelope));
  return seal(builder, std::move(lease));
}

}  // namespace troupe
