#include "src/checkpoint/hugging_face.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "src/checkpoint/safetensors.hpp"

namespace troupe {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* torch_pieces_key = "DCP_SHARDING_INFO";  // torch.distributed.checkpoint: where in the whole tensor a file's part lies

constexpr std::uint64_t longest_index = std::uint64_t{1} << 28U;

/// tensor → file, of the index.
using WeightMap = std::map<std::string, std::string>;

Result<WeightMap> read_index(Storage& storage, const fs::path& folder) {
  const fs::path file = folder / hugging_face_index;
  const auto text = read_text(storage, file, longest_index);
  if (!text) return text.error();
  const json index = json::parse(*text, nullptr, false);
  if (index.is_discarded() || !index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    return Error{file.string() + ": expected a JSON object with weight_map"};
  WeightMap map;
  for (const auto& [name, value] : index["weight_map"].items()) {
    const std::string where = file.string() + ": tensor '" + name + "': ";
    if (!value.is_string()) return Error{where + "its file's name is no text"};
    const auto shard = value.get<std::string>();
    if (shard.empty() || shard.find('/') != std::string::npos || shard.find('\\') != std::string::npos || shard.starts_with('.'))
      return Error{where + "lies in '" + shard + "', which is no name of a file in this folder"};
    if (!storage.exists(folder / shard)) return Error{where + "lies in " + shard + ", which is not there"};
    map[name] = shard;
  }
  if (map.empty()) return Error{file.string() + ": weight_map is empty"};
  return map;
}

Result<std::vector<std::string>> files_without_index(Storage& storage, const fs::path& folder) {
  if (storage.exists(folder / hugging_face_single)) return std::vector<std::string>{hugging_face_single};
  const auto entries = storage.list(folder);
  if (!entries) return entries.error();
  std::vector<std::string> files;
  bool pickled = false;
  for (const auto& entry : *entries) {
    if (!entry.folder && entry.name.ends_with(".safetensors")) files.push_back(entry.name);
    pickled = pickled || entry.name.ends_with(".bin") || entry.name.ends_with(".pth");
  }
  std::ranges::sort(files);
  if (files.empty())
    return Error{folder.string() + ": holds no *.safetensors file" +
                 (pickled ? "; .bin and .pth files are not read: write the model again with transformers' save_pretrained(safe_serialization=True)" : "")};
  return files;
}

/// First row and column of each tensor of a file in its whole; empty: the file holds whole tensors.
Result<std::map<std::string, std::vector<std::int64_t>>> places_of(const SafetensorsHeader& header, const std::string& file) {
  std::map<std::string, std::vector<std::int64_t>> pieces;
  const auto text = header.metadata.find(torch_pieces_key);
  if (text == header.metadata.end()) return pieces;
  try {
    const json parsed = json::parse(text->second);
    for (const auto& [name, value] : parsed.items()) pieces[name] = value.at("saved_offsets").get<std::vector<std::int64_t>>();
  } catch (const json::exception& problem) {
    return Error{file + ": the metadata key '" + torch_pieces_key + "' is unreadable: " + problem.what()};
  }
  return pieces;
}

Result<void> add_file(ForeignTensors& found, Storage& storage, const fs::path& path, const WeightMap* index, std::set<std::string>& seen) {
  const std::string file = path.string();
  auto reader = storage.open(path);
  if (!reader) return reader.error();
  const auto header = read_safetensors_header(**reader, file);
  if (!header) return header.error();
  const auto pieces = places_of(*header, file);
  if (!pieces) return pieces.error();
  const auto number = static_cast<std::uint32_t>(found.files.size());
  found.files.push_back(path);
  for (const SafetensorsEntry& entry : header->tensors) {
    const std::string where = file + ": tensor '" + entry.name + "': ";
    if (index != nullptr) {
      const auto there = index->find(entry.name);
      if (there == index->end()) return Error{where + "is not in " + hugging_face_index};
      if (there->second != path.filename().string()) return Error{where + "lies here, but " + hugging_face_index + " says in " + there->second};
      seen.insert(entry.name);
    }
    const auto piece = pieces->find(entry.name);
    std::vector<std::int64_t> offsets = piece == pieces->end() ? std::vector<std::int64_t>(entry.shape.size(), 0) : piece->second;
    if (offsets.size() != entry.shape.size()) return Error{where + "its place in the whole has " + std::to_string(offsets.size()) + " dimensions"};
    std::vector<std::int64_t> reach = entry.shape;
    for (std::size_t i = 0; i < reach.size(); ++i) {
      if (offsets[i] < 0 || __builtin_add_overflow(reach[i], offsets[i], &reach[i]))
        return Error{where + "its place in the whole is " + text_of_shape(offsets)};
    }
    const auto [at, fresh] = found.tensors.try_emplace(entry.name, ForeignTensor{entry.dtype, reach, {}});
    ForeignTensor& tensor = at->second;
    if (!fresh && (piece == pieces->end() || tensor.dtype != entry.dtype || tensor.shape.size() != reach.size()))
      return Error{where + (piece == pieces->end() ? "lies in another file too" : "is of another type or shape in another file")};
    for (std::size_t i = 0; i < reach.size(); ++i) tensor.shape[i] = std::max(tensor.shape[i], reach[i]);
    tensor.chunks.push_back({number, header->data_begin + entry.begin, 0, std::move(offsets), entry.shape});
  }
  return {};
}

}  // namespace

Result<std::string> read_text(Storage& storage, const fs::path& file, std::uint64_t most_bytes) {
  auto reader = storage.open(file);
  if (!reader) return reader.error();
  if ((*reader)->size() > most_bytes)
    return Error{file.string() + ": has " + std::to_string((*reader)->size()) + " bytes, at most " + std::to_string(most_bytes) + " are read"};
  std::string text((*reader)->size(), '\0');
  if (auto read = (*reader)->read_at(0, std::as_writable_bytes(std::span(text))); !read) return read.error();
  return text;
}

Result<ForeignTensors> open_hugging_face(Storage& storage, const fs::path& folder) {
  ForeignTensors found;
  std::optional<WeightMap> index;
  std::vector<std::string> files;
  if (storage.exists(folder / hugging_face_index)) {
    auto map = read_index(storage, folder);
    if (!map) return map.error();
    index = std::move(*map);
    for (const auto& [name, file] : *index) files.push_back(file);
    std::ranges::sort(files);
    files.erase(std::unique(files.begin(), files.end()), files.end());
  } else {
    auto listed = files_without_index(storage, folder);
    if (!listed) return listed.error();
    files = std::move(*listed);
  }
  std::set<std::string> seen;
  for (const std::string& file : files) {
    if (auto added = add_file(found, storage, folder / file, index ? &*index : nullptr, seen); !added) return added.error();
  }
  if (index) {
    for (const auto& [name, file] : *index)
      if (!seen.contains(name))
        return Error{(folder / hugging_face_index).string() + ": tensor '" + name + "' is said to lie in " + file + ", which does not hold it"};
  }
  for (auto& [name, tensor] : found.tensors) {
    if (auto covered = check_cover(folder.string() + ": tensor '" + name + "'", tensor); !covered) return covered.error();
  }
  return found;
}

}  // namespace troupe
