#include "tools/commands/become_worker.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "tools/commands/commands.hpp"

namespace troupe {

int become_worker(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), worker_program().string());
  std::vector<char*> pointers;
  pointers.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  ::execv(pointers.front(), pointers.data());
  std::fprintf(stderr, "cannot start %s: %s; it belongs beside the program troupe (built with TROUPE_TORCH)\n", pointers.front(), std::strerror(errno));
  return exit_failed;
}

}  // namespace troupe
