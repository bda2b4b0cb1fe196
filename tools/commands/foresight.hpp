#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace troupe {

/// What estimate, simulate and plan are asked.
struct ForesightRequest {
  std::filesystem::path config;
  std::vector<std::string> overrides;
  std::uint32_t ranks = 1;
  std::string device = "h200";    ///< --gpu
  std::filesystem::path network;  ///< --network
  bool json = false;
};

struct SimulateRequest : ForesightRequest {
  std::vector<std::filesystem::path> profiles;  ///< folders of runs with a trace
  std::uint64_t steps = 6;
  std::uint32_t unfolded = 64;
  std::filesystem::path trace;
  double death_hours = 0;  ///< --death-every; 0: nobody dies
  std::vector<std::uint64_t> intervals{1, 3, 10, 30, 100, 300, 1000};
  std::vector<std::string> changes;  ///< --change; empty: none
};

struct PlanRequest : ForesightRequest {
  std::filesystem::path out;  ///< empty: CONFIG's name with "-planned"
};

/// The commands that look ahead: adds them to the program, and runs the one that was called.
class ForesightCommands {
 public:
  /// `footer`: what the help of every command with a configuration ends with.
  void add_to(CLI::App& app, const std::string& footer);
  [[nodiscard]] bool called(const CLI::App& app) const;
  /// The exit code.
  [[nodiscard]] int run(const CLI::App& app, const std::vector<std::string>& overrides);

 private:
  ForesightRequest estimate_;
  SimulateRequest simulate_;
  PlanRequest plan_;
};

}  // namespace troupe
