#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "src/data/plain_copy.hpp"

namespace troupe {

/// Gives every Parquet or Arrow file (told by its first bytes) a plain copy with a line of JSON for each of its rows: {"__row":7,"text":"…"}, rows counted
/// from 0, with these columns alone. Sets `content`, `bytes` and `table`. Errors name the file: it is neither, is cut off or damaged, has no such column;
/// or they say that this program is built without the plug-in for them, and what to do. Call under a lock of the folder.
[[nodiscard]] Result<void> write_out_tables(std::vector<DataFile>& files, const std::vector<std::string>& columns, const UnpackOptions& options);

/// Which row the line at this place of a table's copy is; nothing where it cannot be read.
[[nodiscard]] std::optional<std::uint64_t> row_of_copy(const DataFile& file, std::uint64_t offset);

struct TablePlugin;
/// Loads libtroupe_parquet.so, once a process: the file that TROUPE_PARQUET_PLUGIN names, else that beside `program` or in the lib folder next to its
/// folder. Errors say in plain words what is missing.
[[nodiscard]] Result<const TablePlugin*> load_table_plugin(const std::filesystem::path& program);

}  // namespace troupe
