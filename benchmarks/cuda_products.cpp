// benchmark cuda_products: own cuBLASLt wrapper against at::_scaled_mm and at::mm, attention by cuDNN, at the 8B model's shapes, batch 2
#include <ATen/ATen.h>

#include <cstdlib>
#include <cstring>

#include "benchmarks/cuda_bench.hpp"
#include "src/device/cuda/kernels/fused_attention.hpp"
#include "src/device/cuda/kernels/product.hpp"

namespace troupe::cuda {
namespace {

constexpr std::int64_t packed = 6144;

struct Shape {
  const char* name;
  const char* direction;
  std::int64_t rows, columns, depth;
  bool fast;
  at::ScalarType a, b, d;
  bool a_down = false, b_down = false;  ///< how bf16 operands lie: a [depth, rows], b [depth, columns]
};

at::TensorOptions on_gpu(at::ScalarType type) { return at::TensorOptions().device(at::kCUDA).dtype(type); }
Element element_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat: return Element::f32;
    case at::kBFloat16: return Element::bf16;
    case at::kFloat8_e4m3fn: return Element::e4m3;
    default: return Element::e5m2;
  }
}

struct Workspace {
  static constexpr std::size_t bytes = 64U << 20U;
  void* data = random_array<std::uint8_t>(bytes);
};

/// Both sides in turn on hot clocks, each for so many milliseconds, the one that begins alternating; the median round of each.
std::pair<double, double> against(const std::function<void(int)>& own, const std::function<void(int)>& theirs, double milliseconds = 60) {
  std::vector<double> ours, others;
  time_of(theirs, 100, 1);
  for (int round = 0; round < 6; ++round) {
    if (round % 2 == 0) ours.push_back(time_of(own, milliseconds, 1));
    others.push_back(time_of(theirs, milliseconds, 1));
    if (round % 2 == 1) ours.push_back(time_of(own, milliseconds, 1));
  }
  std::sort(ours.begin(), ours.end());
  std::sort(others.begin(), others.end());
  return {(ours[2] + ours[3]) / 2, (others[2] + others[3]) / 2};
}

void report(const Shape& s, double flop, std::pair<double, double> ms, double difference) {
  std::printf("%-9s %-22s %6ld x %6ld x %6ld  own %8.3f ms %6.0f TFLOP/s  at:: %8.3f ms %6.0f TFLOP/s  ratio %.3f  difference %.1e\n", s.name, s.direction,
              s.rows, s.columns, s.depth, ms.first, flop / ms.first / 1e9, ms.second, flop / ms.second / 1e9, ms.second / ms.first, difference);
  std::fflush(stdout);
}

/// `known`: compared with these instead of at::; null: with at::.
void product(Products& products, const Workspace& workspace, const Shape& s, bool compare, Products* known = nullptr) {
  const bool float8 = s.a != at::kBFloat16;
  const auto matrix = [](std::int64_t rows, std::int64_t columns, bool down, at::ScalarType type) {
    return at::randn(down ? at::IntArrayRef{columns, rows} : at::IntArrayRef{rows, columns}, on_gpu(at::kBFloat16)).to(type);
  };
  const auto a = matrix(s.rows, s.depth, s.a_down, s.a), b = matrix(s.columns, s.depth, s.b_down, s.b);
  const auto one = at::ones({1}, on_gpu(at::kFloat));
  auto own = at::empty({s.rows, s.columns}, on_gpu(s.d)), theirs = at::empty({s.rows, s.columns}, on_gpu(s.a_down && known == nullptr ? at::kBFloat16 : s.d));
  Product p{};
  p.rows = s.rows, p.columns = s.columns, p.depth = s.depth;
  p.a = {a.data_ptr(), element_of(s.a), s.a_down ? s.rows : s.depth, s.a_down, float8 ? one.data_ptr<float>() : nullptr};
  p.b = {b.data_ptr(), element_of(s.b), s.b_down ? s.columns : s.depth, !s.b_down, float8 ? one.data_ptr<float>() : nullptr};
  p.d = own.data_ptr();
  p.d_type = element_of(s.d);
  p.d_stride = s.columns;
  p.fast_accumulation = s.fast;
  const auto ours = [&](int) { products.run(nullptr, p, workspace.data, Workspace::bytes); };
  const auto reference = [&](int) {
    if (float8)
      at::_scaled_mm_out(theirs, a, b.t(), one, one, {}, {}, s.d, s.fast);
    else
      at::mm_out(theirs, s.a_down ? a.t() : a, s.b_down ? b : b.t());
  };
  ours(0);  // makes the plan
  if (!compare) return;
  if (known != nullptr) {
    Product other = p;
    other.d = theirs.data_ptr();
    other.d_type = element_of(theirs.scalar_type());
    if (other.d_type != p.d_type) return;
    const auto built_in = [&](int) { known->run(nullptr, other, workspace.data, Workspace::bytes); };
    const auto ms = against(ours, built_in, 200);
    const double flop = 2.0 * double(s.rows) * double(s.columns) * double(s.depth);
    std::printf("%-9s %-22s %6ld x %6ld x %6ld  new %8.3f ms %6.0f TFLOP/s  built in %8.3f ms  ratio %.4f\n", s.name, s.direction, s.rows, s.columns, s.depth,
                ms.first, flop / ms.first / 1e9, ms.second, ms.second / ms.first);
    std::fflush(stdout);
    return;
  }
  const auto times = against(ours, reference);
  const double difference = ((own - theirs).norm() / theirs.norm()).item<double>();
  report(s, 2.0 * double(s.rows) * double(s.columns) * double(s.depth), times, difference);
}

