#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "tools/commands/commands.hpp"

namespace troupe {

int generate_text(const GenerateRequest& request) {
  std::vector<std::string> arguments{worker_program().string(),
                                     "--generate",
                                     request.checkpoint.string(),
                                     "--prompt",
                                     request.prompt,
                                     "--tokens",
                                     std::to_string(request.tokens),
                                     "--seed",
                                     std::to_string(request.seed),
                                     "--temperature",
                                     std::to_string(request.temperature),
                                     "--top-p",
                                     std::to_string(request.top_p)};
  if (!request.ids.empty()) arguments.insert(arguments.end(), {"--ids", request.ids});
  arguments.insert(arguments.end(), request.overrides.begin(), request.overrides.end());
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  ::execv(pointers.front(), pointers.data());
  std::fprintf(stderr, "cannot start %s: %s; it belongs beside the program troupe (built with TROUPE_TORCH)\n", pointers.front(), std::strerror(errno));
  return exit_failed;
}

}  // namespace troupe
