// Casts to fp8 and transposes, against the CPU's bit arithmetic.
#include "src/device/cuda/kernels/float8.hpp"

#include "src/device/cuda/kernels/rms_norm.hpp"
#include "src/device/cuda/kernels/transpose.hpp"
#include "tests/cuda_kernels/device_array.hpp"

namespace troupe::cuda {
namespace {

struct Shape2 {
  std::int64_t rows, columns;
};
const Shape2 shapes[] = {{512, 4096}, {144, 14336}, {272, 6144}, {128, 64}, {16, 8}, {130, 72}, {7, 13}, {1, 1}, {33, 4100}};

template <class T>
std::vector<std::uint8_t> codes_of(const std::vector<T>& x, Element format, float scale) {
  std::vector<std::uint8_t> codes(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) codes[i] = float8_code(format, static_cast<float>(wide(x[i])) * scale);
  return codes;
}

template <class B>
std::vector<B> transposed(const std::vector<B>& x, std::int64_t rows, std::int64_t columns) {
  std::vector<B> result(x.size());
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) result[static_cast<std::size_t>(c * rows + r)] = x[static_cast<std::size_t>(r * columns + c)];
  }
  return result;
}

template <class T>
void expect_cast_transpose(const Shape2& shape, Element format) {
  Random random(static_cast<std::uint64_t>(shape.rows * 31 + shape.columns));
  const auto x = random.values<T>(static_cast<std::size_t>(shape.rows * shape.columns), 3);
  const DeviceArray<T> device_x(x);
  const DeviceArray<std::uint8_t> codes(x.size()), turned(x.size());
  const DeviceArray<float> largest(1), scales(2);
  amax(stream, device_x.get(), element_of<T>, static_cast<std::int64_t>(x.size()), largest.get(), false);
  EXPECT_EQ(largest.host()[0], largest_of(x));
  cast_transpose(stream,
                 {device_x.get(), element_of<T>, largest.get(), format, shape.rows, shape.columns, codes.get(), turned.get(), scales.get(), scales.get() + 1});
  const float scale = scale_of(format, largest_of(x));
  EXPECT_EQ(scales.host()[0], scale);
  EXPECT_FLOAT_EQ(scales.host()[1], 1.0F / scale);
  const auto wanted = codes_of(x, format, scale);
  EXPECT_EQ(codes.host(), wanted);
  EXPECT_EQ(turned.host(), transposed(wanted, shape.rows, shape.columns));
}

TEST(CastTranspose, WritesTheCodesOfTheCpuInBothLayouts) {
  for (const Shape2& shape : shapes) {
    SCOPED_TRACE(testing::Message() << shape.rows << " x " << shape.columns);
    expect_cast_transpose<BFloat16>(shape, Element::e4m3);
    expect_cast_transpose<BFloat16>(shape, Element::e5m2);
    expect_cast_transpose<float>(shape, Element::e4m3);
  }
}

TEST(CastTranspose, WritesOneLayoutAlone) {
  const std::int64_t rows = 256, columns = 192;
  Random random(3);
  const auto x = random.values<BFloat16>(static_cast<std::size_t>(rows * columns));
  const DeviceArray<BFloat16> device_x(x);
  const DeviceArray<float> largest(std::vector<float>{2.0F});
  const DeviceArray<std::uint8_t> codes(x.size()), turned(x.size());
  cast_transpose(stream, {device_x.get(), Element::bf16, largest.get(), Element::e4m3, rows, columns, codes.get()});
  cast_transpose(stream, {device_x.get(), Element::bf16, largest.get(), Element::e4m3, rows, columns, nullptr, turned.get()});
  const auto wanted = codes_of(x, Element::e4m3, 224.0F);  // values beyond the amax saturate
  EXPECT_EQ(codes.host(), wanted);
  EXPECT_EQ(turned.host(), transposed(wanted, rows, columns));
}

TEST(CastTranspose, NormsOnTheWayToTheBitsOfTheStoredNorm) {
  for (const Shape2& shape : {Shape2{272, 4096}, {33, 100}}) {
    Random random(4);
    const auto x = random.values<BFloat16>(static_cast<std::size_t>(shape.rows * shape.columns));
    const DeviceArray<BFloat16> device_x(x), w(random.values<BFloat16>(static_cast<std::size_t>(shape.columns))), y(x.size());
    const DeviceArray<float> rstd(static_cast<std::size_t>(shape.rows)), largest(std::vector<float>{0.0F});
    const DeviceArray<std::uint8_t> wanted(x.size()), found(x.size());
    rms_norm(stream, {device_x.get(), w.get(), y.get(), rstd.get(), Element::bf16, shape.rows, shape.columns, 1e-5F, largest.get()});
    CastTranspose call{y.get(), Element::bf16, largest.get(), Element::e4m3, shape.rows, shape.columns, nullptr, wanted.get()};
    cast_transpose(stream, call);
    call.x = device_x.get(), call.transposed = found.get(), call.rstd = rstd.get(), call.norm_weight = w.get();
    cast_transpose(stream, call);
    EXPECT_EQ(found.host(), wanted.host());
  }
}

