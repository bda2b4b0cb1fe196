#pragma once
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/memory_storage.hpp"
#include "tests/unit/checkpoint/training_state.hpp"

namespace troupe::testing {

inline const std::filesystem::path folder = "/run/checkpoint";

inline std::vector<std::string> names_in(MemoryStorage& storage) {
  std::vector<std::string> names;
  const auto entries = storage.list(folder);
  for (const auto& entry : *entries) names.push_back(entry.name);
  return names;
}

/// Step of the newest good checkpoint, loaded and compared into a world of this many ranks; 0: none. Fails the test when it differs.
inline std::uint64_t loaded_step(MemoryStorage& storage, std::uint32_t ranks) {
  World world(ranks, storage, folder);
  std::vector<std::string> warnings;
  const auto found = world.store.find(-1, true, warnings);
  EXPECT_TRUE(found) << found.error().message;
  if (!found || !*found) return 0;
  const auto loaded = world.load(**found);
  EXPECT_TRUE(loaded) << loaded.error().message;
  const auto step = (*found)->manifest.position.step.value();
  EXPECT_TRUE(world.equals_step(step)) << "step " << step;
  return step;
}

}  // namespace troupe::testing
