#include "src/simulation/virtual_actors.hpp"

#include <algorithm>
#include <caf/actor_system.hpp>
#include <caf/scheduler/test_coordinator.hpp>

namespace troupe {
namespace {

caf::scheduler::test_coordinator& scheduler_of(ActorSystem& system) { return dynamic_cast<caf::scheduler::test_coordinator&>(system.caf().scheduler()); }

}  // namespace

VirtualActors::VirtualActors() : system_(ActorSystem::Options{.testing = true}), scheduler_(&scheduler_of(system_)) {}

VirtualActors::~VirtualActors() { end(); }

std::size_t VirtualActors::jobs() const { return scheduler_->jobs.size(); }

bool VirtualActors::run_one(std::size_t index) {
  auto& queue = scheduler_->jobs;
  if (queue.empty()) return false;
  std::rotate(queue.begin(), queue.begin() + static_cast<std::ptrdiff_t>(index % queue.size()), queue.end());
  return scheduler_->try_run_once();
}

void VirtualActors::end() {
  directory_.clear();
  while (run_one(0)) {}
}

}  // namespace troupe
