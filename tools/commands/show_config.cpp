#include <cstdio>

#include "src/config/job_config.hpp"
#include "tools/commands/commands.hpp"

namespace troupe {

int show_config(const ConfigRequest& request) {
  if (request.doc) {
    std::fputs(JobConfig::reference_markdown().c_str(), stdout);
    return exit_done;
  }
  const auto config = JobConfig::load(request.config, request.overrides);
  if (!config) {
    std::fprintf(stderr, "%s\n", config.error().message.c_str());
    return exit_usage;
  }
  std::fputs(request.toml ? config->to_toml().c_str() : config->table().c_str(), stdout);
  for (const std::string& note : config->notes) std::fprintf(stderr, "note: %s\n", note.c_str());
  for (const std::string& line : config->not_built) std::fprintf(stderr, "troupe train would refuse: %s\n", line.c_str());
  return exit_done;
}

}  // namespace troupe
