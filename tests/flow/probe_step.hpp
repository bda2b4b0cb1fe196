#pragma once
#include <chrono>
#include <cstdint>

#include "tests/support/virtual_world_job.hpp"

namespace troupe {

/// Probe p13's step: eight layers, each gathered again for its backward, two micro-batches, nothing but what overlaps.
inline FlowKnobs probe_step(std::uint32_t slots) {
  FlowKnobs knobs;
  knobs.layers = 8;
  knobs.plain_layers = true;
  knobs.micro_batches = 2;
  knobs.steps = 3;
  knobs.begun_ahead = 2;
  knobs.slots = {slots, slots, slots, 1};
  knobs.forward = std::chrono::milliseconds{3};
  knobs.backward = std::chrono::milliseconds{6};
  knobs.gather = knobs.reduce = std::chrono::microseconds{2500};
  knobs.load = std::chrono::milliseconds{4};
  return knobs;
}

}  // namespace troupe
