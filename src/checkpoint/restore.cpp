#include "src/checkpoint/restore.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>

#include "src/checkpoint/state_rows.hpp"

namespace troupe {
namespace {

std::string text_of(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const auto size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

/// Opens each file of a checkpoint at most once.
class ShardFiles {
 public:
  ShardFiles(const Manifest& manifest, std::filesystem::path folder, Storage& storage) : manifest_(manifest), folder_(std::move(folder)), storage_(storage) {}
  [[nodiscard]] std::string path(std::uint32_t file) const { return (folder_ / manifest_.files[file].file).string(); }
  Result<void> read(std::uint32_t file, std::uint64_t offset, std::span<std::byte> out) {
    auto& reader = open_[file];
    if (!reader) {
      auto opened = storage_.open(path(file));
      if (!opened) return opened.error();
      if ((*opened)->size() != manifest_.files[file].bytes) {
        return Error{path(file) + ": has " + std::to_string((*opened)->size()) + " bytes, the manifest says " + std::to_string(manifest_.files[file].bytes)};
      }
      reader = std::move(*opened);
    }
    return reader->read_at(offset, out);
  }

 private:
  const Manifest& manifest_;
  std::filesystem::path folder_;
  Storage& storage_;
  std::map<std::uint32_t, std::unique_ptr<StorageReader>> open_;
};

Result<void> check_alike(const StateTensor& wanted, const StoredTensor& stored, const std::string& where) {
  const auto shape = sizes_of(wanted.global_shape);
  if (shape == stored.shape && wanted.view.dtype == stored.dtype) return {};
  return Error{where + ": tensor '" + wanted.name + "': expected " + std::string(safetensors_name(wanted.view.dtype)) + " " + text_of(shape) + ", found " +
               std::string(safetensors_name(stored.dtype)) + " " + text_of(stored.shape) + "; was the model's size changed?"};
}

Result<void> read_rows(const StateTensor& wanted, const StoredTensor& stored, ShardFiles& files, std::span<std::byte> out) {
  const std::uint64_t row = row_bytes(stored.shape, stored.dtype);
  const std::int64_t end = wanted.first_row + wanted.rows;
  for (std::int64_t at = wanted.first_row; at < end;) {
    const auto part = std::find_if(stored.parts.begin(), stored.parts.end(), [&](const auto& p) { return p.first_row <= at && at < p.first_row + p.rows; });
    if (part == stored.parts.end()) return Error{"tensor '" + wanted.name + "': row " + std::to_string(at) + " lies in no file of the checkpoint"};
    const std::int64_t count = std::min(end, part->first_row + part->rows) - at;
    const auto to = out.subspan(static_cast<std::uint64_t>(at - wanted.first_row) * row, static_cast<std::uint64_t>(count) * row);
    auto read = files.read(part->file, part->begin + static_cast<std::uint64_t>(at - part->first_row) * row, to);
    if (!read) return Error{"tensor '" + wanted.name + "': " + read.error().message};
    at += count;
  }
  return {};
}

}  // namespace

Result<void> restore_state(const Manifest& manifest, const std::filesystem::path& folder, Storage& storage, const StateTensors& state,
                           const RestoreOptions& options) {
  const std::string where = folder.string();
  if (manifest.position.model_only && !options.model_only) {
    return Error{
        where +
        ": holds weights only (checkpoint.last_save_model_only), so training cannot go on from it; resume from an older step with checkpoint.load_step"};
  }
  ShardFiles files(manifest, folder, storage);
  std::set<std::string> known;
  std::vector<std::byte> rows;
  for (const auto& tensor : state) {
    known.insert(tensor.name);
    if (!tensor.model && options.model_only) continue;
    const auto stored = manifest.tensors.find(tensor.name);
    if (stored == manifest.tensors.end()) return Error{where + ": tensor '" + tensor.name + "' is not in the checkpoint; was the model changed?"};
    if (auto alike = check_alike(tensor, stored->second, where); !alike) return alike.error();
    if (tensor.rows == 0) continue;
    if (!options.copy_in) {
      if (auto read = read_rows(tensor, stored->second, files, {tensor.view.data, valid_bytes(tensor)}); !read)
        return Error{where + ": " + read.error().message};
      continue;
    }
    rows.resize(valid_bytes(tensor));
    if (auto read = read_rows(tensor, stored->second, files, rows); !read) return Error{where + ": " + read.error().message};
    options.copy_in(rows.data(), tensor.view);
  }
  for (const auto& [name, tensor] : manifest.tensors) {
    if (!known.contains(name) && (tensor.model || !options.model_only))
      return Error{where + ": holds tensor '" + name + "', which this model does not have; was the model changed?"};
  }
  return {};
}

}  // namespace troupe
