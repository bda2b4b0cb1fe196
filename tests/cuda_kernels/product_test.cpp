// Matrix products against a plain kernel, and that one against fp64 on the host.
#include "src/device/cuda/kernels/product.hpp"

#include "src/device/cuda/kernels/float8.hpp"
#include "tests/cuda_kernels/device_array.hpp"

namespace troupe::cuda {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

struct Sizes {
  std::int64_t rows, columns, depth;
};

/// Bytes of an operand in its type, and what they mean.
struct Filled {
  std::vector<std::uint8_t> bytes;
  std::vector<double> values;
};
Filled filled(Element type, std::int64_t count, std::uint64_t seed) {
  Random random(seed);
  Filled result;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto x = static_cast<float>(random.normal(1));
    std::uint8_t bytes[4];
    if (type == Element::f32) {
      std::memcpy(bytes, &x, 4);
      result.values.push_back(x);
    } else if (type == Element::bf16) {
      const auto half = to<BFloat16>(x);
      std::memcpy(bytes, &half, 2);
      result.values.push_back(wide(half));
    } else {
      bytes[0] = float8_code(type, x * 16);
      result.values.push_back(float8_value(type, bytes[0]));
    }
    result.bytes.insert(result.bytes.end(), bytes, bytes + size_of(type));
  }
  return result;
}

Product product_of(const Sizes& s, Element a, bool a_transposed, Element b, bool b_transposed, Element d) {
  Product p{};
  p.rows = s.rows, p.columns = s.columns, p.depth = s.depth;
  p.a = {nullptr, a, a_transposed ? s.rows : s.depth, a_transposed};
  p.b = {nullptr, b, b_transposed ? s.depth : s.columns, b_transposed};
  p.d_type = d;
  p.d_stride = s.columns;
  return p;
}

std::vector<double> multiplied(const Product& p, const Filled& a, const Filled& b, const std::vector<double>& start, double factor) {
  std::vector<double> d = start;
  for (std::int64_t r = 0; r < p.rows; ++r) {
    for (std::int64_t k = 0; k < p.depth; ++k) {
      const double left = a.values[at(p.a.transposed ? k * p.a.stride + r : r * p.a.stride + k)] * factor;
      for (std::int64_t c = 0; c < p.columns; ++c) {
        d[at(r * p.columns + c)] += left * b.values[at(p.b.transposed ? c * p.b.stride + k : k * p.b.stride + c)];
      }
    }
  }
  return d;
}

std::vector<double> result_of(const DeviceArray<std::uint8_t>& d, Element type, std::size_t count) {
  const auto bytes = d.host();
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (type == Element::f32) {
      float x = 0;
      std::memcpy(&x, &bytes[4 * i], 4);
      values[i] = x;
    } else {
      BFloat16 x;
      std::memcpy(&x, &bytes[2 * i], 2);
      values[i] = wide(x);
    }
  }
  return values;
}

constexpr std::size_t workspace_bytes = 64U << 20U;

/// cuBLASLt (swept and not) and the plain kernel, with nothing, with accumulation and with a residual added.
void expect_product(const Sizes& s, Element a_type, bool a_transposed, Element b_type, bool b_transposed, Element d_type, double tolerance) {
  SCOPED_TRACE(testing::Message() << s.rows << " x " << s.columns << " x " << s.depth << ", types " << int(a_type) << int(b_type) << int(d_type));
  Product p = product_of(s, a_type, a_transposed, b_type, b_transposed, d_type);
  const Filled a = filled(a_type, s.rows * s.depth, 1), b = filled(b_type, s.columns * s.depth, 2), old = filled(d_type, s.rows * s.columns, 3);
  const DeviceArray<std::uint8_t> device_a(a.bytes), device_b(b.bytes), workspace(workspace_bytes), residual(old.bytes);
  const bool float8 = size_of(a_type) == 1;
  const DeviceArray<float> inverse(std::vector<float>{0.25F, 0.0625F, 0, 0, 0.0625F});
  p.a.data = device_a.get(), p.b.data = device_b.get();
  if (float8) p.a.inverse_scale = inverse.get(), p.b.inverse_scale = inverse.get() + 4;
  const double factor = float8 ? 0.25 * 0.0625 : 1;
  const std::vector<double> nothing(old.values.size());
  Products swept({.sweep = true, .candidates = 8, .rounds = 1, .milliseconds = 0.1}), first({.sweep = false});
  for (const int added : {0, 1, 2}) {
    const auto wanted = multiplied(p, a, b, added == 0 ? nothing : old.values, factor);
    for (Products* products : {&swept, &first, static_cast<Products*>(nullptr)}) {
      const DeviceArray<std::uint8_t> d(old.bytes);
      p.d = d.get();
      p.accumulate = added == 1;
      p.c = added == 2 ? residual.get() : nullptr;
      if (products != nullptr)
        products->run(stream, p, workspace.get(), workspace_bytes);
      else
        plain_product(stream, p);
      EXPECT_TRUE(products == nullptr || s.rows < 128 || products->refused().empty()) << products->refused();
      expect_close(result_of(d, d_type, wanted.size()), wanted, products == nullptr ? "plain" : products == &swept ? "swept" : "first", tolerance);
    }
  }
}

