// How fast the CPU's kernels are, in one run with what bounds them: matrix products beside torch's own, everything else in bytes
// read and written a second. Usage: bench_kernels_cpu [tokens] [width] [hidden] [vocabulary]   (256 256 768 320: the quickstart's model)
#include <ATen/core/Tensor.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "src/device/device.hpp"

namespace {

using namespace troupe;

/// The best of the runs that fit into 100 ms, in seconds.
double best_of(const std::function<void()>& work) {
  using Wall = std::chrono::steady_clock;
  work();
  double best = 1e9;
  for (const auto end = Wall::now() + std::chrono::milliseconds(100); Wall::now() < end;) {
    const auto start = Wall::now();
    work();
    best = std::min(best, std::chrono::duration<double>(Wall::now() - start).count());
  }
  return best;
}

class Bench {
 public:
  Bench() : device_(make_cpu_device(1)) {}

  TensorView make(DType dtype, const Shape& shape) {
    memory_.push_back(device_->allocate(static_cast<std::size_t>(shape.elements()) * size_of(dtype), Placement::device));
    TensorView result = TensorView::contiguous(memory_.back()->bytes().data(), dtype, shape);
    TensorView values = result;
    if (dtype != DType::f32) {
      memory_.push_back(device_->allocate(static_cast<std::size_t>(shape.elements()) * sizeof(float), Placement::device));
      values = TensorView::contiguous(memory_.back()->bytes().data(), DType::f32, shape);
    }
    std::normal_distribution<float> normal;
    for (std::int64_t i = 0; i < shape.elements(); ++i) values.as<float>()[i] = normal(random_);
    if (dtype == DType::bf16) kernels().cast(stream_, values, result);
    if (dtype == DType::e4m3 || dtype == DType::e5m2) kernels().quantize(stream_, values, &one_, result, nullptr);
    return result;
  }
  Kernels& kernels() { return device_->kernels(); }
  Stream& stream() { return stream_; }
  const float* one() const { return &scale_; }

  void product(const std::string& name, double flop, double reference, const std::function<void()>& work) {
    const double seconds = best_of(work);
    std::printf("%-34s %8.3f ms %7.1f GFLOP/s", name.c_str(), seconds * 1e3, flop / seconds * 1e-9);
    if (reference > 0) std::printf("  %5.2f of torch's mm", reference / seconds);
    std::printf("\n");
  }
  void stream_of(const std::string& name, double bytes, const std::function<void()>& work) {
    const double seconds = best_of(work);
    std::printf("%-34s %8.3f ms %7.1f GB/s\n", name.c_str(), seconds * 1e3, bytes / seconds * 1e-9);
  }

