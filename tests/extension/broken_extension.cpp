#include <stdexcept>

#include "src/model/extension.hpp"

/// What a library of job.custom_import can get wrong; BROKEN says which.
extern "C" {
#if BROKEN == 1  // built for another version of the header
extern const troupe::ExtensionAbi troupe_extension_abi;
const troupe::ExtensionAbi troupe_extension_abi{.version = 77};
#elif BROKEN == 2  // by another compiler
extern const troupe::ExtensionAbi troupe_extension_abi;
const troupe::ExtensionAbi troupe_extension_abi{.compiler = "another compiler"};
#elif BROKEN == 3  // with types of other sizes
extern const troupe::ExtensionAbi troupe_extension_abi;
const troupe::ExtensionAbi troupe_extension_abi{.sizes = {1, 2, 3, 4, 5, 6}};
#elif BROKEN == 4 || BROKEN == 5
extern const troupe::ExtensionAbi troupe_extension_abi;
const troupe::ExtensionAbi troupe_extension_abi{};
#endif
#if BROKEN != 0
void troupe_extension_register(troupe::Extensions& to) {
  if (BROKEN == 4) throw std::runtime_error("no licence");
  to.families["llama3"] = {};
}
#endif
}
