#include "src/checkpoint/safetensors.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

namespace troupe {
namespace {

using nlohmann::json;

constexpr std::uint64_t longest_header = 100'000'000;  // as the format's reference implementation
constexpr std::array known_types = {StoredType::f32,  StoredType::bf16, StoredType::f16, StoredType::f64, StoredType::e4m3,
                                    StoredType::e5m2, StoredType::i64,  StoredType::i32, StoredType::u8,  StoredType::u64,
                                    StoredType::u32,  StoredType::i16,  StoredType::u16, StoredType::i8,  StoredType::boolean};

/// JSON that refuses a name which stands twice in one object.
Result<json> parse_once_named(const std::string& text, const std::string& file) {
  std::vector<std::set<std::string>> names;
  std::string twice;
  const auto watch = [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) names.emplace_back();
    if (event == json::parse_event_t::object_end) names.pop_back();
    if (event == json::parse_event_t::key && !names.back().insert(parsed.get<std::string>()).second) twice = parsed.get<std::string>();
    return true;
  };
  json parsed = json::parse(text, watch, false);
  if (parsed.is_discarded() || !parsed.is_object()) return Error{file + ": the header is no JSON object"};
  if (!twice.empty()) return Error{file + ": tensor '" + twice + "': the name stands twice in the header"};
  return parsed;
}

/// Bytes of a tensor, or nothing when a size is negative or the product overflows.
std::optional<std::uint64_t> bytes_of(const std::vector<std::int64_t>& shape, StoredType dtype) {
  std::uint64_t bytes = size_of(dtype);
  for (const std::int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(size), &bytes)) return std::nullopt;
  }
  return bytes;
}

Result<SafetensorsEntry> read_entry(const std::string& name, const json& value, const std::string& file) {
  const auto wrong = [&](const std::string& text) { return Error{file + ": tensor '" + name + "': " + text}; };
  if (!value.is_object() || !value.contains("dtype") || !value.contains("shape") || !value.contains("data_offsets"))
    return wrong("expected dtype, shape and data_offsets");
  const auto &dtype = value["dtype"], &shape = value["shape"], &offsets = value["data_offsets"];
  const auto natural = [](const json& number) { return number.is_number_unsigned() && number.get<std::uint64_t>() <= std::uint64_t{1} << 62U; };
  if (!dtype.is_string() || !stored_type_of(dtype.get<std::string>())) return wrong("unknown type " + dtype.dump());
  if (!shape.is_array() || !std::all_of(shape.begin(), shape.end(), natural)) return wrong("shape " + shape.dump() + " is no list of sizes");
  if (!offsets.is_array() || offsets.size() != 2 || !natural(offsets[0]) || !natural(offsets[1]))
    return wrong("data_offsets " + offsets.dump() + " are no two offsets");
  SafetensorsEntry entry{name, *stored_type_of(dtype.get<std::string>()), shape.get<std::vector<std::int64_t>>(), offsets[0].get<std::uint64_t>(),
                         offsets[1].get<std::uint64_t>()};
  const auto bytes = bytes_of(entry.shape, entry.dtype);
  if (!bytes || entry.end < entry.begin || entry.end - entry.begin != *bytes) {
    return wrong("shape " + shape.dump() + " of " + dtype.get<std::string>() + " needs " + (bytes ? std::to_string(*bytes) : "too many") +
                 " bytes, data_offsets " + offsets.dump() + " hold another number");
  }
  return entry;
}

Result<void> check_layout(const SafetensorsHeader& header, std::uint64_t data_bytes, const std::string& file) {
  std::uint64_t at = 0;
  for (const auto& tensor : header.tensors) {
    if (tensor.begin != at) {
      return Error{file + ": tensor '" + tensor.name + "': begins at " + std::to_string(tensor.begin) + " of the data, expected " + std::to_string(at) +
                   (tensor.begin < at ? " (overlap)" : " (hole)")};
    }
    at = tensor.end;
  }
  if (at != data_bytes)
    return Error{file + ": the tensors need " + std::to_string(at) + " bytes, the file has " + std::to_string(data_bytes) + " after its header"};
  return {};
}

}  // namespace

