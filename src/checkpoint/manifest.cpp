#include "src/checkpoint/manifest.hpp"

#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "src/checkpoint/shard_file.hpp"

namespace troupe {
namespace {

using nlohmann::json;

constexpr int version = 2;

std::string hex(std::uint64_t value) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text(16, '0');
  for (std::size_t i = 16; i-- > 0; value >>= 4U) text[i] = digits[value & 15U];
  return text;
}

std::uint64_t unhex(const json& value) {
  const auto text = value.get<std::string>();
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  if (error != std::errc{} || end != text.data() + text.size()) throw std::runtime_error("'" + text + "' is no hexadecimal number");
  return number;
}

StoredType dtype_of(const json& value) {
  if (const auto type = stored_type_of(value.get<std::string>())) return *type;
  throw std::runtime_error("unknown type " + value.dump());
}

std::string checksum(json manifest) {
  manifest["check"] = "";
  const std::string text = manifest.dump();
  return hex(XXH3_64bits(text.data(), text.size()));
}

json tensor_json(const StoredTensor& tensor) {
  json parts = json::array();
  for (const auto& part : tensor.parts) parts.push_back({{"file", part.file}, {"first_row", part.first_row}, {"rows", part.rows}, {"begin", part.begin}});
  return {{"dtype", safetensors_name(tensor.dtype)}, {"shape", tensor.shape}, {"model", tensor.model}, {"parts", std::move(parts)}};
}

StoredTensor tensor_of(const json& value, std::size_t files) {
  StoredTensor tensor{dtype_of(value.at("dtype")), value.at("shape").get<std::vector<std::int64_t>>(), value.at("model").get<bool>(), {}};
  for (const auto& part : value.at("parts")) {
    tensor.parts.push_back({part.at("file").get<std::uint32_t>(), part.at("first_row").get<std::int64_t>(), part.at("rows").get<std::int64_t>(),
                            part.at("begin").get<std::uint64_t>()});
    if (tensor.parts.back().file >= files)
      throw std::runtime_error("a part lies in file number " + std::to_string(tensor.parts.back().file) + " of " + std::to_string(files));
  }
  return tensor;
}

Manifest parsed_manifest(const json& value) {
  Manifest manifest;
  auto& p = manifest.position;
  p.step = Step{value.at("step").get<std::uint64_t>()};
  p.epoch = EpochId{value.at("epoch").get<std::uint64_t>()};
  p.world = value.at("world").get<std::uint32_t>();
  p.config_hash = unhex(value.at("config_hash"));
  p.data_row = value.at("data_row").get<std::uint64_t>();
  p.tokens = value.at("tokens").get<std::uint64_t>();
  p.model_only = value.at("model_only").get<bool>();
  p.config = value.value("config", "");
  if (value.contains("tokenizer")) p.tokenizer = unhex(value.at("tokenizer"));
  for (const auto& file : value.at("files"))
    manifest.files.push_back({file.at("name").get<std::string>(), file.at("bytes").get<std::uint64_t>(), unhex(file.at("xxh3"))});
  for (const auto& [name, tensor] : value.at("tensors").items()) manifest.tensors[name] = tensor_of(tensor, manifest.files.size());
  return manifest;
}

/// Rows must be covered from 0 to the end; the same range twice is a replica.
Result<void> check_cover(const std::string& name, StoredTensor& tensor) {
  auto& parts = tensor.parts;
  std::sort(parts.begin(), parts.end(),
            [](const auto& a, const auto& b) { return std::tuple(a.first_row, a.rows, a.file) < std::tuple(b.first_row, b.rows, b.file); });
  std::int64_t covered = 0, last_first = -1;
  for (const auto& part : parts) {
    if (part.first_row == last_first && part.first_row + part.rows == covered) continue;
    if (part.first_row != covered) {
      return Error{"tensor '" + name + "': rows " + std::to_string(std::min(covered, part.first_row)) + " to " +
                   std::to_string(std::max(covered, part.first_row) - 1) + (part.first_row < covered ? " lie in two shards" : " lie in no shard")};
    }
    last_first = part.first_row;
    covered += part.rows;
  }
  const std::int64_t rows = tensor.shape.empty() ? 1 : tensor.shape.front();
  if (covered != rows) return Error{"tensor '" + name + "': shards hold " + std::to_string(covered) + " of " + std::to_string(rows) + " rows"};
  return {};
}

Result<void> add_shard(Manifest& manifest, Storage& storage, const std::filesystem::path& folder, std::uint32_t number) {
  const SavedShard& shard = manifest.files[number];
  const std::string file = (folder / shard.file).string();
  auto reader = storage.open(file);
  if (!reader) return reader.error();
  const auto checked = read_shard_header(**reader, folder, shard);
  if (!checked) return checked.error();
  const SafetensorsHeader* const header = &checked->safetensors;
  const auto known = header->metadata.find("parts");
  const auto parts = shard_parts_from_json(known == header->metadata.end() ? "" : known->second, file);
  if (!parts) return parts.error();
  for (const auto& entry : header->tensors) {
    const auto part = parts->find(entry.name);
    if (part == parts->end()) return Error{file + ": tensor '" + entry.name + "': the shard does not say which rows it holds"};
    StoredTensor fresh{entry.dtype, part->second.global_shape, part->second.model, {}};
    auto& tensor = manifest.tensors.try_emplace(entry.name, fresh).first->second;
    if (tensor.dtype != fresh.dtype || tensor.shape != fresh.shape)
      return Error{file + ": tensor '" + entry.name + "': type or shape differs from another shard's"};
    tensor.parts.push_back({number, part->second.first_row, entry.shape.empty() ? 1 : entry.shape.front(), header->data_begin + entry.begin});
  }
  return {};
}

}  // namespace

