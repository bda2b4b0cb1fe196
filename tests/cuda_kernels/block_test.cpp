// The memory-bound operations of a block, against fp64 on the host.
#include "src/device/cuda/kernels/memory.hpp"
#include "src/device/cuda/kernels/rms_norm.hpp"
#include "src/device/cuda/kernels/rotary.hpp"
#include "src/device/cuda/kernels/swiglu.hpp"
#include "tests/cuda_kernels/device_array.hpp"

namespace troupe::cuda {
namespace {

struct Shape2 {
  std::int64_t rows, columns;
};
std::size_t size(const Shape2& s) { return static_cast<std::size_t>(s.rows * s.columns); }
std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

template <class T>
void expect_rms_norm(const Shape2& s) {
  Random random(static_cast<std::uint64_t>(s.columns));
  const auto x = random.values<T>(size(s), 2), w = random.values<T>(at(s.columns));
  const DeviceArray<T> device_x(x), device_w(w), y(x.size());
  const DeviceArray<float> rstd(at(s.rows)), largest(std::vector<float>{0.0F});
  rms_norm(stream, {device_x.get(), device_w.get(), y.get(), rstd.get(), element_of<T>, s.rows, s.columns, 1e-5F, largest.get()});
  std::vector<double> wanted(x.size()), wanted_rstd(at(s.rows));
  for (std::int64_t r = 0; r < s.rows; ++r) {
    double sum = 0;
    for (std::int64_t c = 0; c < s.columns; ++c) sum += wide(x[at(r * s.columns + c)]) * wide(x[at(r * s.columns + c)]);
    wanted_rstd[at(r)] = 1 / std::sqrt(sum / static_cast<double>(s.columns) + 1e-5);
    for (std::int64_t c = 0; c < s.columns; ++c) wanted[at(r * s.columns + c)] = wide(x[at(r * s.columns + c)]) * wanted_rstd[at(r)] * wide(w[at(c)]);
  }
  expect_close(y.host(), wanted, "y");
  expect_close(rstd.host(), wanted_rstd, "rstd");
  EXPECT_EQ(largest.host()[0], largest_of(y.host()));
}

const Shape2 norm_shapes[] = {{300, 4096}, {37, 1024}, {5, 2048}, {9, 8192}, {3, 16384}, {4, 5120}, {6, 40}, {11, 77}, {2, 20000}, {301, 64}};

TEST(RmsNorm, AgreesWithFp64) {
  for (const Shape2& s : norm_shapes) {
    SCOPED_TRACE(testing::Message() << s.rows << " x " << s.columns);
    expect_rms_norm<BFloat16>(s);
    expect_rms_norm<float>(s);
  }
  expect_rms_norm<float>({1, 1});
}

TEST(RmsNorm, PropagatesNanOfItsRowAlone) {
  std::vector<float> x(4 * 4096, 1.0F);
  x[4096 + 17] = std::numeric_limits<float>::quiet_NaN();
  const DeviceArray<float> device_x(x), w(std::vector<float>(4096, 1.0F)), y(x.size()), rstd(4), largest(std::vector<float>{0.0F});
  rms_norm(stream, {device_x.get(), w.get(), y.get(), rstd.get(), Element::f32, 4, 4096, 1e-5F, largest.get()});
  const auto found = y.host();
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(std::isnan(found[i]), i / 4096 == 1) << i;
  EXPECT_TRUE(std::isnan(largest.host()[0]));
}

template <class T>
void expect_rms_norm_backward(const Shape2& s, bool residual, bool accumulate) {
  Random random(static_cast<std::uint64_t>(s.columns));
  const auto dy = random.values<T>(size(s)), x = random.values<T>(size(s), 2), w = random.values<T>(at(s.columns)), before = random.values<T>(size(s));
  const auto old = random.values<float>(at(s.columns));
  std::vector<float> rstd(at(s.rows));
  std::vector<double> dx(x.size()), dw(at(s.columns));
  for (std::int64_t c = 0; c < s.columns; ++c) dw[at(c)] = accumulate ? old[at(c)] : 0;
  for (std::int64_t r = 0; r < s.rows; ++r) {
    double sum = 0, along = 0;
    for (std::int64_t i = r * s.columns; i < (r + 1) * s.columns; ++i) sum += wide(x[at(i)]) * wide(x[at(i)]);
    rstd[at(r)] = static_cast<float>(1 / std::sqrt(sum / static_cast<double>(s.columns) + 1e-5));
    const double k = rstd[at(r)];
    for (std::int64_t c = 0; c < s.columns; ++c) along += wide(dy[at(r * s.columns + c)]) * wide(w[at(c)]) * wide(x[at(r * s.columns + c)]);
    for (std::int64_t c = 0; c < s.columns; ++c) {
      const std::size_t i = at(r * s.columns + c);
      dx[i] = wide(dy[i]) * wide(w[at(c)]) * k - wide(x[i]) * along * k * k * k / static_cast<double>(s.columns) + (residual ? wide(before[i]) : 0);
      dw[at(c)] += wide(dy[i]) * wide(x[i]) * k;
    }
  }
  const DeviceArray<T> device_dy(dy), device_x(x), device_w(w), device_dx(before);
  const DeviceArray<float> device_rstd(rstd), device_dw(old), largest(std::vector<float>{0.0F});
  const DeviceArray<std::uint8_t> scratch(rms_norm_backward_scratch(s.columns));
  rms_norm_backward(stream, {device_dy.get(), device_x.get(), device_w.get(), device_rstd.get(), device_dx.get(), residual ? device_dx.get() : nullptr,
                             device_dw.get(), accumulate, element_of<T>, s.rows, s.columns, largest.get(), scratch.get()});
  expect_close(device_dx.host(), dx, "dx");
  expect_close(device_dw.host(), dw, "dw", 1e-5);
  EXPECT_EQ(largest.host()[0], largest_of(device_dx.host()));
}

TEST(RmsNormBackward, AgreesWithFp64) {
  for (const Shape2& s : norm_shapes) {
    SCOPED_TRACE(testing::Message() << s.rows << " x " << s.columns);
    expect_rms_norm_backward<BFloat16>(s, true, false);
    expect_rms_norm_backward<BFloat16>(s, false, true);
    expect_rms_norm_backward<float>(s, true, true);
  }
}

TEST(RmsNormBackward, RepeatsBitForBit) {
  const Shape2 s{3001, 4096};
  Random random(1);
  const DeviceArray<BFloat16> dy(random.values<BFloat16>(size(s))), x(random.values<BFloat16>(size(s))), w(random.values<BFloat16>(4096)), dx(size(s));
  const DeviceArray<float> rstd(random.values<float>(at(s.rows))), dw(4096);
  const DeviceArray<std::uint8_t> scratch(rms_norm_backward_scratch(4096));
  std::vector<float> first;
  for (int i = 0; i < 5; ++i) {
    rms_norm_backward(stream,
                      {dy.get(), x.get(), w.get(), rstd.get(), dx.get(), nullptr, dw.get(), false, Element::bf16, s.rows, s.columns, nullptr, scratch.get()});
    if (i == 0) first = dw.host();
    EXPECT_EQ(dw.host(), first);
  }
}

template <class T>
void expect_rotary(std::int64_t tokens, std::int64_t heads, std::int64_t d, std::int64_t stride, std::int64_t positions, bool inverse) {
  Random random(static_cast<std::uint64_t>(d));
  const auto x = random.values<T>(at(tokens * stride));
  const auto table = random.values<float>(at(positions * d));
  std::vector<double> wanted(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) wanted[i] = wide(x[i]);
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t p = 0; p < d / 2; ++p) {
        const std::size_t i = at(t * stride + h * d + 2 * p), angle = at((t % positions * (d / 2) + p) * 2);
        const double cosine = table[angle], sine = (inverse ? -1 : 1) * static_cast<double>(table[angle + 1]);
        wanted[i] = wide(x[i]) * cosine - wide(x[i + 1]) * sine;
        wanted[i + 1] = wide(x[i]) * sine + wide(x[i + 1]) * cosine;
      }
    }
  }
  const DeviceArray<T> device_x(x);
  const DeviceArray<float> device_table(table), largest(std::vector<float>{0.0F});
  rotary(stream, {device_x.get(), element_of<T>, tokens, heads, d, stride, device_table.get(), positions, inverse, largest.get()});
  const auto turned = device_x.host();
  expect_close(turned, wanted, "x");
  std::vector<T> heads_alone;
  for (std::int64_t t = 0; t < tokens; ++t) heads_alone.insert(heads_alone.end(), &turned[at(t * stride)], &turned[at(t * stride)] + heads * d);
  EXPECT_EQ(largest.host()[0], largest_of(heads_alone));
}

