#include "src/device/tensor_view.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "src/device/device.hpp"

namespace troupe {
namespace {

TEST(Shape, MultipliesItsSizes) {
  EXPECT_EQ((Shape{2, 3, 4, 5}).elements(), 120);
  EXPECT_EQ(Shape{}.elements(), 1);
  EXPECT_EQ((Shape{7, 0}).elements(), 0);
}

TEST(Shape, OfMoreThanFourDimensionsIsRefused) { EXPECT_THROW((Shape{1, 2, 3, 4, 5}), std::length_error); }

TEST(Shape, CountsInSixtyFourBits) { EXPECT_EQ((Shape{65536, 65536}).elements(), std::int64_t{1} << 32); }

TEST(TensorView, OfContiguousMemoryHasRowMajorStrides) {
  std::vector<float> data(24);
  const auto view = TensorView::contiguous(data.data(), DType::f32, {2, 3, 4});
  EXPECT_EQ(view.strides[0], 12);
  EXPECT_EQ(view.strides[1], 4);
  EXPECT_EQ(view.strides[2], 1);
  EXPECT_EQ(view.bytes(), 96U);
  EXPECT_EQ(view.as<float>(), data.data());
}

TEST(TensorView, RowsStartAtTheirPlaceAndKeepTheRest) {
  std::vector<float> data(24);
  const auto rows = TensorView::contiguous(data.data(), DType::f32, {6, 4}).rows(2, 3);
  EXPECT_EQ(rows.as<float>(), data.data() + 8);
  EXPECT_EQ(rows.shape, (Shape{3, 4}));
  EXPECT_EQ(rows.strides[0], 4);
}

TEST(TensorView, BytesOfALargeTensorDoNotWrap) {
  const auto view = TensorView::contiguous(nullptr, DType::f32, {65536, 65536});
  EXPECT_EQ(view.bytes(), std::size_t{16} << 30);
  const auto last = view.rows(65535, 1);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(last.data), (std::uintptr_t{16} << 30) - 65536 * 4);
}

TEST(DTypes, HaveTheirSizesAndNames) {
  EXPECT_EQ(size_of(DType::f64), 8U);
  EXPECT_EQ(size_of(DType::i32), 4U);
  EXPECT_EQ(size_of(DType::bf16), 2U);
  EXPECT_EQ(size_of(DType::e5m2), 1U);
  EXPECT_EQ(name_of(DType::e4m3), "float8_e4m3");
}

TEST(HostMemory, IsZeroAndPageAligned) {
  const auto buffer = allocate_host(1 << 20);
  ASSERT_EQ(buffer->bytes().size(), std::size_t{1} << 20);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->bytes().data()) % 4096, 0U);
  for (const std::byte value : buffer->bytes()) ASSERT_EQ(value, std::byte{0});
}

}  // namespace
}  // namespace troupe
