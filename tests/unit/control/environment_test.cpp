#include "tools/worker/environment.hpp"

#include <gtest/gtest.h>

#include <map>

namespace troupe {
namespace {

Result<WorkerPlace> place_in(std::map<std::string, std::string> variables) {
  return place_worker([variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional<std::string>{found->second};
  });
}

TEST(WorkerPlace, OfTorchrunHasItsCoordinatorBesideTheMastersPort) {
  const auto place = place_in({{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "0"}, {"MASTER_ADDR", "node7"}, {"MASTER_PORT", "29500"}});
  ASSERT_TRUE(place.ok()) << place.error().message;
  EXPECT_EQ(place->coordinator_host, "node7");
  EXPECT_EQ(place->coordinator_port, 29501);
  EXPECT_TRUE(place->hosts_coordinator);
  EXPECT_FALSE(place_in({{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "node7"}, {"MASTER_PORT", "29500"}})->hosts_coordinator);
}

TEST(WorkerPlace, OfSlurmIsTheFirstHostOfTheListUnlessTheMasterIsNamed) {
  const auto place = place_in({{"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "0"}, {"SLURM_NODELIST", "n[007-008,010]"}});
  ASSERT_TRUE(place.ok()) << place.error().message;
  EXPECT_EQ(place->coordinator_host, "n007");
  EXPECT_EQ(place->rank, Rank{2});
  EXPECT_EQ(place->coordinator_port, 29501);
  const auto named =
      place_in({{"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "4"}, {"SLURM_NODELIST", "n[007-008]"}, {"MASTER_ADDR", "n008"}, {"MASTER_PORT", "4000"}});
  EXPECT_EQ(named->coordinator_host, "n008");
  EXPECT_EQ(named->coordinator_port, 4001);
}

TEST(WorkerPlace, CoordinatorOfTroupeWinsOverStarters) {
  const auto place = place_in({{"TROUPE_COORDINATOR", "127.0.0.1:77"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "elsewhere"}, {"MASTER_PORT", "1"}});
  ASSERT_TRUE(place.ok()) << place.error().message;
  EXPECT_EQ(place->coordinator_port, 77);
  EXPECT_FALSE(place->hosts_coordinator);
}

TEST(WorkerPlace, ErrorsNameTheVariable) {
  EXPECT_NE(place_in({{"RANK", "one"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}).error().message.find("RANK is \"one\""),
            std::string::npos);
  EXPECT_NE(place_in({{"RANK", "2"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}).error().message.find("WORLD_SIZE is 2"),
            std::string::npos);
  EXPECT_NE(place_in({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "1"}}).error().message.find("MASTER_ADDR"), std::string::npos);
  EXPECT_NE(place_in({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_NODELIST", ""}}).error().message.find("SLURM_NODELIST"), std::string::npos);
  EXPECT_NE(place_in({{"TROUPE_COORDINATOR", "nonsense"}}).error().message.find("TROUPE_COORDINATOR"), std::string::npos);
  EXPECT_NE(place_in({}).error().message.find("troupe train"), std::string::npos);
}

}  // namespace
}  // namespace troupe
