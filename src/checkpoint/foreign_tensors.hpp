#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "src/checkpoint/storage.hpp"
#include "src/checkpoint/stored_type.hpp"

/// Tensors in files that another program wrote: Hugging Face's safetensors, PyTorch's distributed checkpoints.
namespace troupe {

/// A block of a tensor as it lies in one file: row-major, without gap.
struct ForeignChunk {
  std::uint32_t file = 0;                    ///< index into ForeignTensors::files
  std::uint64_t begin = 0;                   ///< first byte in the file: of the values, or of the archive around them
  std::uint64_t archive_bytes = 0;           ///< 0: the values themselves lie there; else a torch.save archive of so many bytes
  std::vector<std::int64_t> offsets, sizes;  ///< of the block in the tensor, one for each of its dimensions
};

struct ForeignTensor {
  StoredType dtype = StoredType::f32;
  std::vector<std::int64_t> shape;
  std::vector<ForeignChunk> chunks;  ///< by first row; together they cover the tensor once
  std::string scales = {};           ///< of fp8 by blocks: a name in ForeignTensors::scales; empty: the values are what they say
  std::int64_t block_rows = 0, block_columns = 0;
};

/// What a folder of another program holds. A value; the bytes stay where they are.
struct ForeignTensors {
  enum class Kind : std::uint8_t { hugging_face, torch };
  Kind kind = Kind::hugging_face;
  std::vector<std::filesystem::path> files;
  std::map<std::string, ForeignTensor> tensors;
  std::map<std::string, ForeignTensor> scales = {};  ///< fp32, of tensors in fp8 by blocks (fp8_blocks.hpp)
  std::vector<std::string> other;                    ///< entries that are no tensors, by name
};

/// Bytes of a shape in a type; nothing when a size is negative or the product overflows.
[[nodiscard]] std::optional<std::uint64_t> bytes_of_shape(const std::vector<std::int64_t>& shape, StoredType dtype);
/// "[2, 3]"
[[nodiscard]] std::string text_of_shape(const std::vector<std::int64_t>& shape);

/// Sorts the chunks and checks that each lies inside the tensor, that none overlap and that all of it is there. Blocks may be cut along
/// the first two dimensions. Messages begin with `where`.
[[nodiscard]] Result<void> check_cover(const std::string& where, ForeignTensor& tensor);

/// Reads rows of foreign tensors, only their bytes. One thread. `tensors` and `storage` outlive it.
class ForeignReads {
 public:
  ForeignReads(const ForeignTensors& tensors, Storage& storage) : tensors_(tensors), storage_(storage) {}
  /// Rows [first, first + count) of `tensor`, in its own type, into `out` of exactly their size. Blocks. The error names the file.
  [[nodiscard]] Result<void> rows(const ForeignTensor& tensor, std::int64_t first, std::int64_t count, std::span<std::byte> out);

 private:
  [[nodiscard]] Result<StorageReader*> reader_of(std::uint32_t file);
  [[nodiscard]] Result<std::uint64_t> values_of(const ForeignTensor& tensor, const ForeignChunk& chunk);
  const ForeignTensors& tensors_;
  Storage& storage_;
  std::map<std::uint32_t, std::unique_ptr<StorageReader>> open_;
  std::map<const ForeignChunk*, std::uint64_t> found_;  ///< where an archive's values begin
};

}  // namespace troupe
