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
};

}  // namespace troupe
