// benchmark cuda_kernels: own CUDA kernels at the 8B model's shapes, batch 2 of 8192 tokens: time and share of the memory's limit
#include "benchmarks/cuda_bench.hpp"
#include "src/device/cuda/kernels/cross_entropy.hpp"
#include "src/device/cuda/kernels/embedding.hpp"
#include "src/device/cuda/kernels/float8.hpp"
#include "src/device/cuda/kernels/memory.hpp"
#include "src/device/cuda/kernels/optimizer.hpp"
#include "src/device/cuda/kernels/rms_norm.hpp"
#include "src/device/cuda/kernels/rotary.hpp"
#include "src/device/cuda/kernels/swiglu.hpp"
#include "src/device/cuda/kernels/transpose.hpp"
#include "src/device/cuda/kernels/verdict.hpp"

namespace troupe::cuda {
namespace {

using Half = std::uint16_t;  // a bf16's bits
constexpr std::int64_t T = 16384, S = 8192, D = 4096, F = 14336, V = 128256, heads = 32, kv = 8, head = 128, packed = (heads + 2 * kv) * head;
constexpr int sets = 2;  // each larger than the cache, so that no set's data is found there

template <class X>
struct Sets {
  explicit Sets(std::int64_t count, float size = 1) {
    for (X*& one : data) one = random_array<X>(count, size);
  }
  ~Sets() {
    for (X* one : data) cudaFree(one);
  }
  Sets(const Sets&) = delete;
  X* operator[](int i) const { return data[i % sets]; }
  X* data[sets] = {};
};

struct Scalars {
  float* amax = random_array<float>(8);
  float* scale = random_array<float>(8);
};

void norms(const Scalars& scalars) {
  const Sets<Half> x(T * D), y(T * D), dy(T * D), residual(T * D);
  Half* w = random_array<Half>(D);
  float *rstd = random_array<float>(T), *dw = random_array<float>(D);
  const auto forward = [&](float* amax) { return [&, amax](int i) { rms_norm(nullptr, {x[i], w, y[i], rstd, Element::bf16, T, D, 1e-5F, amax}); }; };
  report_bytes("K1 rms_norm", 4.0 * T * D, forward(nullptr));
  report_bytes("K1 rms_norm + amax", 4.0 * T * D, forward(scalars.amax));
  forward(nullptr)(0);
  void* scratch = random_array<std::uint8_t>(static_cast<std::int64_t>(rms_norm_backward_scratch(D)));
  const auto backward = [&](bool add) {
    return [&, add](int i) {
      rms_norm_backward(nullptr, {dy[i], x[i], w, rstd, y[i], add ? residual[i] : nullptr, dw, false, Element::bf16, T, D, scalars.amax, scratch});
    };
  };
  report_bytes("K6 rms_norm_backward + amax", 6.0 * T * D, backward(false));
  report_bytes("K6 rms_norm_backward + residual + amax", 8.0 * T * D, backward(true));
}

void casts(const Scalars& scalars) {
  const Sets<Half> x(T * 2 * F);
  const Sets<std::uint8_t> codes(T * 2 * F), turned(T * 2 * F);
  for (const std::int64_t columns : {D, packed, F, 2 * F}) {
    const auto cast = [&](bool rows, bool transposed) {
      return [&, rows, transposed](int i) {
        cast_transpose(nullptr, {x[i], Element::bf16, scalars.amax, Element::e4m3, T, columns, rows ? codes[i] : nullptr, transposed ? turned[i] : nullptr,
                                 scalars.scale, scalars.scale + 1});
      };
    };
    char name[80];
    std::snprintf(name, sizeof name, "K2 cast + transpose, both layouts, %d columns", static_cast<int>(columns));
    report_bytes(name, 4.0 * double(T) * double(columns), cast(true, true));
    if (columns != D && columns != F) continue;
    std::snprintf(name, sizeof name, "K2 cast, rows alone, %d columns", static_cast<int>(columns));
    report_bytes(name, 3.0 * double(T) * double(columns), cast(true, false));
    std::snprintf(name, sizeof name, "K2 cast, transposed alone, %d columns", static_cast<int>(columns));
    report_bytes(name, 3.0 * double(T) * double(columns), cast(false, true));
  }
  float* rstd = random_array<float>(T);
  report_bytes("K2 norm + cast, transposed alone, 4096 columns", 3.0 * T * D, [&](int i) {
    CastTranspose normed{x[i], Element::bf16, scalars.amax, Element::e4m3, T, D, nullptr, turned[i]};
    normed.rstd = rstd;
    normed.norm_weight = x[i];
    cast_transpose(nullptr, normed);
  });
  report_bytes("amax, 4096 columns", 2.0 * T * D, [&](int i) { amax(nullptr, x[i], Element::bf16, T * D, scalars.amax + 1, false); });
  report_bytes("quantize, 14336 columns", 3.0 * T * F, [&](int i) { quantize(nullptr, x[i], Element::bf16, scalars.scale, codes[i], Element::e4m3, T * F); });
  report_bytes("add, 4096 columns", 6.0 * T * D, [&](int i) { add(nullptr, x[i], x[i] + T * D, x[i] + 2 * T * D, Element::bf16, T * D); });
  report_bytes("copy by the driver, 2 x 470 MB", 2.0 * T * F * 2,
               [&](int i) { check(cudaMemcpyAsync(codes[i], x[i], static_cast<std::size_t>(T * F * 2), cudaMemcpyDeviceToDevice, nullptr), "copy"); });
  struct Shape {
    std::int64_t rows, columns;
  };
  const auto weights = [&](int i) {
    std::int64_t offset = 0;
    for (const Shape& s : {Shape{packed, D}, Shape{D, D}, Shape{2 * F, D}, Shape{D, F}}) {
      transpose_bytes(nullptr, codes[i] + offset, s.rows, s.columns, turned[i] + offset);
      offset += s.rows * s.columns;
    }
  };
  report_bytes("K9 transpose of a layer's fp8 weights", 2.0 * (packed * D + D * D + 3 * F * D), weights);
}

void rotations(const Scalars& scalars) {
  const Sets<Half> qkv(T * packed), dq(T * heads * head), dk(T * kv * head), dv(T * kv * head);
  float* table = random_array<float>(S * head);
  report_bytes("K3 rotary in place on packed qkv", 4.0 * T * (heads + kv) * head,
               [&](int i) { rotary(nullptr, {qkv[i], Element::bf16, T, heads + kv, head, packed, table, S, false}); });
  report_bytes("K7 rotary_pack + amax", 4.0 * T * packed,
               [&](int i) { rotary_pack(nullptr, {dq[i], dk[i], dv[i], qkv[i], Element::bf16, T, heads, kv, head, table, S, scalars.amax}); });
}

void gates(const Scalars& scalars) {
  const Sets<Half> gate_up(T * 2 * F, 4), out(T * F), gradients(T * 2 * F);
  const Sets<std::uint8_t> turned(T * F);
  report_bytes("K4 swiglu + amax", 6.0 * T * F,
               [&](int i) { swiglu(nullptr, {gate_up[i], gate_up[i] + F, out[i], Element::bf16, T, F, 2 * F, scalars.amax}); });
  const auto backward = [&](bool transposed) {
    return [&, transposed](int i) {
      swiglu_backward(nullptr, {out[i], gate_up[i], gate_up[i] + F, gradients[i], gradients[i] + F, Element::bf16, T, F, 2 * F, 2 * F, scalars.amax + 1,
                                !transposed, transposed ? nullptr : scalars.amax + 2, scalars.amax, transposed ? turned[i] : nullptr});
    };
  };
  report_bytes("K5 swiglu_backward + two amaxes", 10.0 * T * F, backward(false));
  report_bytes("K5 swiglu_backward + amax + transposed codes", 11.0 * T * F, backward(true));
}

void ends() {
  {
    Half* logits = random_array<Half>(T * V, 4);
    auto* labels = static_cast<std::int32_t*>(static_cast<void*>(random_array<float>(T)));
    random_integers(nullptr, labels, T, static_cast<std::int32_t>(V), 1);
    auto* sums = static_cast<VerdictSums*>(static_cast<void*>(random_array<float>(64)));
    float* losses = random_array<float>(T);
    report_bytes("K8 cross_entropy in place", 4.0 * T * V, [&](int) { cross_entropy(nullptr, {logits, Element::bf16, labels, T, V, 1.0, sums, losses}); });
    cudaFree(logits);
  }
  Half *table = random_array<Half>(V * D), *rows = random_array<Half>(T * D);
  auto* tokens = static_cast<std::int32_t*>(static_cast<void*>(random_array<float>(T)));
  random_integers(nullptr, tokens, T, static_cast<std::int32_t>(V), 2);
  report_bytes("K13 embedding", 4.0 * T * D, [&](int) { embedding(nullptr, tokens, T, table, V, D, Element::bf16, rows); });
  float* dtable = random_array<float>(V * D);
  void* scratch = random_array<std::uint8_t>(static_cast<std::int64_t>(embedding_backward_scratch(T, D)));
  report_bytes("K13 embedding_backward", 4.0 * V * D + 2.0 * T * D,
               [&](int) { embedding_backward(nullptr, {tokens, rows, Element::bf16, dtable, false, T, V, D, scratch}); });
  std::vector<std::int32_t> text(T);
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::int32_t>(i % 17 == 0 ? i % 258 : i % 26);
  check(cudaMemcpy(tokens, text.data(), text.size() * sizeof(std::int32_t), cudaMemcpyHostToDevice), "tokens");
  report_bytes("K13 embedding_backward, bytes of text", 4.0 * V * D + 2.0 * T * D,
               [&](int) { embedding_backward(nullptr, {tokens, rows, Element::bf16, dtable, false, T, V, D, scratch}); });
  cudaFree(table);
  cudaFree(dtable);
}

/// One layer's parameters in fp32, as one rank holds them: nine tensors.
void optimizers(const Scalars& scalars) {
  const std::int64_t sizes[] = {D, D, D * D, kv * head * D, kv * head * D, D * D, F * D, F * D, F * D};
  std::int64_t all = 0;
  for (const std::int64_t n : sizes) all += n;
  float *p = random_array<float>(all), *g = random_array<float>(all, 1e-3F), *m = random_array<float>(all, 1e-3F), *v = random_array<float>(all, 1e-6F);
  auto* codes = random_array<std::uint8_t>(2 * all);
  auto* counts = static_cast<std::int64_t*>(static_cast<void*>(random_array<float>(64)));
  check(cudaMemset(counts, 0, 256), "counts");
  Verdict commit;
  commit.outcome = VerdictOutcome::commit;
  commit.gradient_factor = 1;
  auto* verdict = static_cast<Verdict*>(static_cast<void*>(random_array<float>(64)));
  check(cudaMemcpy(verdict, &commit, sizeof commit, cudaMemcpyHostToDevice), "verdict");
  std::vector<AdamWTensor> plain, full;
  std::vector<ShardCast> float8, bf16;
  std::vector<Run> runs;
  std::int64_t at = 0;
  for (const std::int64_t n : sizes) {
    plain.push_back({p + at, g + at, m + at, v + at, n, counts + plain.size()});
    full.push_back(plain.back());
    full.back().amax = scalars.amax;
    full.back().bf16 = codes + 2 * at;
    float8.push_back({p + at, codes + at, Element::e4m3, n, scalars.amax, scalars.scale});
    bf16.push_back({p + at, codes + 2 * at, Element::bf16, n});
    runs.push_back({g + at, Element::f32, n});
    at += n;
  }
  void* scratch = random_array<std::uint8_t>(1 << 22);
  const AdamWConstants constants{1e-6, 0.9, 0.95, 1e-8, 0.1};
  const auto n = static_cast<double>(all);
  report_bytes("K10 adamw, one layer", 28 * n, [&](int) { adamw(nullptr, plain.data(), plain.size(), constants, nullptr, verdict, scratch); });
  report_bytes("K10 adamw + amax + bf16, one layer", 30 * n, [&](int) { adamw(nullptr, full.data(), full.size(), constants, nullptr, verdict, scratch); });
  report_bytes("K11 cast_shards to fp8, one layer", 5 * n, [&](int) { cast_shards(nullptr, float8.data(), float8.size()); });
  report_bytes("K11 cast_shards to bf16, one layer", 6 * n, [&](int) { cast_shards(nullptr, bf16.data(), bf16.size()); });
  auto* sum = static_cast<double*>(static_cast<void*>(random_array<float>(8)));
  report_bytes("K12 sum_squares, one layer", 4 * n, [&](int) { sum_squares(nullptr, runs.data(), runs.size(), sum, scratch); });
  for (const int slices : {2, 4, 8}) {
    GradientSum call{};
    call.slices = slices;
    for (int i = 0; i < slices; ++i) call.slice[i] = codes + 2 * (all / slices / 64 * 64) * i;
    call.to = g;
    call.elements = all / slices / 64 * 64;
    call.partial_squares = static_cast<double*>(scratch);
    char name[60];
    std::snprintf(name, sizeof name, "K15 gradient_sum of %d slices + squares, one layer", slices);
    report_bytes(name, (2.0 * slices + 4) * static_cast<double>(call.elements), [&](int) { gradient_sum(nullptr, call); });
  }
  report_bytes("K14 scale_from_amax, 8 scalars", 64, [&](int) { scale_from_amax(nullptr, scalars.amax, Element::e4m3, scalars.scale, nullptr, 8); });
}

}  // namespace
}  // namespace troupe::cuda

int main() {
  using namespace troupe::cuda;
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "device");
  std::printf("%s, %d multiprocessors; random data, medians of 5 batches, hot; share of 4.8 TB/s\n\n", properties.name, properties.multiProcessorCount);
  const Scalars scalars;
  norms(scalars);
  casts(scalars);
  rotations(scalars);
  gates(scalars);
  ends();
  optimizers(scalars);
}
