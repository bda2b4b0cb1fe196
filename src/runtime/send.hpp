#pragma once
#include <utility>

#include "messages/write.hpp"
#include "src/runtime/actor_row.hpp"
#include "src/runtime/runtime.hpp"
#include "src/trace/tracer.hpp"

namespace troupe {

template <class T, class Fill>
void send(Runtime& runtime, const Heading& heading, Fill&& fill, Lease lease) {
  Heading complete = heading;
  complete.sent = runtime.clock.now();
  if (runtime.tracer) {
    complete.flow = runtime.tracer->next_flow();
    runtime.tracer->letter_sent(heading.from.rank, actor_row(heading.from.actor), name_of(Body<T>::kind), complete.flow, heading.where, complete.sent);
  }
  runtime.post_office.post(write<T>(complete, std::forward<Fill>(fill), std::move(lease)));
}

}  // namespace troupe
