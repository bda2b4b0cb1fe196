#include "tools/launcher/checkpoint_path.hpp"

#include <charconv>

namespace troupe {

Result<FoundCheckpoint> open_checkpoint_at(const std::filesystem::path& path, Storage& storage) {
  const std::filesystem::path folder = path.filename().empty() ? path.parent_path() : path;
  const std::string name = folder.filename().string();
  std::uint64_t step = 0;
  const bool named = name.starts_with("step-") && std::from_chars(name.data() + 5, name.data() + name.size(), step).ptr == name.data() + name.size();
  if (!named || name.size() == 5) return Error{path.string() + " is no checkpoint's folder: expected …/step-N"};
  if (!storage.exists(folder)) return Error{path.string() + ": there is no such folder (seen from " + std::filesystem::current_path().string() + ")"};
  return CheckpointStore(folder.parent_path(), storage).open(Step{step});
}

}  // namespace troupe
