#include "src/checkpoint/torch_checkpoint.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>

#include "src/checkpoint/pickle.hpp"

namespace troupe {
namespace {

constexpr std::uint64_t longest_metadata = std::uint64_t{1} << 30U;

constexpr std::array types = {std::pair{"torch float32", StoredType::f32}, std::pair{"torch bfloat16", StoredType::bf16},
                              std::pair{"torch float16", StoredType::f16}, std::pair{"torch float64", StoredType::f64},
                              std::pair{"torch int64", StoredType::i64},   std::pair{"torch int32", StoredType::i32},
                              std::pair{"torch uint8", StoredType::u8},    std::pair{"torch int16", StoredType::i16},
                              std::pair{"torch int8", StoredType::i8},     std::pair{"torch bool", StoredType::boolean}};

constexpr std::string_view metadata_module = "torch.distributed.checkpoint.metadata ";

/// All that such a pickle names: descriptions, and no function that does anything. Python 3.11.0 to 3.11.3 (Debian 12's own) describes a member of an
/// enumeration as getattr of its class and its name, which is no more than noted here: nothing is ever called.
bool known_in_metadata(std::string_view name) {
  constexpr std::array others = {"torch Size",
                                 "torch.serialization _get_layout",
                                 "torch.distributed.checkpoint.filesystem _StorageInfo",
                                 "pathlib PosixPath",
                                 "pathlib._local PosixPath",
                                 "torch.distributed._shard.sharded_tensor.metadata TensorProperties",
                                 "pathlib Path",
                                 "torch.distributed.checkpoint.filesystem _StoragePrefix",
                                 "collections OrderedDict",
                                 "builtins getattr",
                                 "__builtin__ getattr",
                                 "torch.distributed._shard.sharded_tensor.metadata MEM_FORMAT_ENCODING"};
  if (std::ranges::find(others, name) != others.end()) return true;
  if (std::ranges::any_of(types, [&](const auto& type) { return name == type.first; })) return true;
  if (!name.starts_with(metadata_module)) return false;
  name.remove_prefix(metadata_module.size());
  constexpr std::array here = {"Metadata",         "TensorStorageMetadata", "BytesStorageMetadata", "ChunkStorageMetadata",
                               "TensorProperties", "MetadataIndex",         "StorageMeta",          "_MEM_FORMAT_ENCODING"};
  return std::ranges::find(here, name) != here.end();
}

class MetadataReader {
 public:
  MetadataReader(const Pickle& pickle, std::filesystem::path folder, Storage& storage) : pickle_(pickle), folder_(std::move(folder)), storage_(storage) {
    found_.kind = ForeignTensors::Kind::torch;
  }
  Result<ForeignTensors> read() {
    const PickleValue& root = pickle_.root();
    const PickleValue *tensors = pickle_.find(root, "state_dict_metadata"), *storage = pickle_.find(root, "storage_data");
    if (pickle_.called(root) != std::string(metadata_module) + "Metadata" || !dict(tensors) || !dict(storage))
      return wrong("holds no description of a checkpoint");
    for (std::size_t i = 0; i + 1 < tensors->items.size(); i += 2) {
      if (auto added = add_entry(pickle_.at(tensors->items[i]), pickle_.at(tensors->items[i + 1])); !added) return added.error();
    }
    for (std::size_t i = 0; i + 1 < storage->items.size(); i += 2) {
      if (auto placed = place(pickle_.at(storage->items[i]), pickle_.at(storage->items[i + 1])); !placed) return placed.error();
    }
    if (auto apart = check_apart(); !apart) return apart.error();
    for (auto& [name, tensor] : found_.tensors) {
      for (const ForeignChunk& chunk : tensor.chunks) {
        if (chunk.archive_bytes == 0) return wrong("tensor '" + name + "': its block at " + text_of_shape(chunk.offsets) + " lies in no file");
      }
      if (auto covered = check_cover((folder_ / torch_metadata_file).string() + ": tensor '" + name + "'", tensor); !covered) return covered.error();
    }
    return std::move(found_);
  }

 private:
  static bool dict(const PickleValue* value) { return value != nullptr && value->kind == PickleValue::Kind::dict; }
  [[nodiscard]] Error wrong(const std::string& what) const { return Error{(folder_ / torch_metadata_file).string() + ": " + what}; }