TEST(Quantize, KeepsNanSaturatesInfinityAndKeepsTheSignOfZero) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> x{0.0F, -0.0F, inf, -inf, nan, 448.0F, 464.0F, -1e30F, 1e-30F, 0.0019F, 17.0F};
  const DeviceArray<float> device_x(x), scale(std::vector<float>{1.0F});
  const DeviceArray<std::uint8_t> codes(x.size());
  for (const Element format : {Element::e4m3, Element::e5m2}) {
    quantize(stream, device_x.get(), Element::f32, scale.get(), codes.get(), format, static_cast<std::int64_t>(x.size()));
    EXPECT_EQ(codes.host(), codes_of(x, format, 1.0F));
  }
}

TEST(Quantize, TakesAnyCountAndType) {
  for (const std::int64_t count : {1, 7, 8, 4096, 100003}) {
    Random random(static_cast<std::uint64_t>(count));
    const auto x = random.values<BFloat16>(static_cast<std::size_t>(count), 50);
    const DeviceArray<BFloat16> device_x(x);
    const DeviceArray<float> scale(std::vector<float>{3.0F});
    const DeviceArray<std::uint8_t> codes(x.size());
    quantize(stream, device_x.get(), Element::bf16, scale.get(), codes.get(), Element::e5m2, count);
    EXPECT_EQ(codes.host(), codes_of(x, Element::e5m2, 3.0F));
  }
}

TEST(Amax, AccumulatesAndLetsNanWin) {
  std::vector<float> x(100001, 0.5F);
  x[77777] = -3.0F;
  const DeviceArray<float> device_x(x), largest(std::vector<float>{2.0F});
  amax(stream, device_x.get(), Element::f32, 100001, largest.get(), true);
  EXPECT_EQ(largest.host()[0], 3.0F);
  amax(stream, device_x.get(), Element::f32, 77777, largest.get(), false);
  EXPECT_EQ(largest.host()[0], 0.5F);
  x[5] = std::numeric_limits<float>::quiet_NaN();
  x[6] = std::numeric_limits<float>::infinity();
  amax(stream, DeviceArray<float>(x).get(), Element::f32, 100001, largest.get(), true);
  EXPECT_TRUE(std::isnan(largest.host()[0]));
}

TEST(ScaleFromAmax, FollowsTheFormulaAtItsEdges) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> amaxes{0.0F, 1e-20F, 1e-12F, 0.3F, 448.0F, 3e38F, inf, std::numeric_limits<float>::quiet_NaN()};
  const DeviceArray<float> device_amax(amaxes), scale(amaxes.size()), inverse(amaxes.size());
  scale_from_amax(stream, device_amax.get(), Element::e4m3, scale.get(), inverse.get(), static_cast<std::int64_t>(amaxes.size()));
  const auto found = scale.host();
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(found[i], scale_of(Element::e4m3, amaxes[i])) << amaxes[i];
  EXPECT_EQ(found[6], 0.0F);
  EXPECT_TRUE(std::isnan(found[7]));
  EXPECT_FLOAT_EQ(inverse.host()[3], 1.0F / found[3]);
}

TEST(TransposeBytes, TurnsAnyShape) {
  for (const Shape2& shape : {Shape2{4096, 6144}, {128, 128}, {16, 48}, {144, 1008}, {100, 36}, {1, 500}, {33, 31}}) {
    Random random(static_cast<std::uint64_t>(shape.rows));
    std::vector<std::uint8_t> x(static_cast<std::size_t>(shape.rows * shape.columns));
    for (std::uint8_t& byte : x) byte = static_cast<std::uint8_t>(random.bits());
    const DeviceArray<std::uint8_t> from(x), turned(x.size());
    transpose_bytes(stream, from.get(), shape.rows, shape.columns, turned.get());
    EXPECT_EQ(turned.host(), transposed(x, shape.rows, shape.columns)) << shape.rows << " x " << shape.columns;
  }
}

}  // namespace
}  // namespace troupe::cuda
