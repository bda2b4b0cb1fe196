#include "src/checkpoint/export_hugging_face.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "src/checkpoint/foreign_tensors.hpp"
#include "src/checkpoint/hugging_face.hpp"
#include "src/checkpoint/safetensors.hpp"
#include "src/checkpoint/shard_reads.hpp"
#include "src/checkpoint/state_rows.hpp"
#include "src/checkpoint/tensor_names.hpp"

namespace troupe {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t block_bytes = std::uint64_t{16} << 20U;
constexpr std::array asset_files = {
    "tokenizer.json", "tokenizer_config.json", "tokenizer.model",       "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "merges.txt",     "chat_template.jinja",   "generation_config.json"};

struct Outgoing {
  std::string name;
  const StoredTensor* stored;
  RowOrder order;
  StoredType dtype;
  std::uint64_t bytes;
};

Result<std::vector<Outgoing>> tensors_of(const FoundCheckpoint& checkpoint, const ExportPlan& plan) {
  const ForeignNames* const names = hugging_face_names(plan.family);
  if (names == nullptr) return Error{"model.name = \"" + plan.family + "\": there is no table of its names in Hugging Face's files"};
  std::vector<Outgoing> out;
  for (const auto& [name, stored] : checkpoint.manifest.tensors) {
    if (!stored.model) continue;
    const auto there = name_there(*names, name);
    if (!there) return Error{checkpoint.folder.string() + ": tensor '" + name + "' has no name in Hugging Face's files"};
    const StoredType dtype = plan.dtype.value_or(stored.dtype);
    const auto bytes = bytes_of_shape(stored.shape, dtype);
    if (!bytes || !convertible(stored.dtype, dtype))
      return Error{checkpoint.folder.string() + ": tensor '" + name + "' is " + std::string(safetensors_name(stored.dtype)) + ", which does not become " +
                   std::string(safetensors_name(dtype))};
    out.push_back({there->name, &stored, there->order, dtype, *bytes});
  }
  return out;
}

/// Tensors in files of at most so many bytes, in order.
std::vector<std::vector<Outgoing>> in_files(std::vector<Outgoing> tensors, std::uint64_t most) {
  std::vector<std::vector<Outgoing>> files;
  std::uint64_t used = 0;
  for (Outgoing& tensor : tensors) {
    if (files.empty() || used + tensor.bytes > most) {
      files.emplace_back();
      used = 0;
    }
    used += tensor.bytes;
    files.back().push_back(std::move(tensor));
  }
  return files;
}

std::string file_name(std::size_t number, std::size_t files) {
  if (files == 1) return hugging_face_single;
  const auto padded = [](std::size_t n) {
    const std::string text = std::to_string(n);
    return std::string(text.size() < 5 ? 5 - text.size() : 0, '0') + text;
  };
  return "model-" + padded(number + 1) + "-of-" + padded(files) + ".safetensors";
}

class Export {
 public:
  Export(const FoundCheckpoint& checkpoint, Storage& storage, const ExportPlan& plan, fs::path folder)
      : checkpoint_(checkpoint), storage_(storage), plan_(plan), folder_(std::move(folder)), reads_(checkpoint.manifest, checkpoint.folder, storage) {}

  Result<void> run() {
    auto tensors = tensors_of(checkpoint_, plan_);
    if (!tensors) return tensors.error();
    if (tensors->empty()) return Error{checkpoint_.folder.string() + ": holds no weights"};
    const StoredType dtype = tensors->front().dtype;
    const auto files = in_files(std::move(*tensors), plan_.most_file_bytes);
    nlohmann::ordered_json map = nlohmann::ordered_json::object();
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < files.size(); ++i) {
      const std::string name = file_name(i, files.size());
      if (auto written = write_tensors(folder_ / name, files[i]); !written) return written;
      for (const Outgoing& tensor : files[i]) {
        map[tensor.name] = name;
        total += tensor.bytes;
      }
    }
    if (files.size() > 1) {
      const nlohmann::ordered_json index{{"metadata", {{"total_size", total}}}, {"weight_map", map}};
      if (auto written = write_text(hugging_face_index, index.dump(2) + "\n"); !written) return written;
    }
    if (auto written = write_text("config.json", write_model_facts(plan_.facts, plan_.family, dtype)); !written) return written;
    for (const char* asset : asset_files)
      if (auto copied = copy_asset(asset); !copied) return copied;
    return storage_.sync_folder(folder_);
  }

 private:
  Result<void> write_tensors(const fs::path& file, const std::vector<Outgoing>& tensors) {
    SafetensorsHeader header;
    header.metadata = {{"format", "pt"}};
    std::uint64_t at = 0;
    for (const Outgoing& tensor : tensors) {
      header.tensors.push_back({tensor.name, tensor.dtype, tensor.stored->shape, at, at + tensor.bytes});
      at += tensor.bytes;
    }
    auto writer = storage_.create(file);
    if (!writer) return writer.error();
    const std::string text = write_safetensors_header(header, 4096);
    if (auto written = (*writer)->write(std::as_bytes(std::span(text))); !written) return written;
    for (const Outgoing& tensor : tensors)
      if (auto written = write_tensor(**writer, tensor); !written) return Error{"tensor '" + tensor.name + "': " + written.error().message};
    return (*writer)->sync();
  }
  Result<void> write_tensor(StorageWriter& writer, const Outgoing& tensor) {
    const StoredTensor& stored = *tensor.stored;
    const std::int64_t rows = stored.shape.empty() ? 1 : stored.shape.front(), unit = tensor.order == RowOrder::same ? 1 : plan_.head_dim;
    const std::uint64_t row = row_bytes(stored.shape, stored.dtype);
    const std::int64_t block = std::max(unit, static_cast<std::int64_t>(block_bytes / std::max<std::uint64_t>(row, 1)) / unit * unit);
    for (std::int64_t first = 0; first < rows; first += block) {
      const std::int64_t count = std::min(block, rows - first);
      values_.resize(static_cast<std::size_t>(count) * row);
      if (auto added = reads_.add_rows(stored, first, count, values_); !added) return added;
      if (auto read = reads_.run(); !read) return read;
      std::vector<std::byte>* from = &values_;
      if (tensor.order != RowOrder::same) {
        other_.resize(values_.size());
        for (std::int64_t r = 0; r < count; ++r)  // whole heads, so that rows stay in the block
          std::memcpy(other_.data() + static_cast<std::size_t>(row_there(tensor.order, plan_.head_dim, first + r) - first) * row,
                      values_.data() + static_cast<std::size_t>(r) * row, row);
        from = &other_;
      }
      if (tensor.dtype != stored.dtype) {
        std::vector<std::byte>& to = from == &values_ ? other_ : values_;
        to.resize(from->size() / size_of(stored.dtype) * size_of(tensor.dtype));
        convert(*from, stored.dtype, to, tensor.dtype);
        from = &to;
      }
      if (auto written = writer.write(*from); !written) return written;
    }
    return {};
  }
  Result<void> write_text(const fs::path& name, const std::string& text) {
    auto writer = storage_.create(folder_ / name);
    if (!writer) return writer.error();
    if (auto written = (*writer)->write(std::as_bytes(std::span(text))); !written) return written;
    return (*writer)->sync();
  }
  Result<void> copy_asset(const char* name) {
    if (plan_.assets.empty() || !storage_.exists(plan_.assets / name)) return {};
    const auto text = read_text(storage_, plan_.assets / name, std::uint64_t{1} << 28U);
    return text ? write_text(name, *text) : Result<void>{text.error()};
  }
  const FoundCheckpoint& checkpoint_;
  Storage& storage_;
  const ExportPlan& plan_;
  fs::path folder_;
  ShardReads reads_;
  std::vector<std::byte> values_, other_;
};

}  // namespace

Result<void> export_hugging_face(const FoundCheckpoint& checkpoint, Storage& storage, const ExportPlan& plan, const fs::path& out) {
  const fs::path target = fs::absolute(out).lexically_normal(), to = target.filename().empty() ? target.parent_path() : target;
  if (storage.exists(to)) {
    const auto entries = storage.list(to);
    if (!entries) return entries.error();
    if (!entries->empty()) return Error{to.string() + " is there already and is not empty: name another folder, or remove it"};
  }
  const fs::path writing = to.string() + ".tmp";
  if (auto removed = storage.remove(writing); !removed) return removed;
  if (auto made = storage.make_folders(writing); !made) return made;
  if (auto written = Export(checkpoint, storage, plan, writing).run(); !written) {
    (void)storage.remove(writing);
    return written;
  }
  if (auto renamed = storage.rename(writing, to); !renamed) return renamed;
  return storage.sync_folder(to.parent_path());
}

}  // namespace troupe
