#include <cmath>

#include "tests/kernels/kernel_test.hpp"

namespace troupe {
namespace {

struct AttentionShape {
  std::int64_t batch, sequence, heads, kv_heads, width;
};
const std::vector<AttentionShape> shapes = {{1, 1, 1, 1, 8},   {2, 5, 4, 2, 8},   {1, 33, 8, 2, 16}, {1, 17, 3, 1, 20},
                                            {1, 70, 2, 2, 64}, {1, 40, 4, 1, 96}, {2, 9, 2, 1, 128}, {1, 300, 2, 1, 32}};

class Attention : public KernelTest {
 protected:
  struct Result {
    at::Tensor out, lse, dq, dk, dv;
  };
  static double scale_of(const AttentionShape& s) { return 1.0 / std::sqrt(static_cast<double>(s.width)); }

  /// The textbook's formula on [B,S,H,d], key heads repeated for their group.
  /// `starts`: [B,S], the first key that a query sees; undefined: all.
  static std::pair<at::Tensor, at::Tensor> formula(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale, const at::Tensor& starts = {}) {
    const std::int64_t group = q.size(2) / k.size(2), sequence = q.size(1);
    const at::Tensor keys = k.repeat_interleave(group, 2).permute({0, 2, 3, 1}), values = v.repeat_interleave(group, 2).transpose(1, 2);
    at::Tensor later = at::ones({sequence, sequence}, at::kBool).triu(1);
    if (starts.defined()) later = later.logical_or(at::arange(sequence).lt(starts.unsqueeze(-1))).unsqueeze(1);
    const at::Tensor scores = (at::matmul(q.transpose(1, 2), keys) * scale).masked_fill(later, -INFINITY);
    return {at::matmul(scores.softmax(-1), values).transpose(1, 2), scores.logsumexp(-1)};
  }