  Result<void> add_entry(const PickleValue& key, const PickleValue& value) {
    if (key.kind != PickleValue::Kind::text) return wrong("an entry without a name");
    if (pickle_.called(value) == std::string(metadata_module) + "BytesStorageMetadata") {
      found_.other.push_back(key.text);
      return {};
    }
    const PickleValue *properties = pickle_.find(value, "properties"), *size = pickle_.find(value, "size"), *chunks = pickle_.find(value, "chunks");
    ForeignTensor tensor;
    if (properties == nullptr || size == nullptr || chunks == nullptr || chunks->kind != PickleValue::Kind::list || !pickle_.numbers(*size, tensor.shape))
      return wrong("tensor '" + key.text + "': expected its type, size and blocks");
    const auto dtype = type_of(*properties);
    if (!dtype) return wrong("tensor '" + key.text + "': of a type that is not known here");
    tensor.dtype = *dtype;
    for (const PickleIndex i : chunks->items) {
      const PickleValue *offsets = pickle_.find(pickle_.at(i), "offsets"), *sizes = pickle_.find(pickle_.at(i), "sizes");
      ForeignChunk chunk;
      if (offsets == nullptr || sizes == nullptr || !pickle_.numbers(*offsets, chunk.offsets) || !pickle_.numbers(*sizes, chunk.sizes))
        return wrong("tensor '" + key.text + "': a block without offsets and sizes");
      tensor.chunks.push_back(std::move(chunk));
    }
    if (!found_.tensors.emplace(key.text, std::move(tensor)).second) return wrong("tensor '" + key.text + "': the name stands twice");
    return {};
  }
  [[nodiscard]] std::optional<StoredType> type_of(const PickleValue& properties) const {
    const PickleValue* dtype = pickle_.find(properties, "dtype");
    if (dtype == nullptr && properties.kind == PickleValue::Kind::call && properties.state != no_pickle_value) {
      const PickleValue& state = pickle_.at(properties.state);
      if (state.kind == PickleValue::Kind::tuple && !state.items.empty()) dtype = &pickle_.at(state.items[0]);
    }
    if (dtype == nullptr || dtype->kind != PickleValue::Kind::global) return std::nullopt;
    const auto known = std::ranges::find_if(types, [&](const auto& type) { return dtype->text == type.first; });
    return known == types.end() ? std::nullopt : std::optional(known->second);
  }

  Result<void> place(const PickleValue& index, const PickleValue& info) {
    const PickleValue *name = pickle_.find(index, "fqn"), *offset = pickle_.find(index, "offset");
    const PickleValue *path = pickle_.find(info, "relative_path"), *begin = pickle_.find(info, "offset"), *length = pickle_.find(info, "length");
    if (name == nullptr || name->kind != PickleValue::Kind::text) return wrong("a place without a name");
    const std::string where = "entry '" + name->text + "'";
    if (path == nullptr || begin == nullptr || length == nullptr || path->kind != PickleValue::Kind::text || begin->kind != PickleValue::Kind::integer ||
        length->kind != PickleValue::Kind::integer)
      return wrong(where + ": expected file, offset and length");
    const auto file = file_number(path->text);
    if (!file) return Error{wrong(where + ": ").message + file.error().message};
    const std::uint64_t size = sizes_[*file];
    if (begin->integer < 0 || length->integer <= 0 || static_cast<std::uint64_t>(begin->integer) > size ||
        static_cast<std::uint64_t>(length->integer) > size - static_cast<std::uint64_t>(begin->integer))
      return wrong(where + ": lies at bytes " + std::to_string(begin->integer) + " to " + std::to_string(begin->integer) + " + " +
                   std::to_string(length->integer) + " of " + path->text + ", which has " + std::to_string(size));
    places_.push_back({*file, static_cast<std::uint64_t>(begin->integer), static_cast<std::uint64_t>(length->integer), name->text});
    const auto tensor = found_.tensors.find(name->text);
    if (tensor == found_.tensors.end()) return {};
    if (const PickleValue* how = pickle_.find(info, "transform_descriptors"); how != nullptr && how->kind != PickleValue::Kind::none)
      return wrong(where + ": is packed with an extension of torch.distributed.checkpoint, which is not read here");
    std::vector<std::int64_t> at(tensor->second.shape.size(), 0);
    if (offset != nullptr && offset->kind != PickleValue::Kind::none && !pickle_.numbers(*offset, at)) return wrong(where + ": its offset is none");
    const auto chunk = std::ranges::find_if(tensor->second.chunks, [&](const ForeignChunk& c) { return c.offsets == at && c.archive_bytes == 0; });
    if (chunk == tensor->second.chunks.end())
      return wrong(where + ": a place for a block at " + text_of_shape(at) + ", which is none of the tensor's or has a place already");
    chunk->file = *file;
    chunk->begin = places_.back().begin;
    chunk->archive_bytes = places_.back().bytes;
    return {};
  }
  /// Opened once, for its size; only plain names in the folder itself.
  Result<std::uint32_t> file_number(const std::string& name) {
    if (name.empty() || name.find('/') != std::string::npos || name == "." || name == "..") return Error{"'" + name + "' is no name of a file in this folder"};
    const std::filesystem::path path = folder_ / name;
    if (const auto known = numbers_.find(name); known != numbers_.end()) return known->second;
    auto reader = storage_.open(path);
    if (!reader) return reader.error();
    found_.files.push_back(path);
    sizes_.push_back((*reader)->size());
    return numbers_[name] = static_cast<std::uint32_t>(found_.files.size() - 1);
  }
  Result<void> check_apart() {
    std::ranges::sort(places_, [](const Place& a, const Place& b) { return std::pair(a.file, a.begin) < std::pair(b.file, b.begin); });
    for (std::size_t i = 1; i < places_.size(); ++i) {
      const Place &a = places_[i - 1], &b = places_[i];
      if (a.file == b.file && a.begin + a.bytes > b.begin)
        return wrong("entries '" + a.name + "' and '" + b.name + "' overlap in " + found_.files[a.file].filename().string());
    }
    return {};
  }