void attention() {
  const std::int64_t B = 2, S = 8192, heads = 32, kv = 8, d = 128;
  const auto qkv = at::randn({B, S, packed}, on_gpu(at::kBFloat16)), dout = at::randn({B, S, heads * d}, on_gpu(at::kBFloat16));
  const auto out = at::empty_like(dout), gradients = at::empty_like(qkv), lse = at::empty({B, heads, S}, on_gpu(at::kFloat));
  auto* base = static_cast<std::uint16_t*>(qkv.data_ptr());
  auto* slope = static_cast<std::uint16_t*>(gradients.data_ptr());
  const Attention forward{
      base,   base + heads * d, base + (heads + kv) * d, out.data_ptr(), lse.data_ptr<float>(), Element::bf16, B, S, heads, kv, d, packed, packed,
      packed, heads * d,        0.08838834764F};
  const AttentionBackward backward{forward, dout.data_ptr(), slope, slope + heads * d, slope + (heads + kv) * d, heads * d, packed, packed, packed};
  FusedAttention fused;
  const std::size_t bytes = std::max({fused.workspace(forward), fused.backward_workspace(backward, false), fused.backward_workspace(backward, true)});
  std::printf("attention workspace: forward %zu, backward %zu, deterministic %zu MB\n", fused.workspace(forward) >> 20U,
              fused.backward_workspace(backward, false) >> 20U, fused.backward_workspace(backward, true) >> 20U);
  const auto workspace = at::empty({static_cast<std::int64_t>(bytes)}, on_gpu(at::kByte));
  const auto heads_of = [&](std::int64_t first, std::int64_t count) { return qkv.view({B, S, heads + 2 * kv, d}).narrow(2, first, count).transpose(1, 2); };
  const auto q = heads_of(0, heads), k = heads_of(heads, kv), v = heads_of(heads + kv, kv);
  const auto result = at::_scaled_dot_product_cudnn_attention(q, k, v, {}, true, 0.0, true, false, 0.08838834764);
  const double flop = 2.0 * 2 * B * heads * double(S) * double(S) * d / 2;
  const auto times = against([&](int) { fused.forward(nullptr, forward, workspace.data_ptr()); },
                             [&](int) { at::_scaled_dot_product_cudnn_attention(q, k, v, {}, true, 0.0, true, false, 0.08838834764); });
  const Shape name{"attention", "forward", B * S, heads, d, false, at::kBFloat16, at::kBFloat16, at::kBFloat16};
  const auto theirs = std::get<0>(result).transpose(1, 2).reshape({B, S, heads * d});
  report(name, flop, times, ((out - theirs).norm() / theirs.norm()).item<double>());
  const auto slope_heads = dout.view({B, S, heads, d}).transpose(1, 2);
  const auto theirs_backward = [&](int) {
    return at::_scaled_dot_product_cudnn_attention_backward(slope_heads, q, k, v, std::get<0>(result), std::get<1>(result), std::get<6>(result),
                                                            std::get<7>(result), {}, std::get<2>(result), std::get<3>(result), S, S, 0.0, true, 0.08838834764);
  };
  const auto reference = theirs_backward(0);
  const auto both = against([&](int) { fused.backward(nullptr, backward, false, workspace.data_ptr()); }, theirs_backward);
  const auto dq = gradients.view({B, S, heads + 2 * kv, d}).narrow(2, 0, heads).transpose(1, 2);
  const Shape back{"attention", "backward", B * S, heads, d, false, at::kBFloat16, at::kBFloat16, at::kBFloat16};
  report(back, 2.5 * flop, both, ((dq - std::get<0>(reference)).norm() / std::get<0>(reference).norm()).item<double>());
  const double slow = time_of([&](int) { fused.backward(nullptr, backward, true, workspace.data_ptr()); }, 100, 3);
  std::printf("attention backward, deterministic: %.3f ms, %.2f of the default's time\n", slow, slow / both.first);
}

}  // namespace
}  // namespace troupe::cuda

