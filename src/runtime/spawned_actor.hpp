#pragma once
#include <caf/actor.hpp>
#include <caf/actor_system.hpp>
#include <utility>

#include "src/runtime/actor_system.hpp"

namespace troupe {

/// An actor that a program has started, for its Directory, until it tells it to end: what main() needs instead of CAF. A value; any thread.
class SpawnedActor {
 public:
  SpawnedActor() = default;
  explicit SpawnedActor(caf::actor actor) : actor_(std::move(actor)) {}
  [[nodiscard]] const caf::actor& actor() const noexcept { return actor_; }
  /// The actor ends after the letters that it has. Does nothing if there is none, or the second time.
  void end();

 private:
  caf::actor actor_;
};

template <class Actor, class... Arguments>
[[nodiscard]] SpawnedActor spawn(ActorSystem& system, Arguments&&... arguments) {
  return SpawnedActor(system.caf().spawn<Actor>(std::forward<Arguments>(arguments)...));
}

}  // namespace troupe
