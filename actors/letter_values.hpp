#pragma once
#include <vector>

#include "actors/membership.hpp"
#include "actors/step_join.hpp"
#include "messages/letter.hpp"

/// What letters to the Coordinator carry, as values.
namespace troupe {

[[nodiscard]] std::vector<ActorPulse> actors_of(schema::Heartbeat::Reader body);
[[nodiscard]] RankReport value_of(schema::StepReport::Reader body);

/// All of a report, to pass it on.
void copy_report(schema::StepReport::Reader from, schema::StepReport::Builder to);

}  // namespace troupe
