#include "src/simulation/virtual_clock.hpp"

#include <algorithm>

namespace troupe {

void VirtualClock::at(Nanos time, std::function<void()> then) {
  events_.emplace(Key{std::max(time, now_), seed_ == 0 ? 0 : random_(), sequence_++}, std::move(then));
}

void VirtualClock::advance() {
  auto event = events_.extract(events_.begin());
  now_ = event.key().time;
  event.mapped()();
}

}  // namespace troupe
