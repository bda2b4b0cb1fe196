// Causal attention, own and cuDNN's, against fp64 on the host.
#include "src/device/cuda/kernels/attention.hpp"

#include "src/device/cuda/kernels/fused_attention.hpp"
#include "tests/cuda_kernels/device_array.hpp"

namespace troupe::cuda {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

struct Case {
  std::int64_t batch, sequence, heads, kv, d;
  [[nodiscard]] std::int64_t all() const { return heads + 2 * kv; }
  [[nodiscard]] std::int64_t tokens() const { return batch * sequence; }
};

struct Wanted {
  std::vector<double> out, lse, gradients;  ///< gradients: [tokens, dq | dk | dv]
};

/// q, k, v lie packed: [tokens, heads + 2 kv, d].
template <class T>
Wanted wanted_of(const Case& c, const std::vector<T>& packed, const std::vector<T>& dout, double scale) {
  Wanted w{std::vector<double>(at(c.tokens() * c.heads * c.d)), std::vector<double>(at(c.batch * c.heads * c.sequence)), std::vector<double>(packed.size())};
  const auto place = [&](std::int64_t b, std::int64_t s, std::int64_t h) { return ((b * c.sequence + s) * c.all() + h) * c.d; };
  std::vector<double> p(at(c.sequence));
  for (std::int64_t b = 0; b < c.batch; ++b) {
    for (std::int64_t h = 0; h < c.heads; ++h) {
      const std::int64_t kh = c.heads + h / (c.heads / c.kv), vh = kh + c.kv;
      for (std::int64_t i = 0; i < c.sequence; ++i) {
        const std::int64_t q = place(b, i, h), o = ((b * c.sequence + i) * c.heads + h) * c.d;
        double top = -1e300, sum = 0, along = 0;
        for (std::int64_t j = 0; j <= i; ++j) {
          double score = 0;
          for (std::int64_t e = 0; e < c.d; ++e) score += wide(packed[at(q + e)]) * wide(packed[at(place(b, j, kh) + e)]);
          p[at(j)] = score * scale;
          top = std::max(top, p[at(j)]);
        }
        for (std::int64_t j = 0; j <= i; ++j) sum += std::exp(p[at(j)] - top);
        w.lse[at((b * c.heads + h) * c.sequence + i)] = top + std::log(sum);
        for (std::int64_t j = 0; j <= i; ++j) {
          p[at(j)] = std::exp(p[at(j)] - top) / sum;
          for (std::int64_t e = 0; e < c.d; ++e) w.out[at(o + e)] += p[at(j)] * wide(packed[at(place(b, j, vh) + e)]);
        }
        for (std::int64_t e = 0; e < c.d; ++e) along += wide(dout[at(o + e)]) * w.out[at(o + e)];
        for (std::int64_t j = 0; j <= i; ++j) {
          double dp = 0;
          for (std::int64_t e = 0; e < c.d; ++e) dp += wide(dout[at(o + e)]) * wide(packed[at(place(b, j, vh) + e)]);
          const double ds = p[at(j)] * (dp - along) * scale;
          for (std::int64_t e = 0; e < c.d; ++e) {
            w.gradients[at(q + e)] += ds * wide(packed[at(place(b, j, kh) + e)]);
            w.gradients[at(place(b, j, kh) + e)] += ds * wide(packed[at(q + e)]);
            w.gradients[at(place(b, j, vh) + e)] += p[at(j)] * wide(dout[at(o + e)]);
          }
        }
      }
    }
  }
  return w;
}

/// q, k, v in one packed buffer, their gradients in another.
template <class T>
struct Call {
  Call(const Case& c, const std::vector<T>& values, const std::vector<T>& slope, double scale)
      : packed(values), dout(slope), out(slope.size()), gradients(values.size()), lse(at(c.batch * c.heads * c.sequence)) {
    const std::int64_t stride = c.all() * c.d;
    T *q = packed.get(), *dq = gradients.get();
    forward = {
        q,      q + c.heads * c.d, q + (c.heads + c.kv) * c.d, out.get(), lse.get(), element_of<T>, c.batch, c.sequence, c.heads, c.kv, c.d, stride, stride,
        stride, c.heads * c.d,     static_cast<float>(scale)};
    backward = {forward, dout.get(), dq, dq + c.heads * c.d, dq + (c.heads + c.kv) * c.d, c.heads * c.d, stride, stride, stride};
  }
  DeviceArray<T> packed, dout, out, gradients;
  DeviceArray<float> lse;
  Attention forward;
  AttentionBackward backward;
};

template <class T>
void expect_matches(const Call<T>& call, const Wanted& wanted, const char* what) {
  const double tolerance = std::is_same_v<T, float> ? 2e-5 : 8e-3;
  expect_close(call.out.host(), wanted.out, what, tolerance);
  expect_close(call.lse.host(), wanted.lse, what, std::is_same_v<T, float> ? 1e-6 : 1e-4);
  expect_close(call.gradients.host(), wanted.gradients, what, tolerance);
}

template <class T>
void expect_attention(const Case& c) {
  SCOPED_TRACE(testing::Message() << c.batch << " x " << c.sequence << ", " << c.heads << "/" << c.kv << " heads of " << c.d);
  const auto values = Random(1).values<T>(at(c.tokens() * c.all() * c.d)), slope = Random(2).values<T>(at(c.tokens() * c.heads * c.d));
  const double scale = 1 / std::sqrt(static_cast<double>(c.d));
  const Wanted wanted = wanted_of(c, values, slope, scale);
  Call<T> plain(c, values, slope, scale);
  const DeviceArray<std::uint8_t> scratch(plain_attention_scratch(plain.forward));
  plain_attention(stream, plain.forward);
  plain_attention_backward(stream, plain.backward, scratch.get());
  expect_matches(plain, wanted, "plain");
  if (!FusedAttention::takes(plain.forward)) return;
  FusedAttention fused;
  for (const bool deterministic : {false, true}) {
    Call<T> call(c, values, slope, scale);
    const DeviceArray<std::uint8_t> workspace(std::max(fused.workspace(call.forward), fused.backward_workspace(call.backward, deterministic)));
    fused.forward(stream, call.forward, workspace.get());
    fused.backward(stream, call.backward, deterministic, workspace.get());
    expect_matches(call, wanted, deterministic ? "fused, deterministic" : "fused");
  }
}

TEST(Attention, AgreesWithFp64OnPackedHeads) {
  expect_attention<BFloat16>({2, 200, 8, 2, 128});
  expect_attention<BFloat16>({1, 256, 4, 4, 64});
  expect_attention<BFloat16>({1, 33, 3, 1, 40});
  expect_attention<float>({2, 65, 4, 2, 64});
  expect_attention<float>({1, 1, 2, 1, 16});
  expect_attention<BFloat16>({1, 50, 2, 1, 200});
}

TEST(Attention, DeterministicBackwardRepeatsBitForBit) {
  const Case c{2, 2048, 16, 4, 128};
  const auto values = Random(1).values<BFloat16>(at(c.tokens() * c.all() * c.d)), slope = Random(2).values<BFloat16>(at(c.tokens() * c.heads * c.d));
  Call<BFloat16> call(c, values, slope, 0.088);
  FusedAttention fused;
  ASSERT_TRUE(FusedAttention::takes(call.forward));
  const DeviceArray<std::uint8_t> workspace(std::max(fused.workspace(call.forward), fused.backward_workspace(call.backward, true)));
  std::vector<std::uint16_t> first;
  for (int i = 0; i < 4; ++i) {
    fused.forward(stream, call.forward, workspace.get());
    fused.backward(stream, call.backward, true, workspace.get());
    const auto found = call.gradients.host();
    std::vector<std::uint16_t> bits(found.size());
    std::memcpy(bits.data(), found.data(), found.size() * 2);
    if (i == 0) first = bits;
    EXPECT_TRUE(bits == first) << "run " << i;
  }
}

}  // namespace
}  // namespace troupe::cuda
