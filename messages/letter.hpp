#pragma once
#include <capnp/message.h>
#include <capnp/serialize.h>

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "messages/actor_kind.hpp"
#include "messages/letters.capnp.h"
#include "src/base/clock.hpp"
#include "src/base/ids.hpp"
#include "src/base/lease.hpp"

namespace troupe {

/// An immutable envelope, sealed once, shared by whoever holds the letter; with it, optionally, the lease of a slot.
/// Readers may be used from any thread.
class Parcel {
 public:
  /// `words`: a message of one segment, passed by check_letter(); anything else is undefined.
  Parcel(kj::Array<capnp::word> words, Lease lease);
  /// Copies a builder's only segment; a short letter lies in the parcel itself, so that it costs one allocation.
  Parcel(kj::ArrayPtr<const capnp::word> segment, Lease lease);
  Parcel(const Parcel&) = delete;
  Parcel& operator=(const Parcel&) = delete;
  [[nodiscard]] schema::Envelope::Reader envelope() const { return root_; }
  [[nodiscard]] std::span<const std::byte> bytes() const;
  [[nodiscard]] const Lease& lease() const noexcept { return lease_; }

 private:
  static constexpr std::size_t short_words = 24;  ///< most letters between actors have 18 to 22
  std::array<capnp::word, short_words> short_;    ///< not set when `long_` holds the words
  kj::Array<capnp::word> long_;
  kj::ArrayPtr<const capnp::word> words_;  ///< our own, or checked by check_letter()
  schema::Envelope::Reader root_;          ///< without bounds or limit, so that reading writes nothing and threads share it freely
  Lease lease_;
};

/// The envelope's parts as our own types.
[[nodiscard]] Where where_of(schema::Envelope::Reader envelope);
[[nodiscard]] ActorAddress address_of(schema::Address::Reader address);

/// Which member of the body's union is T? Specialised for each kind in messages/kinds.hpp.
template <class T>
struct Body;

/// A letter of kind T: a shared pointer to its parcel. Handlers take `const Letter<T>&`.
template <class T>
class Letter {
 public:
  explicit Letter(std::shared_ptr<const Parcel> parcel) : parcel_(std::move(parcel)) {}
  [[nodiscard]] typename T::Reader body() const { return Body<T>::get(parcel_->envelope()); }
  [[nodiscard]] Where where() const { return where_of(parcel_->envelope()); }
  [[nodiscard]] OperationIndex operation() const { return OperationIndex{parcel_->envelope().getWhere().getOperation()}; }
  [[nodiscard]] ActorAddress from() const { return address_of(parcel_->envelope().getFrom()); }
  [[nodiscard]] ActorAddress to() const { return address_of(parcel_->envelope().getTo()); }
  [[nodiscard]] const Lease& lease() const noexcept { return parcel_->lease(); }
  [[nodiscard]] const std::shared_ptr<const Parcel>& parcel() const noexcept { return parcel_; }

 private:
  std::shared_ptr<const Parcel> parcel_;
};

/// What the writer of a letter says beside its body.
struct Heading {
  ActorAddress to, from;
  Where where;
  OperationIndex operation;
  Nanos sent{0};
  std::uint64_t flow = 0;
};

}  // namespace troupe