 private:
  std::unique_ptr<Device> device_;
  std::vector<std::unique_ptr<Buffer>> memory_;
  std::mt19937 random_{1};
  Stream stream_;
  float one_ = 1.0F, scale_ = 2.5F;
};

void products(Bench& bench, std::int64_t tokens, std::int64_t in, std::int64_t out) {
  const double flop = 2.0 * static_cast<double>(tokens * in * out);
  std::printf("\nlinear %lld tokens, %lld -> %lld\n", static_cast<long long>(tokens), static_cast<long long>(in), static_cast<long long>(out));
  Kernels& k = bench.kernels();
  Stream& s = bench.stream();
  const TensorView dw = bench.make(DType::f32, {out, in});
  for (const DType type : {DType::f32, DType::bf16}) {
    const at::Tensor a = at::randn({tokens, in}).to(type == DType::f32 ? at::kFloat : at::kBFloat16), b = at::randn({in, out}).to(a.scalar_type());
    at::Tensor c = at::mm(a, b);
    const double reference = best_of([&] { at::mm_out(c, a, b); });
    const std::string suffix = type == DType::f32 ? " f32" : " bf16";
    const TensorView x = bench.make(type, {tokens, in}), w = bench.make(type, {out, in}), y = bench.make(type, {tokens, out});
    bench.product("torch mm" + suffix, flop, reference, [&] { at::mm_out(c, a, b); });
    bench.product("linear" + suffix, flop, reference, [&] { k.linear(s, x, w, y); });
    bench.product("linear_backward_input" + suffix, flop, reference, [&] { k.linear_backward_input(s, y, w, x, false); });
    bench.product("linear_backward_weight" + suffix, flop, reference, [&] { k.linear_backward_weight(s, y, x, dw, false); });
    const Float8View x8{bench.make(DType::e4m3, {tokens, in}), bench.one()}, w8{bench.make(DType::e4m3, {out, in}), bench.one()};
    const Float8View dy8{bench.make(DType::e5m2, {tokens, out}), bench.one()};
    bench.product("linear_fp8 to" + suffix, flop, reference, [&] { k.linear_fp8(s, x8, w8, y); });
    bench.product("linear_fp8_backward_input to" + suffix, flop, reference, [&] { k.linear_fp8_backward_input(s, dy8, w8, x, false); });
    bench.product("linear_fp8_backward_weight", flop, reference, [&] { k.linear_fp8_backward_weight(s, dy8, x8, dw, false); });
  }
}

void attention(Bench& bench, DType type, std::int64_t sequence, std::int64_t heads, std::int64_t kv_heads, std::int64_t width) {
  Kernels& k = bench.kernels();
  Stream& s = bench.stream();
  const TensorView q = bench.make(type, {1, sequence, heads, width}), out = bench.make(type, q.shape), dq = bench.make(type, q.shape);
  const TensorView key = bench.make(type, {1, sequence, kv_heads, width}), v = bench.make(type, key.shape), dk = bench.make(type, key.shape),
                   dv = bench.make(type, key.shape);
  const TensorView lse = bench.make(DType::f32, {1, heads, sequence});
  const double flop = 2.0 * static_cast<double>(sequence * sequence * heads * width);  // causal: half of 4 S² d a head
  const std::string suffix = type == DType::f32 ? " f32" : " bf16";
  bench.product("attention" + suffix, flop, 0, [&] { k.attention(s, q, key, v, 0.125, out, lse); });
  bench.product("attention_backward" + suffix, 2.5 * flop, 0, [&] { k.attention_backward(s, out, q, key, v, out, lse, 0.125, dq, dk, dv); });
}

void streams(Bench& bench, DType type, std::int64_t tokens, std::int64_t width, std::int64_t hidden, std::int64_t vocabulary) {
  Kernels& k = bench.kernels();
  Stream& s = bench.stream();
  const std::string suffix = type == DType::f32 ? " f32" : " bf16";
  const auto bytes = [&](std::int64_t rows, std::int64_t columns) { return static_cast<double>(rows * columns) * static_cast<double>(size_of(type)); };
  const TensorView x = bench.make(type, {tokens, width}), y = bench.make(type, {tokens, width}), w = bench.make(type, {width}),
                   rstd = bench.make(DType::f32, {tokens});
  const TensorView dw = bench.make(DType::f32, {width}), gate = bench.make(type, {tokens, hidden}), up = bench.make(type, {tokens, hidden});
  const TensorView dgate = bench.make(type, {tokens, hidden}), dup = bench.make(type, {tokens, hidden}), logits = bench.make(type, {tokens, vocabulary});
  const TensorView labels = TensorView::contiguous(bench.make(DType::f32, {tokens}).data, DType::i32, {tokens});
  k.fill(s, labels, 1.0);
  const TensorView heads = TensorView::contiguous(x.data, type, {tokens, width / 32, 32}), table = bench.make(DType::f32, {tokens, 16, 2});
  const TensorView table_weights = bench.make(type, {vocabulary, width}), dtable = bench.make(DType::f32, {vocabulary, width});
  const TensorView codes = bench.make(DType::e4m3, {tokens, hidden}), wide = bench.make(type == DType::f32 ? DType::bf16 : DType::f32, {tokens, hidden});
  float amax = 0;
  VerdictSums sums;
  bench.stream_of("rms_norm" + suffix, 2 * bytes(tokens, width), [&] { k.rms_norm(s, x, w, 1e-5, y, rstd); });
  bench.stream_of("rms_norm_backward" + suffix, 3 * bytes(tokens, width), [&] { k.rms_norm_backward(s, y, x, w, rstd, y, false, dw, false); });
  bench.stream_of("rotary" + suffix, 2 * bytes(tokens, width), [&] { k.rotary(s, heads, table, false); });
  bench.stream_of("swiglu" + suffix, 3 * bytes(tokens, hidden), [&] { k.swiglu(s, gate, up, dgate); });
  bench.stream_of("swiglu_backward" + suffix, 5 * bytes(tokens, hidden), [&] { k.swiglu_backward(s, dup, gate, up, dgate, dup); });
  bench.stream_of("add" + suffix, 3 * bytes(tokens, width), [&] { k.add(s, x, y, y); });
  bench.stream_of("embedding" + suffix, 2 * bytes(tokens, width), [&] { k.embedding(s, labels, table_weights, y); });
  bench.stream_of("embedding_backward" + suffix, bytes(tokens, width), [&] { k.embedding_backward(s, labels, y, dtable, false); });
  bench.stream_of("cross_entropy" + suffix, 2 * bytes(tokens, vocabulary), [&] { k.cross_entropy(s, logits, labels, 1.0, &sums); });
  bench.stream_of("amax" + suffix, bytes(tokens, hidden), [&] { k.amax(s, gate, &amax, false); });
  bench.stream_of("quantize from" + suffix, bytes(tokens, hidden), [&] { k.quantize(s, gate, bench.one(), codes, nullptr); });
  bench.stream_of("cast from" + suffix, 6.0 * static_cast<double>(tokens * hidden), [&] { k.cast(s, gate, wide); });
}

void optimizer(Bench& bench, std::int64_t size) {
  Kernels& k = bench.kernels();
  const TensorView p = bench.make(DType::f32, {size}), g = bench.make(DType::f32, {size}), m = bench.make(DType::f32, {size}),
                   v = bench.make(DType::f32, {size});
  k.fill(bench.stream(), v, 1.0);
  std::int64_t count = 0;
  double sum = 0;
  Verdict verdict;
  verdict.outcome = VerdictOutcome::commit;
  const AdamWStep step{.learning_rate = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
  bench.stream_of("adamw", 28.0 * static_cast<double>(size), [&] { k.adamw(bench.stream(), p, g, m, v, &count, step, &verdict); });
  bench.stream_of("sum_squares", 4.0 * static_cast<double>(size), [&] { k.sum_squares(bench.stream(), g, &sum); });
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int i, std::int64_t otherwise) { return argc > i ? std::int64_t{std::atoi(argv[i])} : otherwise; };
  const std::int64_t tokens = argument(1, 256), width = argument(2, 256), hidden = argument(3, 768), vocabulary = argument(4, 320);
  Bench bench;
  products(bench, tokens, width, hidden);
  products(bench, tokens, hidden, width);
  products(bench, tokens, width, width);
  std::printf("\nattention, sequence %lld\n", static_cast<long long>(tokens));
  for (const DType type : {DType::f32, DType::bf16}) attention(bench, type, tokens, width / 32, width / 64, 32);
  std::printf("\nthe rest\n");
  for (const DType type : {DType::f32, DType::bf16}) streams(bench, type, tokens, width, hidden, vocabulary);
  optimizer(bench, width * hidden * 4);
}