std::string_view safetensors_name(StoredType type) noexcept {
  switch (type) {
    case StoredType::f32: return "F32";
    case StoredType::bf16: return "BF16";
    case StoredType::f16: return "F16";
    case StoredType::f64: return "F64";
    case StoredType::e4m3: return "F8_E4M3";
    case StoredType::e5m2: return "F8_E5M2";
    case StoredType::i64: return "I64";
    case StoredType::i32: return "I32";
    case StoredType::u8: return "U8";
    case StoredType::u64: return "U64";
    case StoredType::u32: return "U32";
    case StoredType::i16: return "I16";
    case StoredType::u16: return "U16";
    case StoredType::i8: return "I8";
    case StoredType::boolean: return "BOOL";
  }
  return "?";
}

std::optional<StoredType> stored_type_of(std::string_view name) noexcept {
  for (const StoredType type : known_types)
    if (safetensors_name(type) == name) return type;
  return std::nullopt;
}

std::string write_safetensors_header(const SafetensorsHeader& header, std::uint64_t alignment) {
  nlohmann::ordered_json parsed = nlohmann::ordered_json::object();
  if (!header.metadata.empty()) parsed["__metadata__"] = header.metadata;
  for (const auto& tensor : header.tensors) {
    parsed[tensor.name] = {{"dtype", safetensors_name(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {tensor.begin, tensor.end}}};
  }
  std::string text = parsed.dump();
  std::string bytes(8, '\0');
  text.append((alignment - (bytes.size() + text.size()) % alignment) % alignment, ' ');
  std::uint64_t length = text.size();
  for (auto& byte : bytes) {
    byte = static_cast<char>(length & 0xffU);
    length >>= 8U;
  }
  return bytes + text;
}

Result<SafetensorsHeader> read_safetensors_header(StorageReader& reader, const std::string& file) {
  std::array<unsigned char, 8> prefix{};
  if (reader.size() < prefix.size()) return Error{file + ": has " + std::to_string(reader.size()) + " bytes, too few for a safetensors file"};
  if (auto read = reader.read_at(0, std::as_writable_bytes(std::span(prefix))); !read) return read.error();
  std::uint64_t length = 0;
  for (std::size_t i = prefix.size(); i-- > 0;) length = length << 8U | prefix[i];
  if (length > longest_header || length > reader.size() - prefix.size()) {
    return Error{file + ": the header's length " + std::to_string(length) + " does not fit a file of " + std::to_string(reader.size()) + " bytes"};
  }
  std::string text(length, '\0');
  if (auto read = reader.read_at(prefix.size(), std::as_writable_bytes(std::span(text))); !read) return read.error();
  if (!text.starts_with('{')) return Error{file + ": the header does not begin with '{'"};
  auto parsed = parse_once_named(text, file);
  if (!parsed) return parsed.error();
  SafetensorsHeader header;
  header.data_begin = prefix.size() + length;
  for (const auto& [name, value] : parsed->items()) {
    if (name == "__metadata__") {
      if (!value.is_object()) return Error{file + ": __metadata__ is no object"};
      for (const auto& [key, item] : value.items()) {
        if (!item.is_string()) return Error{file + ": __metadata__ '" + key + "' is no string"};
        header.metadata[key] = item.get<std::string>();
      }
      continue;
    }
    auto entry = read_entry(name, value, file);
    if (!entry) return entry.error();
    header.tensors.push_back(std::move(*entry));
  }
  std::sort(header.tensors.begin(), header.tensors.end(), [](const auto& a, const auto& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  if (auto checked = check_layout(header, reader.size() - header.data_begin, file); !checked) return checked.error();
  return header;
}

}  // namespace troupe