  Result run(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& dout, double scale, const at::Tensor& starts = {}) {
    const TensorView documents = starts.defined() ? view(starts) : TensorView{};
    Result r{at::empty_like(q), at::empty({q.size(0), q.size(2), q.size(1)}, q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat), at::empty_like(q),
             at::empty_like(k), at::empty_like(v)};
    kernels_.attention(stream_, view(q), view(k), view(v), scale, view(r.out), view(r.lse), documents);
    kernels_.attention_backward(stream_, view(dout), view(q), view(k), view(v), view(r.out), view(r.lse), scale, view(r.dq), view(r.dk), view(r.dv), documents);
    return r;
  }
};

TEST_F(Attention, ForwardAndBackwardAgreeWithAutograd) {
  for (const Precision& precision : precisions) {
    for (const AttentionShape& s : shapes) {
      const at::Tensor q = random({s.batch, s.sequence, s.heads, s.width}, precision.type), dout = random(q.sizes(), precision.type);
      const at::Tensor k = random({s.batch, s.sequence, s.kv_heads, s.width}, precision.type), v = random(k.sizes(), precision.type);
      const at::Tensor q64 = leaf(q), k64 = leaf(k), v64 = leaf(v);
      const auto [out64, lse64] = formula(q64, k64, v64, scale_of(s));
      out64.backward(dout.to(at::kDouble));
      const Result r = run(q, k, v, dout, scale_of(s));
      const double tolerance = precision.type == at::kBFloat16 ? 1e-2 : precision.tolerance;
      EXPECT_LT(relative_error(r.out, out64), tolerance) << s.sequence << " x " << s.width;
      EXPECT_LT(relative_error(r.lse, lse64), precision.type == at::kDouble ? 1e-12 : 1e-5);
      // A sequence of one token: its softmax is constant, dq and dk are zero.
      const double norm = std::max(1.0, q64.grad().norm().item<double>());
      EXPECT_LT((r.dq.to(at::kDouble) - q64.grad()).norm().item<double>(), tolerance * norm) << s.sequence << " x " << s.width;
      EXPECT_LT((r.dk.to(at::kDouble) - k64.grad()).norm().item<double>(), tolerance * norm) << s.sequence << " x " << s.width;
      EXPECT_LT(relative_error(r.dv, v64.grad()), tolerance) << s.sequence << " x " << s.width;
    }
  }
}

TEST_F(Attention, ATokenNeverSeesALaterOne) {
  const at::Tensor q = random({1, 20, 2, 16}, at::kFloat), k = random({1, 20, 1, 16}, at::kFloat), v = random({1, 20, 1, 16}, at::kFloat);
  const Result before = run(q, k, v, q, 0.25);
  k.slice(1, 13) += 5;
  v.slice(1, 13) += 5;
  const Result after = run(q, k, v, q, 0.25);
  EXPECT_TRUE(at::equal(before.out.slice(1, 0, 13), after.out.slice(1, 0, 13)));
  EXPECT_FALSE(at::equal(before.out.slice(1, 13), after.out.slice(1, 13)));
}

/// Documents of these lengths, over and over, in each of `batch` rows; each row begins one document later.
at::Tensor starts_of(std::int64_t batch, std::int64_t sequence, const std::vector<std::int64_t>& lengths) {
  const at::Tensor starts = at::empty({batch, sequence}, at::kInt);
  for (std::int64_t b = 0; b < batch; ++b) {
    std::int64_t begin = 0, document = b;
    for (std::int64_t i = 0; i < sequence; ++i) {
      if (i == begin + lengths[static_cast<std::size_t>(document) % lengths.size()]) {
        begin = i;
        ++document;
      }
      starts[b][i] = static_cast<std::int32_t>(begin);
    }
  }
  return starts;
}

TEST_F(Attention, WithinDocumentsAgreesWithAutogradToo) {
  for (const Precision& precision : precisions) {
    for (const AttentionShape& s : shapes) {
      const at::Tensor starts = starts_of(s.batch, s.sequence, {3, 1, 70, 64, 9});
      const at::Tensor q = random({s.batch, s.sequence, s.heads, s.width}, precision.type), dout = random(q.sizes(), precision.type);
      const at::Tensor k = random({s.batch, s.sequence, s.kv_heads, s.width}, precision.type), v = random(k.sizes(), precision.type);
      const at::Tensor q64 = leaf(q), k64 = leaf(k), v64 = leaf(v);
      const auto [out64, lse64] = formula(q64, k64, v64, scale_of(s), starts);
      out64.backward(dout.to(at::kDouble));
      const Result r = run(q, k, v, dout, scale_of(s), starts);
      const double tolerance = precision.type == at::kBFloat16 ? 1e-2 : precision.tolerance;
      const double norm = std::max(1.0, q64.grad().norm().item<double>());
      EXPECT_LT(relative_error(r.out, out64), tolerance) << s.sequence << " x " << s.width;
      EXPECT_LT(relative_error(r.lse, lse64), precision.type == at::kDouble ? 1e-12 : 1e-5);
      EXPECT_LT((r.dq.to(at::kDouble) - q64.grad()).norm().item<double>(), tolerance * norm) << s.sequence << " x " << s.width;
      EXPECT_LT((r.dk.to(at::kDouble) - k64.grad()).norm().item<double>(), tolerance * norm) << s.sequence << " x " << s.width;
      EXPECT_LT(relative_error(r.dv, v64.grad()), tolerance) << s.sequence << " x " << s.width;
    }
  }
}

TEST_F(Attention, ADocumentDoesNotDependOnItsNeighboursByABit) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kDouble}) {
    const at::Tensor q = random({1, 150, 4, 32}, type), k = random({1, 150, 2, 32}, type), v = random({1, 150, 2, 32}, type), dout = random(q.sizes(), type);
    const at::Tensor starts = starts_of(1, 150, {70, 80});
    const Result before = run(q, k, v, dout, 0.2, starts);
    for (const at::Tensor& x : {q, k, v, dout}) x.slice(1, 0, 70) += 3;
    const Result after = run(q, k, v, dout, 0.2, starts);
    for (const auto part : {&Result::out, &Result::dq, &Result::dk, &Result::dv}) {
      EXPECT_TRUE(same_bits((before.*part).slice(1, 70).contiguous(), (after.*part).slice(1, 70).contiguous()));
      EXPECT_FALSE(same_bits((before.*part).slice(1, 0, 70).contiguous(), (after.*part).slice(1, 0, 70).contiguous()));
    }
  }
}

TEST_F(Attention, TheScaleIsTheGivenOne) {
  const at::Tensor q = random({1, 6, 1, 8}, at::kFloat), k = random({1, 6, 1, 8}, at::kFloat), v = random({1, 6, 1, 8}, at::kFloat);
  const auto [out64, lse64] = formula(q.to(at::kDouble), k.to(at::kDouble), v.to(at::kDouble), 0.7);
  const Result r = run(q, k, v, q, 0.7);
  EXPECT_LT(relative_error(r.out, out64), 1e-6);
  EXPECT_LT(relative_error(r.lse, lse64), 1e-6);
}

TEST_F(Attention, RepeatsBitForBit) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor q = random({2, 65, 4, 32}, type), k = random({2, 65, 2, 32}, type), v = random({2, 65, 2, 32}, type);
    const Result once = run(q, k, v, q, 0.2), twice = run(q, k, v, q, 0.2);
    EXPECT_TRUE(same_bits(once.out, twice.out));
    EXPECT_TRUE(same_bits(once.dq, twice.dq));
    EXPECT_TRUE(same_bits(once.dk, twice.dk));
    EXPECT_TRUE(same_bits(once.dv, twice.dv));
  }
}

}  // namespace
}  // namespace troupe
