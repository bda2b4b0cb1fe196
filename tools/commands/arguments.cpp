#include <unistd.h>

#include <array>
#include <cstdlib>

#include "tools/commands/commands.hpp"

namespace troupe {

SplitArguments split_overrides(const std::vector<std::string>& arguments) {
  SplitArguments split;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const std::string_view name = std::string_view{argument}.substr(0, argument.find('='));
    if (name == "--job.config_file" || name == "--job.config-file") {  // torchtitan's spelling of the first argument
      if (name.size() != argument.size()) split.rest.push_back(argument.substr(name.size() + 1));
      continue;  // written apart, the file's name is the next argument, and like any other
    }
    if (!argument.starts_with("--") || name.find('.') == std::string_view::npos) {
      split.rest.push_back(argument);
      continue;
    }
    split.overrides.push_back(argument);
    if (name.size() != argument.size() || i + 1 >= arguments.size()) continue;
    const std::string& next = arguments[i + 1];
    if (next.starts_with("--") || next.ends_with(".toml")) continue;
    split.overrides.push_back(next);
    ++i;
  }
  return split;
}

void accept_run_folder(std::filesystem::path& config, std::vector<std::string>& overrides) {
  std::error_code none;
  if (!std::filesystem::is_directory(config, none) || !std::filesystem::exists(config / "config.toml", none)) return;
  overrides.insert(overrides.begin(), "--job.dump_folder=" + config.string());  // first: what the user wrote wins
  config /= "config.toml";
}

std::filesystem::path worker_program() {
  if (const char* named = std::getenv("TROUPE_WORKER"); named != nullptr && *named != '\0') return named;
  std::array<char, 4096> self{};
  const auto length = ::readlink("/proc/self/exe", self.data(), self.size() - 1);
  return std::filesystem::path(std::string(self.data(), length > 0 ? static_cast<std::size_t>(length) : 0)).parent_path() / "troupe-worker";
}

}  // namespace troupe
