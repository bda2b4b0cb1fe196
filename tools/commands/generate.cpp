#include <string>
#include <utility>
#include <vector>

#include "tools/commands/become_worker.hpp"
#include "tools/commands/commands.hpp"

namespace troupe {

int generate_text(const GenerateRequest& request) {
  std::vector<std::string> arguments{"--generate",    request.checkpoint.string(),         "--prompt", request.prompt,
                                     "--tokens",      std::to_string(request.tokens),      "--seed",   std::to_string(request.seed),
                                     "--temperature", std::to_string(request.temperature), "--top-p",  std::to_string(request.top_p)};
  if (!request.ids.empty()) arguments.insert(arguments.end(), {"--ids", request.ids});
  arguments.insert(arguments.end(), request.overrides.begin(), request.overrides.end());
  return become_worker(std::move(arguments));
}

}  // namespace troupe
