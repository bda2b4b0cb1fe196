#include "src/runtime/actor_system.hpp"

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>

namespace troupe {
namespace {

caf::actor_system_config& configure(caf::actor_system_config& config, const ActorSystem::Options& options) {
  config.set("scheduler.policy", options.testing ? caf::atom("testing") : caf::atom("sharing"));
  config.set("scheduler.max-threads", options.workers);
  config.set("scheduler.max-throughput", options.letters_per_wake_up);
  config.set("logger.verbosity", caf::atom("quiet"));
  return config;
}

}  // namespace

struct ActorSystem::Parts {
  explicit Parts(const Options& options) : system(configure(config, options)) {}
  caf::actor_system_config config;
  caf::actor_system system;
};

ActorSystem::ActorSystem(const Options& options) : parts_(std::make_unique<Parts>(options)) {}
ActorSystem::~ActorSystem() = default;
caf::actor_system& ActorSystem::caf() noexcept { return parts_->system; }

}  // namespace troupe