  struct Place {
    std::uint32_t file;
    std::uint64_t begin, bytes;
    std::string name;
  };
  const Pickle& pickle_;
  std::filesystem::path folder_;
  Storage& storage_;
  ForeignTensors found_;
  std::vector<std::uint64_t> sizes_;              // of found_.files
  std::map<std::string, std::uint32_t> numbers_;  // of found_.files
  std::vector<Place> places_;
};

}  // namespace

Result<ForeignTensors> open_torch_checkpoint(Storage& storage, const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / torch_metadata_file;
  auto reader = storage.open(file);
  if (!reader) return reader.error();
  const std::uint64_t size = (*reader)->size();
  if (size > longest_metadata) return Error{file.string() + ": has " + std::to_string(size) + " bytes, more than any description of a checkpoint"};
  std::vector<std::byte> bytes(size);
  if (auto read = (*reader)->read_at(0, bytes); !read) return read.error();
  const auto pickle = Pickle::read(bytes, file.string(), known_in_metadata);
  if (!pickle) return pickle.error();
  return MetadataReader(*pickle, folder, storage).read();
}

Result<std::int64_t> read_whole_number(const ForeignTensors& tensors, Storage& storage, const std::string& name) {
  const auto found = tensors.tensors.find(name);
  if (found == tensors.tensors.end()) return Error{"holds no tensor '" + name + "'"};
  const ForeignTensor& tensor = found->second;
  const auto wrong = [&](const std::string& what) { return Error{"tensor '" + name + "' " + what}; };
  if (bytes_of_shape(tensor.shape, tensor.dtype) != size_of(tensor.dtype)) return wrong("has shape " + text_of_shape(tensor.shape) + ", expected one value");
  std::vector<std::byte> bytes(size_of(tensor.dtype));
  if (auto read = ForeignReads(tensors, storage).rows(tensor, 0, 1, bytes); !read) return read.error();
  const auto as = [&](auto value) {
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  };
  if (tensor.dtype == StoredType::i64) return as(std::int64_t{});
  if (tensor.dtype == StoredType::i32) return std::int64_t{as(std::int32_t{})};
  if (tensor.dtype != StoredType::f32) return wrong("is no number");
  const float value = as(float{});
  if (!(std::abs(value) < 0x1p53F) || value != std::floor(value)) return wrong("is no whole number");
  return static_cast<std::int64_t>(value);
}

}  // namespace troupe