TEST(Rotary, TurnsPairsOfAPackedBufferAndLeavesTheRest) {
  expect_rotary<BFloat16>(70, 40, 128, 6144, 32, false);
  expect_rotary<BFloat16>(70, 40, 128, 6144, 32, true);
  expect_rotary<float>(5, 3, 64, 192, 5, false);
  expect_rotary<BFloat16>(9, 2, 8, 24, 4, true);
  expect_rotary<float>(9, 3, 6, 19, 4, false);
  expect_rotary<BFloat16>(3, 17, 256, 17 * 256, 2, false);
}

template <class T>
void expect_rotary_pack(std::int64_t tokens, std::int64_t heads, std::int64_t kv, std::int64_t d) {
  const std::int64_t positions = 16, all = heads + 2 * kv;
  Random random(7);
  const auto dq = random.values<T>(at(tokens * heads * d)), dk = random.values<T>(at(tokens * kv * d)), dv = random.values<T>(at(tokens * kv * d));
  const auto table = random.values<float>(at(positions * d));
  std::vector<double> wanted(at(tokens * all * d));
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t h = 0; h < all; ++h) {
      const T* from = h < heads ? &dq[at((t * heads + h) * d)] : h < heads + kv ? &dk[at((t * kv + h - heads) * d)] : &dv[at((t * kv + h - heads - kv) * d)];
      for (std::int64_t p = 0; p < d / 2; ++p) {
        const std::size_t i = at((t * all + h) * d + 2 * p), angle = at((t % positions * (d / 2) + p) * 2);
        const double a = wide(from[2 * p]), b = wide(from[2 * p + 1]), cosine = table[angle], sine = -static_cast<double>(table[angle + 1]);
        wanted[i] = h < heads + kv ? a * cosine - b * sine : a;
        wanted[i + 1] = h < heads + kv ? a * sine + b * cosine : b;
      }
    }
  }
  const DeviceArray<T> device_dq(dq), device_dk(dk), device_dv(dv), packed(wanted.size());
  const DeviceArray<float> device_table(table), largest(std::vector<float>{0.0F});
  rotary_pack(stream, {device_dq.get(), device_dk.get(), device_dv.get(), packed.get(), element_of<T>, tokens, heads, kv, d, device_table.get(), positions,
                       largest.get()});
  expect_close(packed.host(), wanted, "packed");
  EXPECT_EQ(largest.host()[0], largest_of(packed.host()));
}

