#include "src/checkpoint/fp8_blocks.hpp"

#include <array>
#include <nlohmann/json.hpp>

#include "src/checkpoint/hugging_face.hpp"
#include "src/checkpoint/safetensors.hpp"

namespace troupe {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr std::uint64_t longest_config = std::uint64_t{1} << 24U;
constexpr std::string_view suffix = "_scale_inv";
constexpr std::int64_t usual_block = 128;

/// Null: config.json says nothing of quantization, or is not there.
json quantization_of(Storage& storage, const fs::path& folder) {
  if (!storage.exists(folder / "config.json")) return {};
  const auto text = read_text(storage, folder / "config.json", longest_config);
  const json config = text ? json::parse(*text, nullptr, false) : json();
  return config.is_object() && config.contains("quantization_config") ? config["quantization_config"] : json();
}

Result<std::array<std::int64_t, 2>> block_of(const json& how, const fs::path& folder) {
  const std::string where = (folder / "config.json").string() + ": quantization_config: ";
  if (how.is_null()) return std::array{usual_block, usual_block};
  if (!how.is_object() || how.value("quant_method", json()) != "fp8")
    return Error{where + "quant_method is " + (how.is_object() ? how.value("quant_method", json()).dump() : "not there") + "; \"fp8\" by blocks is read here"};
  if (const json format = how.value("fmt", json("e4m3")); format != "e4m3") return Error{where + "fmt is " + format.dump() + "; \"e4m3\" is read here"};
  if (!how.contains("weight_block_size")) return std::array{usual_block, usual_block};
  const json& size = how["weight_block_size"];
  const auto whole = [](const json& value) { return value.is_number_unsigned() && value > 0 && value <= 1U << 20U; };
  if (!size.is_array() || size.size() != 2 || !whole(size[0]) || !whole(size[1]))
    return Error{where + "weight_block_size is " + size.dump() + ", expected rows and columns"};
  return std::array{size[0].get<std::int64_t>(), size[1].get<std::int64_t>()};
}

}  // namespace

bool says_fp8_blocks(Storage& storage, const fs::path& folder) {
  const json how = quantization_of(storage, folder);
  return how.is_object() && how.value("quant_method", json()) == "fp8";
}

Result<void> join_fp8_scales(ForeignTensors& found, Storage& storage, const fs::path& folder) {
  const auto block = block_of(quantization_of(storage, folder), folder);
  if (!block) return block.error();
  const auto [rows, columns] = *block;
  for (auto& [name, tensor] : found.tensors) {
    if (tensor.dtype != StoredType::e4m3) continue;
    const std::string where = folder.string() + ": tensor '" + name + "' is fp8: ", scales = name + std::string(suffix);
    const auto scale = found.tensors.find(scales);
    if (scale == found.tensors.end()) return Error{where + "its scales '" + scales + "' are missing"};
    if (tensor.shape.size() != 2) return Error{where + "shape " + text_of_shape(tensor.shape) + ", expected rows and columns"};
    const std::vector<std::int64_t> expected{(tensor.shape[0] + rows - 1) / rows, (tensor.shape[1] + columns - 1) / columns};
    if (scale->second.dtype != StoredType::f32 || scale->second.shape != expected)
      return Error{where + "its scales are " + std::string(safetensors_name(scale->second.dtype)) + " " + text_of_shape(scale->second.shape) +
                   ", expected F32 " + text_of_shape(expected) + " for blocks of " + text_of_shape({rows, columns})};
    tensor.scales = scales;
    tensor.block_rows = rows;
    tensor.block_columns = columns;
  }
  for (const auto& [name, tensor] : found.tensors)
    if (!tensor.scales.empty()) found.scales[tensor.scales] = found.tensors.at(tensor.scales);
  if (found.scales.empty())
    return Error{folder.string() + ": holds no fp8 weights (F8_E4M3 with NAME" + std::string(suffix) +
                 "): leave checkpoint.initial_load_in_hf_quantized at false"};
  for (const auto& [name, tensor] : found.scales) found.tensors.erase(name);
  for (const auto& [name, tensor] : found.tensors)
    if (name.ends_with(suffix)) return Error{folder.string() + ": tensor '" + name + "' scales no fp8 weight"};
  return {};
}

}  // namespace troupe
