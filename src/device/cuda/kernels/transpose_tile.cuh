#pragma once
// Transposes bytes through shared memory: threads write words of four rows, read back sixteen rows of one column. Device code only.
#include <cstdint>

namespace troupe::cuda {

/// `words[k]` holds columns 4k…4k+3 of one row, for four rows: out[c] gets column c, row 0 in the lowest byte.
template <int words>
__device__ void transpose_quads(const std::uint32_t (&row)[4][words], std::uint32_t (&column)[4 * words]) {
#pragma unroll
  for (int k = 0; k < words; ++k) {
    const std::uint32_t a = __byte_perm(row[0][k], row[1][k], 0x5140), b = __byte_perm(row[2][k], row[3][k], 0x5140);  // columns 0, 1
    const std::uint32_t c = __byte_perm(row[0][k], row[1][k], 0x7362), d = __byte_perm(row[2][k], row[3][k], 0x7362);  // columns 2, 3
    column[4 * k] = __byte_perm(a, b, 0x5410);
    column[4 * k + 1] = __byte_perm(a, b, 0x7632);
    column[4 * k + 2] = __byte_perm(c, d, 0x5410);
    column[4 * k + 3] = __byte_perm(c, d, 0x7632);
  }
}

/// A tile of `columns` × `rows` bytes, column by column. Word `r` of column `c` lies in the 16-byte chunk r/4 xor the column's group, so that
/// neither the writes (8 groups of columns × 4 words a warp) nor the reads (8 chunks of a column a phase) meet in a bank.
template <int rows, int columns, int group>
class TransposeTile {
 public:
  static constexpr int chunks = rows / 16;
  __device__ void put(int column, int word, std::uint32_t value) { words_[column][((word / 4) ^ swizzle(column)) * 4 + word % 4] = value; }
  [[nodiscard]] __device__ uint4 chunk(int column, int index) const { return *reinterpret_cast<const uint4*>(&words_[column][(index ^ swizzle(column)) * 4]); }

 private:
  __device__ static int swizzle(int column) { return (column / group) & (chunks < 8 ? chunks - 1 : 7); }
  alignas(16) std::uint32_t words_[columns][rows / 4];
};

}  // namespace troupe::cuda