/// All products of one layer and the head: each linear's forward, input gradient and weight gradient, fused and apart.
std::vector<troupe::cuda::Shape> shapes_of(std::int64_t tokens, bool apart) {
  using troupe::cuda::Shape;
  const at::ScalarType e4 = at::kFloat8_e4m3fn, e5 = at::kFloat8_e5m2, half = at::kBFloat16, single = at::kFloat;
  struct Linear {
    const char* name;
    std::int64_t out, in;
  };
  std::vector<Linear> linears{{"qkv", 6144, 4096}, {"wo", 4096, 4096}, {"gate-up", 28672, 4096}, {"down", 4096, 14336}};
  if (apart) linears.insert(linears.end(), {{"k", 1024, 4096}, {"gate", 14336, 4096}});
  std::vector<Shape> shapes;
  for (const Linear& l : linears) shapes.push_back({l.name, "forward", tokens, l.out, l.in, true, e4, e4, half});
  for (const Linear& l : linears) shapes.push_back({l.name, "input gradient", tokens, l.in, l.out, false, e5, e4, half});
  for (const Linear& l : linears) shapes.push_back({l.name, "weight gradient", l.out, l.in, tokens, false, e5, e4, half});
  for (const Linear& l : linears) shapes.push_back({l.name, "weight gradient, fp32", l.out, l.in, tokens, false, e5, e4, single});
  return shapes;
}

/// In bf16: the head, and each linear by itself; the gradient of a weight in fp32.
std::vector<troupe::cuda::Shape> bf16_shapes_of(std::int64_t tokens, bool linears) {
  const at::ScalarType half = at::kBFloat16, single = at::kFloat;
  struct Linear {
    const char* name;
    std::int64_t out, in;
  };
  std::vector<Linear> all{{"head", 128256, 4096}};
  if (linears) all.insert(all.end(), {{"wq, wo", 4096, 4096}, {"wk, wv", 1024, 4096}, {"gate, up", 14336, 4096}, {"down", 4096, 14336}});
  std::vector<troupe::cuda::Shape> shapes;
  for (const Linear& l : all) {
    shapes.push_back({l.name, "bf16 forward", tokens, l.out, l.in, false, half, half, half});
    shapes.push_back({l.name, "bf16 input gradient", tokens, l.in, l.out, false, half, half, half, false, true});
    shapes.push_back({l.name, "bf16 weight gradient", l.out, l.in, tokens, false, half, half, single, true, true});
  }
  return shapes;
}

/// All products of 8 layers' step as the model calls them, each candidate at the power cap for `milliseconds` in a row, and against the built-in choices.
void soak(const troupe::cuda::Workspace& workspace, double milliseconds) {
  using namespace troupe::cuda;
  Products products({.known_choices = false, .rounds = 2, .milliseconds = milliseconds, .margin = 0.003, .finalists = 8, .swizzled = true}), known({});
  for (const Shape& s : bf16_shapes_of(16384, false)) product(products, workspace, s, true, &known);
  for (const Shape& s : shapes_of(16384, true)) {
    const bool joined = s.rows == 6144 || s.columns == 6144 || s.rows == 28672 || s.columns == 28672 || s.depth == 6144 || s.depth == 28672;
    if (!joined && std::strcmp(s.direction, "weight gradient") != 0) product(products, workspace, s, true, &known);
  }
  std::printf("%s", products.choices().c_str());
}

/// Without arguments: compares. "choices": a long sweep of more shapes, printed as product_choices.hpp wants it; "choices bf16": those in bf16 alone,
/// and their times against at::mm; "soak MILLISECONDS": see there.
int main(int count, char** arguments) {
  using namespace troupe::cuda;
  const bool long_sweep = count > 1 && std::strcmp(arguments[1], "choices") == 0, bf16 = count > 2;
  const Workspace workspace;
  if (count > 2 && std::strcmp(arguments[1], "soak") == 0) {
    soak(workspace, std::atof(arguments[2]));
    return 0;
  }
  if (!long_sweep) {
    Products products({});
    for (const Shape& s : shapes_of(16384, false)) product(products, workspace, s, true);
    for (const Shape& s : bf16_shapes_of(16384, true)) product(products, workspace, s, true);
    attention();
    return 0;
  }
  Products products({.known_choices = false, .rounds = 5, .milliseconds = 50, .margin = 0.02});
  for (const std::int64_t tokens : {16384, 8192}) {
    for (const Shape& s : bf16 ? std::vector<Shape>{} : shapes_of(tokens, true)) product(products, workspace, s, false);
    for (const Shape& s : bf16_shapes_of(tokens, tokens == 16384)) product(products, workspace, s, bf16 && tokens == 16384);
  }
  std::printf("%s", products.choices().c_str());
}
