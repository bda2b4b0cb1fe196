#pragma once
#include <string>

#include "src/base/result.hpp"

namespace troupe {

/// The first IPv4 address of this host's network interface `name`, dotted. An error names the interfaces that have one.
[[nodiscard]] Result<std::string> address_of_interface(const std::string& name);

}  // namespace troupe
