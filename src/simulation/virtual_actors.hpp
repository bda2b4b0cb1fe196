#pragma once
#include <cstddef>

#include "src/runtime/actor_system.hpp"
#include "src/runtime/directory.hpp"

namespace caf::scheduler {
class test_coordinator;
}

namespace troupe {

/// The actor system of a virtual world: CAF's test scheduler, whose queue of actors that want to run the world works off in an order
/// of its choice. One thread.
class VirtualActors {
 public:
  VirtualActors();
  ~VirtualActors();  ///< every actor must have been told to end
  VirtualActors(const VirtualActors&) = delete;
  VirtualActors& operator=(const VirtualActors&) = delete;

  [[nodiscard]] ActorSystem& system() noexcept { return system_; }
  [[nodiscard]] Directory& directory() noexcept { return directory_; }
  [[nodiscard]] std::size_t jobs() const;
  /// Runs the `index`-th actor that wants to run; false: none does.
  bool run_one(std::size_t index);
  /// Clears the directory and runs what is left to run. The destructor does it otherwise.
  void end();

 private:
  ActorSystem system_;
  caf::scheduler::test_coordinator* scheduler_;
  Directory directory_;
};

}  // namespace troupe
