#include "src/config/load_extension.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <iterator>

#include "src/model/extension.hpp"

namespace troupe {
namespace {

const std::vector<std::string> own_families{"llama3"}, own_losses{"cross_entropy"}, own_data_sets{"text", "jsonl"};

Error about(const std::string& library, const std::string& what) { return Error{"job.custom_import = \"" + library + "\": " + what}; }

/// Why the library was built for another program; empty: it fits.
std::string misfit(const ExtensionAbi& theirs) {
  constexpr ExtensionAbi ours;
  if (theirs.version != ours.version)
    return "it was built for version " + std::to_string(theirs.version) + " of src/model/extension.hpp, this program has " + std::to_string(ours.version) +
           "; build it again with this program's headers";
  if (std::string_view(theirs.compiler) != ours.compiler)
    return std::string("it was built with compiler ") + theirs.compiler + ", this program with " + ours.compiler + "; build it again with that";
  if (!std::equal(std::begin(theirs.sizes), std::end(theirs.sizes), std::begin(ours.sizes)))
    return "its types have other sizes than this program's: build it again with this program's headers and standard library";
  return {};
}

template <class T>
std::string unknown(const std::string& key, const std::string& name, const std::vector<std::string>& own, const std::map<std::string, T, std::less<>>& added) {
  if (std::find(own.begin(), own.end(), name) != own.end() || added.contains(name)) return {};
  std::string known;
  for (const auto& each : own) known += (known.empty() ? "" : ", ") + each;
  for (const auto& [each, value] : added) known += ", " + each;
  return key + " is \"" + name + "\", which neither this program nor the library has; there are " + known;
}

template <class T>
std::string taken(const char* what, const std::vector<std::string>& own, const std::map<std::string, T, std::less<>>& added) {
  for (const auto& name : own)
    if (added.contains(name)) return std::string("it adds the ") + what + " " + name + ", which is this program's own; give it another name";
  return {};
}

void resolve_data_set(DataSettings& data, const Extensions& extensions) {
  const auto found = extensions.data_sets.find(data.dataset);
  if (found == extensions.data_sets.end()) return;
  data.dataset = found->second.form;
  if (data.dataset_path.empty()) data.dataset_path = found->second.paths;
}

}  // namespace

Result<void> load_extension(JobConfig& config) {
  const std::string& path = config.job.custom_import;
  if (path.empty()) return {};
  std::error_code none;
  const std::string file = std::filesystem::exists(path, none) ? std::filesystem::absolute(path, none).string() : path;
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);  // stays: its code is called to the end
  if (library == nullptr) {
    const char* why = ::dlerror();
    return about(path, std::string("cannot be loaded: ") + (why != nullptr ? why : "no reason given"));
  }
  const auto* abi = static_cast<const ExtensionAbi*>(::dlsym(library, "troupe_extension_abi"));
  const auto add = reinterpret_cast<void (*)(Extensions&)>(::dlsym(library, "troupe_extension_register"));
  if (abi == nullptr || add == nullptr)
    return about(path, std::string("it has no symbol ") + (abi == nullptr ? "troupe_extension_abi" : "troupe_extension_register") +
                           ": a library of this kind ends with TROUPE_EXTENSION(function), see src/model/extension.hpp");
  if (const std::string why = misfit(*abi); !why.empty()) return about(path, why);
  const auto extensions = std::make_shared<Extensions>();
  try {
    add(*extensions);
  } catch (const std::exception& problem) {
    return about(path, std::string("it could not register: ") + problem.what());
  }
  for (const std::string& problem :
       {taken("family", own_families, extensions->families), taken("loss", own_losses, extensions->losses),
        taken("data set", own_data_sets, extensions->data_sets), unknown("model.name", config.model.name, own_families, extensions->families),
        unknown("training.loss", config.training.loss, own_losses, extensions->losses),
        unknown("training.dataset", config.data.dataset, own_data_sets, extensions->data_sets)})
    if (!problem.empty()) return about(path, problem);
  resolve_data_set(config.data, *extensions);
  config.model.extensions = extensions;
  return {};
}

Result<JobConfig> with_extension(Result<JobConfig> config) {
  if (!config) return config;
  if (auto loaded = load_extension(*config); !loaded) return loaded.error();
  return config;
}

}  // namespace troupe
