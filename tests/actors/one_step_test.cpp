#include <fstream>
#include <sstream>

#include "tests/support/actor_fixture.hpp"

/// docs/one_step.md holds the order of letters of one step; this test holds the page to what the actors do.
namespace troupe {
namespace {

std::string actor_name(const ActorAddress& address) {
  switch (address.actor) {
    case ActorKind::data_loader: return "DataLoader";
    case ActorKind::compute: return "Compute";
    case ActorKind::sharding: return "Sharding";
    case ActorKind::checkpoint: return "Checkpoint";
    case ActorKind::metrics: return "Metrics";
    case ActorKind::supervisor: return "Supervisor";
    default: return "?";
  }
}

std::string padded(std::string text, std::size_t width) { return text.append(text.size() < width ? width - text.size() : 0, ' '); }

/// "Sharding    → Compute     WeightsGathered     gather L0"
std::string line_of(const RecordingPostOffice::Entry& entry, const Plan& plan) {
  std::string line = padded(actor_name(entry.from), 12) + "→ " + padded(actor_name(entry.to), 12) + padded(name_of(entry.kind), 17);
  if (entry.kind == LetterKind::SLOT_HOME) {
    line += entry.slot;
  } else if (entry.kind != LetterKind::STEP_BEGIN) {
    line += plan[entry.operation].name();
  }
  return line.substr(0, line.find_last_not_of(' ') + 1);
}

std::string block_of_the_page() {
  std::ifstream page(std::string(TROUPE_DOCS_DIR) + "/one_step.md");
  std::string line, block;
  bool inside = false;
  while (std::getline(page, line)) {
    if (line.starts_with("```")) {
      if (inside) break;
      inside = line == "```letters";
      continue;
    }
    if (inside) block += line + "\n";
  }
  return block;
}

class OneStepTest : public ActorFixture {};

TEST_F(OneStepTest, SendsItsLettersInTheOrderThatThePageShows) {
  const RankParts given = parts(two_units());
  spawn_all(given);
  actors().begin_step(Step{1}, StepKind::train, 3e-4, true);
  run_to_the_end();
  std::string actual;
  for (const RecordingPostOffice::Entry& entry : post.all()) {
    if (entry.kind == LetterKind::LANE_DONE) continue;  // each lane's own, to whoever posted: one for every operation
    actual += line_of(entry, given.plans->train) + "\n";
  }
  EXPECT_EQ(block_of_the_page(), actual) << "docs/one_step.md must show:\n" << actual;
}

}  // namespace
}  // namespace troupe
