#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "src/config/job_config.hpp"
#include "tools/commands/become_worker.hpp"
#include "tools/commands/commands.hpp"

namespace troupe {

int sample(const SampleRequest& request) {
  if (const auto config = JobConfig::load(request.config, request.overrides); !config) {
    std::fprintf(stderr, "%s\n", config.error().message.c_str());
    return exit_usage;
  }
  std::vector<std::string> arguments{"--sample",      request.config.string(),
                                     "--prompt",      request.prompt,
                                     "--tokens",      std::to_string(request.tokens),
                                     "--seed",        std::to_string(request.seed),
                                     "--temperature", std::to_string(request.temperature)};
  if (!request.checkpoint.empty()) arguments.insert(arguments.end(), {"--checkpoint", request.checkpoint.string()});
  if (request.untrained) arguments.emplace_back("--untrained");
  arguments.insert(arguments.end(), request.overrides.begin(), request.overrides.end());
  return become_worker(std::move(arguments));
}

}  // namespace troupe