TEST(RotaryPack, TurnsQueriesAndKeysBackAndPacksThreeGradients) {
  expect_rotary_pack<BFloat16>(50, 32, 8, 128);
  expect_rotary_pack<float>(7, 4, 2, 64);
  expect_rotary_pack<BFloat16>(7, 3, 1, 10);
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

template <class T>
void expect_swiglu(const Shape2& s) {
  Random random(static_cast<std::uint64_t>(s.columns));
  const std::int64_t stride = 2 * s.columns;
  const auto packed = random.values<T>(at(s.rows * stride), 3), dout = random.values<T>(size(s));
  std::vector<double> out(size(s)), gradients(packed.size());
  for (std::int64_t r = 0; r < s.rows; ++r) {
    for (std::int64_t c = 0; c < s.columns; ++c) {
      const double g = wide(packed[at(r * stride + c)]), u = wide(packed[at(r * stride + s.columns + c)]), d = wide(dout[at(r * s.columns + c)]);
      out[at(r * s.columns + c)] = g * sigmoid(g) * u;
      gradients[at(r * stride + c)] = d * u * sigmoid(g) * (1 + g * (1 - sigmoid(g)));
      gradients[at(r * stride + s.columns + c)] = d * g * sigmoid(g);
    }
  }
  const DeviceArray<T> device_packed(packed), device_dout(dout), device_out(out.size()), device_gradients(gradients.size());
  const DeviceArray<float> largest(std::vector<float>{0.0F, 0.0F});
  const DeviceArray<std::uint8_t> turned(out.size());
  const T* up = device_packed.get() + s.columns;
  swiglu(stream, {device_packed.get(), up, device_out.get(), element_of<T>, s.rows, s.columns, stride, largest.get()});
  expect_close(device_out.host(), out, "out");
  EXPECT_EQ(largest.host()[0], largest_of(device_out.host()));
  swiglu_backward(stream, {device_dout.get(), device_packed.get(), up, device_gradients.get(), device_gradients.get() + s.columns, element_of<T>, s.rows,
                           s.columns, stride, stride, largest.get() + 1, false, nullptr, largest.get(), turned.get()});
  const auto slopes = device_gradients.host();
  expect_close(slopes, gradients, "gradients");
  EXPECT_EQ(largest.host()[1], largest_of(slopes));
  const DeviceArray<float> apart(std::vector<float>{0.0F, 0.0F});
  swiglu_backward(stream, {device_dout.get(), device_packed.get(), up, device_gradients.get(), device_gradients.get() + s.columns, element_of<T>, s.rows,
                           s.columns, stride, stride, apart.get(), true, apart.get() + 1});
  std::vector<T> halves[2];
  for (std::int64_t r = 0; r < s.rows; ++r) {
    for (const std::int64_t half : {0, 1}) {
      const T* row = &slopes[at(r * stride + half * s.columns)];
      halves[half].insert(halves[half].end(), row, row + s.columns);
    }
  }
  EXPECT_EQ(apart.host(), (std::vector<float>{largest_of(halves[0]), largest_of(halves[1])}));
  const auto stored = device_out.host();  // the codes are those of the forward's result as it was stored
  const float scale = scale_of(Element::e4m3, largest_of(stored));
  std::vector<std::uint8_t> wanted(stored.size());
  for (std::int64_t r = 0; r < s.rows; ++r) {
    for (std::int64_t c = 0; c < s.columns; ++c) {
      wanted[at(c * s.rows + r)] = float8_code(Element::e4m3, static_cast<float>(wide(stored[at(r * s.columns + c)])) * scale);
    }
  }
  EXPECT_EQ(turned.host(), wanted);
}

TEST(Swiglu, ForwardAndBackwardAgreeWithFp64OnPackedHalves) {
  for (const Shape2& s : {Shape2{128, 14336}, {272, 192}, {130, 64}, {48, 8}, {17, 4096}, {5, 13}, {1, 1}}) {
    SCOPED_TRACE(testing::Message() << s.rows << " x " << s.columns);
    expect_swiglu<BFloat16>(s);
    expect_swiglu<float>(s);
  }
}

TEST(Swiglu, StaysFiniteFarFromZero) {
  const std::vector<float> gate{-1000.0F, -100.0F, 100.0F, 1000.0F, 0.0F, -88.0F, 88.0F, -20.0F}, one(8, 1.0F);
  const DeviceArray<float> g(gate), u(one), out(8), dgate(8), dup(8);
  swiglu(stream, {g.get(), u.get(), out.get(), Element::f32, 1, 8, 8});
  swiglu_backward(stream, {u.get(), g.get(), u.get(), dgate.get(), dup.get(), Element::f32, 1, 8, 8, 8});
  const auto found = out.host(), slope = dgate.host();
  for (std::size_t i = 0; i < 8; ++i) {
    const double g64 = gate[i];
    EXPECT_NEAR(found[i], g64 * sigmoid(g64), 1e-5 * std::fabs(g64) + 1e-30) << g64;
    EXPECT_NEAR(slope[i], sigmoid(g64) * (1 + g64 * (1 - sigmoid(g64))), 1e-5) << g64;
  }
}

TEST(Memory, FillsCastsAndAdds) {
  const std::int64_t count = 10003;
  Random random(5);
  const auto a = random.values<float>(at(count)), b = random.values<float>(at(count));
  const DeviceArray<float> device_a(a), device_b(b), sum(at(count)), back(at(count));
  const DeviceArray<BFloat16> half(at(count));
  const DeviceArray<double> twice(at(count));
  add(stream, device_a.get(), device_b.get(), sum.get(), Element::f32, count);
  cast(stream, device_a.get(), Element::f32, half.get(), Element::bf16, count);
  cast(stream, half.get(), Element::bf16, back.get(), Element::f32, count);
  cast(stream, device_a.get(), Element::f32, twice.get(), Element::f64, count);
  const auto sums = sum.host(), backs = back.host();
  const auto halves = half.host();
  const auto twices = twice.host();
  for (std::size_t i = 0; i < at(count); ++i) {
    ASSERT_EQ(sums[i], a[i] + b[i]);
    ASSERT_EQ(wide(halves[i]), wide(to<BFloat16>(a[i])));
    ASSERT_EQ(backs[i], static_cast<float>(wide(halves[i])));
    ASSERT_EQ(twices[i], static_cast<double>(a[i]));
  }
  fill(stream, half.get(), Element::bf16, count, 1.5);
  fill(stream, sum.get(), Element::f32, count, 0.0);
  for (const BFloat16 value : half.host()) ASSERT_EQ(wide(value), 1.5);
  EXPECT_EQ(sum.host(), std::vector<float>(at(count), 0.0F));
  EXPECT_THROW(cast(stream, half.get(), Element::bf16, sum.get(), Element::i32, count), std::invalid_argument);
}

}  // namespace
}  // namespace troupe::cuda
