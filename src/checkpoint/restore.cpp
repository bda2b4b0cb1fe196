#include "src/checkpoint/restore.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <set>
#include <string>
#include <vector>

#include "src/checkpoint/shard_reads.hpp"
#include "src/checkpoint/state_rows.hpp"

namespace troupe {
namespace {

std::string text_of(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const auto size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

constexpr std::uint64_t batch_bytes = std::uint64_t{256} << 20U;  // of host memory that values pass through, where they must

Result<void> check_alike(const StateTensor& wanted, const StoredTensor& stored, const std::string& where) {
  const auto shape = sizes_of(wanted.global_shape);
  const StoredType own = stored_as(wanted.view.dtype);
  if (shape == stored.shape && (own == stored.dtype || (wanted.model && convertible(stored.dtype, own)))) return {};
  return Error{where + ": tensor '" + wanted.name + "': expected " + std::string(safetensors_name(own)) + " " + text_of(shape) + ", found " +
               std::string(safetensors_name(stored.dtype)) + " " + text_of(stored.shape) + "; was the model's size changed?"};
}

/// Fills tensors from a checkpoint, in batches: those that need it pass through host memory, for another type or another device.
class Filling {
 public:
  Filling(ShardReads& reads, const RestoreOptions& options) : reads_(reads), options_(options) {}
  Result<void> add(const StateTensor& tensor, const StoredTensor& stored) {
    const StoredType own = stored_as(tensor.view.dtype);
    if (!options_.copy_in && stored.dtype == own) return reads_.add_rows(stored, tensor.first_row, tensor.rows, {tensor.view.data, valid_bytes(tensor)});
    Passing& passing = passing_.emplace_back(Passing{&tensor, stored.dtype, {}});
    passing.bytes.resize(valid_bytes(tensor) / size_of(own) * size_of(stored.dtype));
    passing_bytes_ += passing.bytes.size();
    if (auto added = reads_.add_rows(stored, tensor.first_row, tensor.rows, passing.bytes); !added) return added;
    return passing_bytes_ < batch_bytes ? Result<void>{} : finish();
  }
  Result<void> finish() {
    if (auto read = reads_.run(); !read) return read;
    for (const Passing& passing : passing_) place(passing);
    passing_.clear();
    passing_bytes_ = 0;
    return {};
  }

 private:
  struct Passing {
    const StateTensor* tensor;
    StoredType type;
    std::vector<std::byte> bytes;
  };
  void place(const Passing& passing) const {
    const StateTensor& tensor = *passing.tensor;
    const StoredType own = stored_as(tensor.view.dtype);
    std::vector<std::byte> changed;
    const std::vector<std::byte>* values = &passing.bytes;
    if (passing.type != own) {
      changed.resize(valid_bytes(tensor));
      convert(passing.bytes, passing.type, changed, own);
      values = &changed;
    }
    if (options_.copy_in)
      options_.copy_in(values->data(), tensor.view);
    else
      std::memcpy(tensor.view.data, values->data(), values->size());
  }
  ShardReads& reads_;
  const RestoreOptions& options_;
  std::deque<Passing> passing_;  // ranges point into it
  std::uint64_t passing_bytes_ = 0;
};

}  // namespace

Result<void> restore_state(const Manifest& manifest, const std::filesystem::path& folder, Storage& storage, const StateTensors& state,
                           const RestoreOptions& options) {
  const std::string where = folder.string();
  if (manifest.position.model_only && !options.model_only) {
    return Error{
        where +
        ": holds weights only (checkpoint.last_save_model_only), so training cannot go on from it; resume from an older step with checkpoint.load_step"};
  }
  ShardReads reads(manifest, folder, storage);
  Filling filling(reads, options);
  std::set<std::string> known;
  for (const auto& tensor : state) {
    known.insert(tensor.name);
    if (tensor.model ? options.leave_model : options.model_only) continue;
    const auto stored = manifest.tensors.find(tensor.name);
    if (stored == manifest.tensors.end()) return Error{where + ": tensor '" + tensor.name + "' is not in the checkpoint; was the model changed?"};
    if (auto alike = check_alike(tensor, stored->second, where); !alike) return alike.error();
    if (tensor.rows == 0) continue;
    if (auto added = filling.add(tensor, stored->second); !added) return Error{where + ": tensor '" + tensor.name + "': " + added.error().message};
  }
  if (auto read = filling.finish(); !read) return read;
  for (const auto& [name, tensor] : manifest.tensors) {
    if (!options.leave.empty() && name.starts_with(options.leave)) continue;
    if (!known.contains(name) && !(tensor.model ? options.leave_model : options.model_only))
      return Error{where + ": holds tensor '" + name + "', which this model does not have; was the model changed?"};
  }
  return {};
}

}  // namespace troupe
