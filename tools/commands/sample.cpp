#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "src/config/job_config.hpp"
#include "tools/commands/commands.hpp"

namespace troupe {

int sample(const SampleRequest& request) {
  if (const auto config = JobConfig::load(request.config, request.overrides); !config) {
    std::fprintf(stderr, "%s\n", config.error().message.c_str());
    return exit_usage;
  }
  std::vector<std::string> arguments{worker_program().string(),
                                     "--sample",
                                     request.config.string(),
                                     "--prompt",
                                     request.prompt,
                                     "--tokens",
                                     std::to_string(request.tokens),
                                     "--seed",
                                     std::to_string(request.seed),
                                     "--temperature",
                                     std::to_string(request.temperature)};
  if (!request.checkpoint.empty()) arguments.insert(arguments.end(), {"--checkpoint", request.checkpoint.string()});
  if (request.untrained) arguments.emplace_back("--untrained");
  arguments.insert(arguments.end(), request.overrides.begin(), request.overrides.end());
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  ::execv(pointers.front(), pointers.data());
  std::fprintf(stderr, "cannot start %s: %s; it belongs beside the program troupe (built with TROUPE_TORCH)\n", pointers.front(), std::strerror(errno));
  return exit_failed;
}

}  // namespace troupe
