#pragma once
#include <caf/allowed_unsafe_message_type.hpp>
#include <type_traits>

#include "messages/kinds.hpp"

/// Letters travel through mailboxes as what they are: shared pointers, never serialised by CAF.
namespace caf {
template <class T>
struct allowed_unsafe_message_type<troupe::Letter<T>> : std::true_type {};
}  // namespace caf