std::string Manifest::to_json() const {
  json value{{"format", "troupe checkpoint"},   {"version", version},        {"step", position.step.value()},
             {"epoch", position.epoch.value()}, {"world", position.world},   {"config_hash", hex(position.config_hash)},
             {"data_row", position.data_row},   {"tokens", position.tokens}, {"model_only", position.model_only},
             {"config", position.config},       {"files", json::array()},    {"tensors", json::object()}};
  if (position.tokenizer != 0) value["tokenizer"] = hex(position.tokenizer);
  for (const auto& file : files) value["files"].push_back({{"name", file.file}, {"bytes", file.bytes}, {"xxh3", hex(file.hash)}});
  for (const auto& [name, tensor] : tensors) value["tensors"][name] = tensor_json(tensor);
  value["check"] = checksum(value);
  return value.dump(1) + "\n";
}

Result<Manifest> Manifest::from_json(const std::string& text, const std::string& file) {
  try {
    const json value = json::parse(text);
    if (value.at("format") != "troupe checkpoint" || value.at("version") != version)
      return Error{file + ": not a checkpoint of version " + std::to_string(version)};
    if (value.at("check") != checksum(value)) return Error{file + ": the checksum does not match: the file was changed or damaged"};
    return parsed_manifest(value);
  } catch (const std::exception& error) {
    return Error{file + ": is no manifest: " + error.what()};
  }
}

Result<Manifest> assemble_manifest(Storage& storage, const std::filesystem::path& folder, const RunPosition& position, const std::vector<SavedShard>& shards) {
  Manifest manifest{position, shards, {}};
  for (std::uint32_t i = 0; i < shards.size(); ++i) {
    if (auto added = add_shard(manifest, storage, folder, i); !added) return added.error();
  }
  for (auto& [name, tensor] : manifest.tensors) {
    if (auto covered = check_cover(name, tensor); !covered) return Error{folder.string() + ": " + covered.error().message};
  }
  return manifest;
}

std::string shard_parts_to_json(const std::map<std::string, ShardPart>& parts) {
  json value = json::object();
  for (const auto& [name, part] : parts) value[name] = {{"shape", part.global_shape}, {"first_row", part.first_row}, {"model", part.model}};
  return value.dump();
}

Result<std::map<std::string, ShardPart>> shard_parts_from_json(const std::string& text, const std::string& file) {
  try {
    std::map<std::string, ShardPart> parts;
    const json value = json::parse(text);
    for (const auto& [name, part] : value.items()) {
      parts[name] = {part.at("shape").get<std::vector<std::int64_t>>(), part.at("first_row").get<std::int64_t>(), part.at("model").get<bool>()};
    }
    return parts;
  } catch (const std::exception& error) {
    return Error{file + ": the metadata key 'parts' is unreadable: " + error.what()};
  }
}

}  // namespace troupe
