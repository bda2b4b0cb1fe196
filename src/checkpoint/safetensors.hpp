#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.hpp"
#include "src/checkpoint/storage.hpp"
#include "src/checkpoint/stored_type.hpp"

/// The safetensors format: 8 bytes of header length (little endian), a JSON header, then the tensors' bytes without gap.
namespace troupe {

struct SafetensorsEntry {
  std::string name;
  StoredType dtype = StoredType::f32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  ///< in the data, which begins after the header
};

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::vector<SafetensorsEntry> tensors;  ///< in the order of their bytes
  std::uint64_t data_begin = 0;           ///< byte of the file at which the data begins; a multiple of 8 in files of our own
};

/// "F32", "BF16", "F8_E4M3", …
[[nodiscard]] std::string_view safetensors_name(StoredType type) noexcept;
[[nodiscard]] std::optional<StoredType> stored_type_of(std::string_view safetensors_name) noexcept;

/// The file's first bytes, for tensors whose `begin` and `end` are set in order and without gap; padded with spaces to a multiple of `alignment`.
[[nodiscard]] std::string write_safetensors_header(const SafetensorsHeader& header, std::uint64_t alignment = 8);

/// Reads and checks strictly: header length against the file, JSON, names once, known types, shape × type against offsets, no hole,
/// no overlap, no byte left over. Errors name `file`, the tensor, what was expected and found.
[[nodiscard]] Result<SafetensorsHeader> read_safetensors_header(StorageReader& reader, const std::string& file);

}  // namespace troupe
