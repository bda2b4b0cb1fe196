#pragma once
#include <memory>

namespace caf {
class actor_system;
}

namespace troupe {

/// CAF's actor system with the options that Troupe wants, so that main() needs no CAF header: policy `sharing` (sleeps when idle),
/// two workers, 50 letters a wake-up. The destructor waits until every actor is gone: clear the Directory and tell the actors to
/// end before, or it never returns.
class ActorSystem {
 public:
  struct Options {
    bool testing = false;  ///< CAF's test scheduler: nothing runs until the test says so, one letter at a time
    unsigned workers = 2;
    unsigned letters_per_wake_up = 50;
  };
  ActorSystem() : ActorSystem(Options{}) {}
  explicit ActorSystem(const Options& options);
  ~ActorSystem();
  ActorSystem(const ActorSystem&) = delete;
  ActorSystem& operator=(const ActorSystem&) = delete;
  [[nodiscard]] caf::actor_system& caf() noexcept;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace troupe
