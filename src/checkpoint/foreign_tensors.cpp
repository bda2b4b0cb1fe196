#include "src/checkpoint/foreign_tensors.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "src/checkpoint/torch_archive.hpp"

namespace troupe {
namespace {

std::int64_t first_row(const ForeignChunk& chunk) { return chunk.offsets.empty() ? 0 : chunk.offsets[0]; }
std::int64_t rows_of(const ForeignChunk& chunk) { return chunk.sizes.empty() ? 1 : chunk.sizes[0]; }

bool meet(const ForeignChunk& a, const ForeignChunk& b) {
  for (std::size_t i = 0; i < a.sizes.size(); ++i) {
    if (a.offsets[i] + a.sizes[i] <= b.offsets[i] || b.offsets[i] + b.sizes[i] <= a.offsets[i]) return false;
  }
  return true;
}

Result<void> check_inside(const std::string& where, const ForeignTensor& tensor, const ForeignChunk& chunk) {
  const auto wrong = [&](const std::string& what) {
    return Error{where + ": a block at " + text_of_shape(chunk.offsets) + " of size " + text_of_shape(chunk.sizes) + " " + what + " " +
                 text_of_shape(tensor.shape)};
  };
  if (chunk.offsets.size() != tensor.shape.size() || chunk.sizes.size() != tensor.shape.size()) return wrong("has other dimensions than the tensor of shape");
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    if (chunk.offsets[i] < 0 || chunk.sizes[i] < 0 || chunk.offsets[i] > tensor.shape[i] || chunk.sizes[i] > tensor.shape[i] - chunk.offsets[i])
      return wrong("lies outside the tensor of shape");
    if (i > 1 && chunk.sizes[i] != tensor.shape[i]) return wrong("is cut along a dimension after the second of");
  }
  return {};
}

}  // namespace

std::optional<std::uint64_t> bytes_of_shape(const std::vector<std::int64_t>& shape, StoredType dtype) {
  std::uint64_t bytes = size_of(dtype);
  for (const std::int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(size), &bytes)) return std::nullopt;
  }
  return bytes;
}

std::string text_of_shape(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const auto size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

Result<void> check_cover(const std::string& where, ForeignTensor& tensor) {
  const auto whole = bytes_of_shape(tensor.shape, tensor.dtype);
  if (!whole || *whole > std::uint64_t{1} << 62U) return Error{where + ": shape " + text_of_shape(tensor.shape) + " is too large"};
  std::uint64_t covered = 0;
  for (const ForeignChunk& chunk : tensor.chunks) {
    if (auto inside = check_inside(where, tensor, chunk); !inside) return inside;
    covered = std::min(covered + *bytes_of_shape(chunk.sizes, tensor.dtype), *whole + 1);  // each is at most the whole: no overflow
  }
  std::erase_if(tensor.chunks, [&](const ForeignChunk& chunk) { return *bytes_of_shape(chunk.sizes, tensor.dtype) == 0; });
  std::ranges::sort(tensor.chunks, {}, [](const ForeignChunk& chunk) { return chunk.offsets; });
  for (std::size_t i = 0; i < tensor.chunks.size(); ++i) {
    for (std::size_t j = i + 1; j < tensor.chunks.size() && first_row(tensor.chunks[j]) < first_row(tensor.chunks[i]) + rows_of(tensor.chunks[i]); ++j) {
      if (meet(tensor.chunks[i], tensor.chunks[j]))
        return Error{where + ": blocks at " + text_of_shape(tensor.chunks[i].offsets) + " and " + text_of_shape(tensor.chunks[j].offsets) + " overlap"};
    }
  }
  if (covered != *whole) return Error{where + ": its blocks hold " + std::to_string(covered) + " of " + std::to_string(*whole) + " bytes"};
  return {};
}

Result<StorageReader*> ForeignReads::reader_of(std::uint32_t file) {
  auto& reader = open_[file];
  if (!reader) {
    auto opened = storage_.open(tensors_.files[file]);
    if (!opened) return opened.error();
    reader = std::move(*opened);
  }
  return reader.get();
}

Result<std::uint64_t> ForeignReads::values_of(const ForeignTensor& tensor, const ForeignChunk& chunk) {
  if (chunk.archive_bytes == 0) return chunk.begin;
  if (const auto known = found_.find(&chunk); known != found_.end()) return known->second;
  const auto reader = reader_of(chunk.file);
  if (!reader) return reader.error();
  const auto begin = find_archived_tensor(**reader, tensors_.files[chunk.file].string(), chunk.begin, chunk.archive_bytes, tensor.dtype, chunk.sizes);
  if (begin) found_[&chunk] = *begin;
  return begin;
}

Result<void> ForeignReads::rows(const ForeignTensor& tensor, std::int64_t first, std::int64_t count, std::span<std::byte> out) {
  const std::size_t dimensions = tensor.shape.size();
  std::uint64_t inner = size_of(tensor.dtype);  // bytes of one value of the first two dimensions
  for (std::size_t i = 2; i < dimensions; ++i) inner *= static_cast<std::uint64_t>(tensor.shape[i]);
  const std::uint64_t row = inner * (dimensions > 1 ? static_cast<std::uint64_t>(tensor.shape[1]) : 1);
  std::vector<std::byte> cut;
  for (const ForeignChunk& chunk : tensor.chunks) {
    const std::int64_t from = std::max(first, first_row(chunk)), to = std::min(first + count, first_row(chunk) + rows_of(chunk));
    if (from >= to) continue;
    const auto reader = reader_of(chunk.file);
    if (!reader) return reader.error();
    const auto values = values_of(tensor, chunk);
    if (!values) return values.error();
    const std::uint64_t own_row = inner * (dimensions > 1 ? static_cast<std::uint64_t>(chunk.sizes[1]) : 1), rows = static_cast<std::uint64_t>(to - from);
    const std::uint64_t begin = *values + static_cast<std::uint64_t>(from - first_row(chunk)) * own_row;
    const auto place = out.subspan(static_cast<std::uint64_t>(from - first) * row, rows * row);
    if (own_row == row) {
      if (auto read = (*reader)->read_at(begin, place); !read) return read;
      continue;
    }
    cut.resize(rows * own_row);
    if (auto read = (*reader)->read_at(begin, cut); !read) return read;
    const std::uint64_t left = inner * static_cast<std::uint64_t>(chunk.offsets[1]);
    for (std::uint64_t r = 0; r < rows; ++r) std::memcpy(place.data() + r * row + left, cut.data() + r * own_row, own_row);
  }
  return {};
}

}  // namespace troupe
