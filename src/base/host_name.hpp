#pragma once
#include <unistd.h>

#include <array>
#include <string>

namespace troupe {

/// As gethostname() gives it; "localhost" where it gives none. Any thread.
inline std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

}  // namespace troupe
