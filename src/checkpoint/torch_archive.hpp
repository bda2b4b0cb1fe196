#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "src/checkpoint/storage.hpp"
#include "src/checkpoint/stored_type.hpp"

namespace troupe {

/// The first byte in the file of the values of the tensor that torch.save wrote to bytes [begin, begin + bytes): a zip archive, stored,
/// with a pickle that says which of its entries holds the values. Reads the archive's directory and that pickle, runs nothing, and checks
/// type, sizes, strides (row-major, without gap) and every offset. The error names `file`, what was expected and found.
[[nodiscard]] Result<std::uint64_t> find_archived_tensor(StorageReader& reader, const std::string& file, std::uint64_t begin, std::uint64_t bytes,
                                                         StoredType dtype, const std::vector<std::int64_t>& sizes);

}  // namespace troupe