TEST(Product, OfBf16TakesEveryTransposition) {
  for (const Sizes& s : {Sizes{256, 512, 384}, {130, 70, 33}, {1, 8, 5}, {17, 1, 64}}) {
    expect_product(s, Element::bf16, false, Element::bf16, true, Element::bf16, 3e-3);
    expect_product(s, Element::bf16, false, Element::bf16, false, Element::bf16, 3e-3);
    expect_product(s, Element::bf16, true, Element::bf16, false, Element::f32, 1e-5);
  }
}

TEST(Product, OfFp32IsNotRoundedToTf32) {
  for (const Sizes& s : {Sizes{128, 256, 512}, {31, 45, 67}}) {
    expect_product(s, Element::f32, false, Element::f32, true, Element::f32, 2e-6);
    expect_product(s, Element::f32, false, Element::f32, false, Element::f32, 2e-6);
    expect_product(s, Element::f32, true, Element::f32, false, Element::f32, 2e-6);
  }
}

TEST(Product, OfFp8TakesBothFormatsAndAnyShape) {
  for (const Sizes& s : {Sizes{256, 512, 1024}, {48, 64, 32}, {33, 50, 70}}) {
    expect_product(s, Element::e4m3, false, Element::e4m3, true, Element::bf16, 4e-3);
    expect_product(s, Element::e5m2, false, Element::e4m3, true, Element::bf16, 4e-3);
    expect_product(s, Element::e5m2, false, Element::e4m3, true, Element::f32, 1e-3);
    expect_product(s, Element::e5m2, true, Element::e4m3, false, Element::f32, 1e-3);
  }
}

TEST(Product, OfFp8RefusesScalesThatAreNotAligned) {
  const DeviceArray<float> scales(std::vector<float>(64, 0.5F)), inverse(8);
  const DeviceArray<std::uint8_t> a(std::vector<std::uint8_t>(256 * 256, 0x38)), d(256 * 256 * 2), workspace(workspace_bytes);
  Products products({.sweep = false});
  Product p = product_of({256, 256, 256}, Element::e4m3, false, Element::e4m3, true, Element::bf16);
  p.a.data = p.b.data = a.get();
  p.d = d.get();
  p.a.inverse_scale = scales.get();
  p.b.inverse_scale = scales.get() + 1;
  EXPECT_THROW(products.run(stream, p, workspace.get(), workspace_bytes), std::invalid_argument);
  inverse_scales(stream, scales.get(), scales.get() + 1, inverse.get());  // as they come from the casts
  p.a.inverse_scale = inverse.get();
  p.b.inverse_scale = inverse.get() + 4;
  products.run(stream, p, workspace.get(), workspace_bytes);
  EXPECT_EQ(products.refused(), "");
  EXPECT_EQ(result_of(d, Element::bf16, 256 * 256), std::vector<double>(256 * 256, 256.0 * 4));
}

TEST(Product, StoredChoicesAreTakenAndForeignOnesRefused) {
  const Sizes s{256, 256, 256};
  Product p = product_of(s, Element::bf16, false, Element::bf16, true, Element::bf16);
  const Filled a = filled(Element::bf16, 256 * 256, 1);
  const DeviceArray<std::uint8_t> device(a.bytes), d(a.bytes.size()), again(a.bytes.size()), workspace(workspace_bytes);
  p.a.data = p.b.data = device.get();
  p.d = d.get();
  Products swept({.known_choices = false}), later({.known_choices = false});
  swept.run(stream, p, workspace.get(), workspace_bytes);
  EXPECT_TRUE(later.adopt(swept.choices()));
  p.d = again.get();
  later.run(stream, p, workspace.get(), workspace_bytes);
  EXPECT_EQ(later.choices(), swept.choices());
  EXPECT_EQ(again.host(), d.host());
  EXPECT_FALSE(later.adopt("cublasLt 1, another device\n1 2 3\n"));
}

TEST(Product, RefusesStridesShorterThanRowsAndMixedFormats) {
  Products products({});
  Product p = product_of({16, 16, 16}, Element::bf16, false, Element::bf16, true, Element::bf16);
  p.d_stride = 8;
  EXPECT_THROW(products.run(stream, p, nullptr, 0), std::invalid_argument);
  p = product_of({16, 16, 16}, Element::e4m3, false, Element::bf16, true, Element::bf16);
  EXPECT_THROW(products.run(stream, p, nullptr, 0), std::invalid_argument);
}

}  // namespace
}  // namespace troupe::cuda
