#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "src/device/fused_kernels.hpp"
#include "tests/cuda/twin.hpp"

// Every operation of the seam on a GPU against the CPU's, which tests/kernels compares with autograd. Shapes: small and awkward ones, and
// one of the 8B model's widths.
namespace troupe::test {
namespace {

class CudaKernels : public OnBothDevices {};
INSTANTIATE_TEST_SUITE_P(Types, CudaKernels, ::testing::Values(DType::f32, DType::bf16), [](const auto& test) { return std::string(name_of(test.param)); });

struct Sizes {
  std::int64_t tokens, inputs, outputs;
};
const std::vector<Sizes> products{{64, 32, 48}, {33, 17, 5}, {256, 1024, 512}, {128, 4096, 1024}};

TEST_P(CudaKernels, LinearLayersMultiplyAsOnTheCpu) {
  const DType type = GetParam();
  for (const Sizes& s : products) {
    const Twin x = twin(type, {s.tokens, s.inputs}), w = twin(type, {s.outputs, s.inputs}), dy = twin(type, {s.tokens, s.outputs});
    const Twin y = twin(type, {s.tokens, s.outputs}), dx = twin(type, {s.tokens, s.inputs}), dw = twin(DType::f32, {s.outputs, s.inputs});
    for (const bool accumulate : {false, true}) {
      on_both([&](Device& d, Kernels& k, Stream& on) {
        k.linear(on, x.on(d), w.on(d), y.on(d));
        k.linear_backward_input(on, dy.on(d), w.on(d), dx.on(d), accumulate);
        k.linear_backward_weight(on, dy.on(d), x.on(d), dw.on(d), accumulate);
      });
      EXPECT_LT(y.difference(), tolerance(type)) << s.tokens << " × " << s.inputs << " × " << s.outputs;
      EXPECT_LT(dx.difference(), tolerance(type)) << s.tokens << " × " << s.inputs << " × " << s.outputs << ", accumulate " << accumulate;
      EXPECT_LT(dw.difference(), 1e-5) << s.tokens << " × " << s.inputs << " × " << s.outputs << ", accumulate " << accumulate;
    }
    const Twin rounded = twin(type, {s.outputs, s.inputs});
    on_both([&](Device& d, Kernels& k, Stream& on) { k.linear_backward_weight(on, dy.on(d), x.on(d), rounded.on(d), false); });
    EXPECT_LT(rounded.difference(), tolerance(type)) << s.tokens << " × " << s.inputs << " × " << s.outputs << ", in the inputs' type";
  }
}

TEST_P(CudaKernels, Float8CodesAndScalesAreTheCpusBitForBit) {
  const Twin x = twin(GetParam(), {37, 129}, 30.0);
  const Twin amax = twin(DType::f32, {1}), scale = twin(DType::f32, {1}), codes = twin(DType::e4m3, {37, 129}), gradients = twin(DType::e5m2, {37, 129});
  on_both([&](Device& d, Kernels& k, Stream& on) {
    k.amax(on, x.on(d), amax.on(d).as<float>(), false);
    k.scale_from_amax(on, amax.on(d).as<float>(), DType::e4m3, scale.on(d).as<float>());
    k.quantize(on, x.on(d), scale.on(d).as<float>(), codes.on(d), nullptr);
    k.quantize(on, x.on(d), scale.on(d).as<float>(), gradients.on(d), nullptr);
  });
  EXPECT_TRUE(amax.same_bits());
  EXPECT_TRUE(scale.same_bits());
  EXPECT_TRUE(codes.same_bits());
  EXPECT_TRUE(gradients.same_bits());
}

TEST_P(CudaKernels, Float8LinearLayersMultiplyAsOnTheCpu) {
  const DType type = GetParam();
  for (const Sizes& s : {Sizes{64, 32, 48}, Sizes{256, 1024, 512}, Sizes{48, 24, 40}}) {
    const Twin values = twin(type, {s.tokens, s.inputs}), weights = twin(type, {s.outputs, s.inputs}), errors = twin(type, {s.tokens, s.outputs});
    const Twin x = twin(DType::e4m3, {s.tokens, s.inputs}), w = twin(DType::e4m3, {s.outputs, s.inputs}), dy = twin(DType::e5m2, {s.tokens, s.outputs});
    Twin scales = twin(DType::f32, {3});
    const std::array<float, 3> chosen{64, 48, 1024};
    scales.set([&](std::size_t i) { return static_cast<double>(chosen[i]); });
    const Twin y = twin(type, {s.tokens, s.outputs}), dx = twin(type, {s.tokens, s.inputs}), dw = twin(DType::f32, {s.outputs, s.inputs});
    for (const bool accumulate : {false, true}) {
      on_both([&](Device& d, Kernels& k, Stream& on) {
        const float* scale = scales.on(d).as<float>();
        k.quantize(on, values.on(d), scale, x.on(d), nullptr);
        k.quantize(on, weights.on(d), scale + 1, w.on(d), nullptr);
        k.quantize(on, errors.on(d), scale + 2, dy.on(d), nullptr);
        k.linear_fp8(on, {x.on(d), scale}, {w.on(d), scale + 1}, y.on(d));
        k.linear_fp8_backward_input(on, {dy.on(d), scale + 2}, {w.on(d), scale + 1}, dx.on(d), accumulate);
        k.linear_fp8_backward_weight(on, {dy.on(d), scale + 2}, {x.on(d), scale}, dw.on(d), accumulate);
      });
      // The forward sums with about 14 bits, as torchao's does; the backward's sums are precise to the tensor cores' own rounding.
      EXPECT_LT(y.difference(), 5e-3) << s.tokens << " × " << s.inputs << " × " << s.outputs;
      EXPECT_LT(dx.difference(), 5e-3) << s.tokens << " × " << s.inputs << " × " << s.outputs << ", accumulate " << accumulate;
      EXPECT_LT(dw.difference(), 2e-3) << s.tokens << " × " << s.inputs << " × " << s.outputs << ", accumulate " << accumulate;
    }
    const Twin rounded = twin(DType::bf16, {s.outputs, s.inputs});
    on_both([&](Device& d, Kernels& k, Stream& on) {
      const float* scale = scales.on(d).as<float>();
      k.linear_fp8_backward_weight(on, {dy.on(d), scale + 2}, {x.on(d), scale}, rounded.on(d), false);
    });
    EXPECT_LT(rounded.difference(), 5e-3) << s.tokens << " × " << s.inputs << " × " << s.outputs << ", rounded";
  }
}

/// The GPU in one call, the CPU operation by operation.
TEST_P(CudaKernels, FusedCastsAreTheSeparateOperationsOfTheCpu) {
  const DType type = GetParam();
  const std::int64_t rows = 48, columns = 96;
  const Twin x = twin(type, {rows, columns}), w = twin(type, {columns}), y = twin(type, {rows, columns}), rstd = twin(DType::f32, {rows});
  const Twin gate = twin(type, {rows, columns}), up = twin(type, {rows, columns}), out = twin(type, {rows, columns});
  const Twin codes = twin(DType::e5m2, {rows, columns}), of_norm = twin(DType::e4m3, {rows, columns}), of_gate = twin(DType::e4m3, {rows, columns});
  const Twin scalars = twin(DType::f32, {8}), unread = twin(type, {rows, columns}), alone = twin(DType::e4m3, {rows, columns});
  const std::vector<double> before = unread.found();
  on_both([&](Device& d, Kernels& k, Stream& on) {
    float* at = scalars.on(d).as<float>();
    if (auto* fused = dynamic_cast<FusedKernels*>(&k)) {
      fused->cast_fp8(on, x.on(d), {codes.on(d), at, at + 1});
      fused->rms_norm_cast(on, x.on(d), w.on(d), 1e-5, unread.on(d), false, rstd.on(d), {alone.on(d), at + 6, at + 7});
      fused->rms_norm_cast(on, x.on(d), w.on(d), 1e-5, y.on(d), true, rstd.on(d), {of_norm.on(d), at + 2, at + 3});
      return fused->swiglu_cast(on, gate.on(d), up.on(d), out.on(d), {of_gate.on(d), at + 4, at + 5});
    }
    const auto cast = [&](const TensorView& from, float* two, const TensorView& to) {
      k.amax(on, from, two, false);
      k.scale_from_amax(on, two, to.dtype, two + 1);
      k.quantize(on, from, two + 1, to, nullptr);
    };
    cast(x.on(d), at, codes.on(d));
    k.rms_norm(on, x.on(d), w.on(d), 1e-5, y.on(d), rstd.on(d));
    cast(y.on(d), at + 2, of_norm.on(d));
    cast(y.on(d), at + 6, alone.on(d));
    k.swiglu(on, gate.on(d), up.on(d), out.on(d));
    cast(out.on(d), at + 4, of_gate.on(d));
  });
  ASSERT_NE(dynamic_cast<FusedKernels*>(&devices_.gpu->kernels()), nullptr);
  EXPECT_TRUE(codes.same_bits()) << "a cast alone is exact";
  EXPECT_LT(scalars.difference(), 1e-2) << "a last place of the largest value";
  EXPECT_LT(y.difference(), tolerance(type));
  EXPECT_LT(out.difference(), tolerance(type));
  // Codes are bytes here: where values differ in a last place a few codes are the neighbour's.
  EXPECT_LT(of_norm.difference(), 2e-2);
  EXPECT_EQ(alone.gpu_bytes(), of_norm.gpu_bytes()) << "codes of a norm that was not stored are those of one that was";
  EXPECT_EQ(scalars.found()[6], scalars.found()[2]);
  EXPECT_EQ(unread.found(), before) << "what nobody reads is not written";
  EXPECT_LT(of_gate.difference(), 2e-2);
}

/// What the backward's kernels find on the way is the amax of what they wrote, and a cast that trusts it makes the codes of one that looks itself.
TEST_P(CudaKernels, AmaxesFoundOnTheWayAreThoseOfTheValues) {
  const DType type = GetParam();
  const std::int64_t rows = 48, columns = 96, heads = 6;
  const Twin x = twin(type, {rows, columns}), w = twin(type, {columns}), dy = twin(type, {rows, columns}), rstd = twin(DType::f32, {rows});
  const Twin dx = twin(type, {rows, columns}), dw = twin(DType::f32, {columns}), gate = twin(type, {rows, columns}), up = twin(type, {rows, columns}, 3.0);
  const Twin dgate = twin(type, {rows, columns}), dup = twin(type, {rows, columns}), q = twin(type, {rows, heads, columns / heads});
  const Twin table = twin(DType::f32, {rows, columns / heads / 2, 2}), amaxes = twin(DType::f32, {4}), scalars = twin(DType::f32, {2});
  const Twin codes = twin(DType::e5m2, {rows, columns});
  on_both([&](Device& d, Kernels& k, Stream& on) {
    float *at = amaxes.on(d).as<float>(), *two = scalars.on(d).as<float>();
    if (auto* fused = dynamic_cast<FusedKernels*>(&k)) {
      fused->rms_norm_backward_amax(on, dy.on(d), x.on(d), w.on(d), rstd.on(d), dx.on(d), true, dw.on(d), false, at);
      fused->swiglu_backward_amax(on, dy.on(d), gate.on(d), up.on(d), dgate.on(d), dup.on(d), at + 1, at + 2);
      fused->rotary_amax(on, q.on(d), table.on(d), true, at + 3);
      k.amax(on, x.on(d), two, false);
      return fused->cast_fp8_with_amax(on, x.on(d), {codes.on(d), two, two + 1});
    }
    k.rms_norm_backward(on, dy.on(d), x.on(d), w.on(d), rstd.on(d), dx.on(d), true, dw.on(d), false);
    k.amax(on, dx.on(d), at, false);
    k.swiglu_backward(on, dy.on(d), gate.on(d), up.on(d), dgate.on(d), dup.on(d));
    k.amax(on, dgate.on(d), at + 1, false);
    k.amax(on, dup.on(d), at + 2, false);
    k.rotary(on, q.on(d), table.on(d), true);
    k.amax(on, q.on(d), at + 3, false);
    k.amax(on, x.on(d), two, false);
    k.scale_from_amax(on, two, DType::e5m2, two + 1);
    k.quantize(on, x.on(d), two + 1, codes.on(d), nullptr);
  });
  EXPECT_LT(amaxes.difference(), 1e-2) << "a last place of the largest value";
  EXPECT_LT(dx.difference(), tolerance(type));
  EXPECT_LT(q.difference(), tolerance(type));
  EXPECT_TRUE(codes.same_bits());
}

TEST_P(CudaKernels, AProductAddsTheResidualBeforeItsOneRounding) {
  const DType type = GetParam();
  const Sizes s{64, 96, 128};
  const Twin values = twin(type, {s.tokens, s.inputs}), weights = twin(type, {s.outputs, s.inputs}), residual = twin(type, {s.tokens, s.outputs}, 20.0);
  const Twin x = twin(DType::e4m3, {s.tokens, s.inputs}), w = twin(DType::e4m3, {s.outputs, s.inputs});
  const Twin product = twin(type, {s.tokens, s.outputs}), out = twin(type, {s.tokens, s.outputs});
  Twin scale = twin(DType::f32, {1});
  scale.set([](std::size_t) { return 64.0; });
  on_both([&](Device& d, Kernels& k, Stream& on) {
    const float* at = scale.on(d).as<float>();
    k.quantize(on, values.on(d), at, x.on(d), nullptr);
    k.quantize(on, weights.on(d), at, w.on(d), nullptr);
    if (auto* fused = dynamic_cast<FusedKernels*>(&k)) return fused->linear_fp8_add(on, {x.on(d), at}, {w.on(d), at}, residual.on(d), out.on(d));
    k.linear_fp8(on, {x.on(d), at}, {w.on(d), at}, product.on(d));
    k.add(on, residual.on(d), product.on(d), out.on(d));
  });
  EXPECT_LT(out.difference(), 4e-3);
}

/// q, k and v are made from one value, gate and up from another: what was turned for the first serves the others, and no longer once
/// another value's codes lie there.
TEST_P(CudaKernels, WeightGradientsOfOneValueAndOfTheNextInItsPlaceAreRight) {
  const DType type = GetParam();
  const std::int64_t tokens = 64, inputs = 48, outputs = 32;
  const Twin x8 = twin(DType::e4m3, {tokens, inputs}), dy8 = twin(DType::e5m2, {tokens, outputs}), scalars = twin(DType::f32, {4});
  for (int round = 0; round < 2; ++round) {
    const Twin x = twin(type, {tokens, inputs}), first = twin(type, {tokens, outputs}), second = twin(type, {tokens, outputs});
    const Twin dw_first = twin(DType::f32, {outputs, inputs}), dw_second = twin(DType::f32, {outputs, inputs});
    on_both([&](Device& d, Kernels& k, Stream& on) {
      float* at = scalars.on(d).as<float>();
      const auto cast = [&](const TensorView& from, float* two, const TensorView& to) {
        if (auto* fused = dynamic_cast<FusedKernels*>(&k)) return fused->cast_fp8(on, from, {to, two, two + 1});
        k.amax(on, from, two, false);
        k.scale_from_amax(on, two, to.dtype, two + 1);
        k.quantize(on, from, two + 1, to, nullptr);
      };
      cast(x.on(d), at, x8.on(d));
      for (const auto& [dy, dw] : {std::pair(&first, &dw_first), std::pair(&second, &dw_second)}) {
        cast(dy->on(d), at + 2, dy8.on(d));
        k.linear_fp8_backward_weight(on, {dy8.on(d), at + 3}, {x8.on(d), at + 1}, dw->on(d), false);
      }
    });
    EXPECT_LT(dw_first.difference(), 2e-3) << "round " << round;
    EXPECT_LT(dw_second.difference(), 2e-3) << "round " << round;
  }
}

TEST_P(CudaKernels, NormsAndTheirBackwardAreTheCpus) {
  const DType type = GetParam();
  for (const auto& [rows, columns] : std::vector<std::pair<std::int64_t, std::int64_t>>{{5, 32}, {70, 256}, {64, 4096}}) {
    const Twin x = twin(type, {rows, columns}), w = twin(type, {columns}), dy = twin(type, {rows, columns});
    const Twin y = twin(type, {rows, columns}), rstd = twin(DType::f32, {rows}), dx = twin(type, {rows, columns}), dw = twin(DType::f32, {columns});
    for (const bool accumulate : {false, true}) {
      on_both([&](Device& d, Kernels& k, Stream& on) {
        k.rms_norm(on, x.on(d), w.on(d), 1e-5, y.on(d), rstd.on(d));
        k.rms_norm_backward(on, dy.on(d), x.on(d), w.on(d), rstd.on(d), dx.on(d), accumulate, dw.on(d), accumulate);
      });
      EXPECT_LT(y.difference(), tolerance(type)) << columns;
      EXPECT_LT(rstd.difference(), 1e-6) << columns;
      EXPECT_LT(dx.difference(), tolerance(type)) << columns << ", accumulate " << accumulate;
      EXPECT_LT(dw.difference(), 1e-5) << columns << ", accumulate " << accumulate;
    }
  }
}

TEST_P(CudaKernels, RotarySwigluAddAndEmbeddingAreTheCpus) {
  const DType type = GetParam();
  const std::int64_t tokens = 96, heads = 4, size = 16, width = 88, vocabulary = 50;
  const Twin q = twin(type, {tokens, heads, size}), table = twin(DType::f32, {32, size / 2, 2});
  const Twin gate = twin(type, {tokens, width}), up = twin(type, {tokens, width}), out = twin(type, {tokens, width}), dout = twin(type, {tokens, width});
  const Twin dgate = twin(type, {tokens, width}), dup = twin(type, {tokens, width}), sum = twin(type, {tokens, width});
  Twin ids = twin(DType::i32, {tokens});
  ids.set([&](std::size_t i) { return static_cast<double>(i * 7 % 11); });
  const Twin rows = twin(type, {vocabulary, width}), looked_up = twin(type, {tokens, width}), drows = twin(DType::f32, {vocabulary, width});
  for (const bool accumulate : {false, true}) {
    on_both([&](Device& d, Kernels& k, Stream& on) {
      k.rotary(on, q.on(d), table.on(d), accumulate);
      k.swiglu(on, gate.on(d), up.on(d), out.on(d));
      k.swiglu_backward(on, dout.on(d), gate.on(d), up.on(d), dgate.on(d), dup.on(d));
      k.add(on, gate.on(d), up.on(d), sum.on(d));
      k.embedding(on, ids.on(d), rows.on(d), looked_up.on(d));
      k.embedding_backward(on, ids.on(d), dout.on(d), drows.on(d), accumulate);
    });
    EXPECT_LT(q.difference(), tolerance(type));
    EXPECT_LT(drows.difference(), 1e-6) << "accumulate " << accumulate;
  }
  EXPECT_LT(out.difference(), tolerance(type));
  EXPECT_LT(dgate.difference(), tolerance(type));
  EXPECT_LT(dup.difference(), tolerance(type));
  EXPECT_LT(sum.difference(), tolerance(type));
  EXPECT_TRUE(looked_up.same_bits());
}

struct AttentionSizes {
  std::int64_t rows, sequence, heads, kv_heads, size;
  std::int64_t document = 0;  ///< tokens of each of a row's documents; 0: attention sees the whole row
};

TEST_P(CudaKernels, AttentionAndItsBackwardAreTheCpus) {
  const DType type = GetParam();
  for (const AttentionSizes& s :
       {AttentionSizes{2, 33, 4, 2, 8}, AttentionSizes{1, 256, 8, 2, 64}, AttentionSizes{2, 128, 4, 1, 128}, AttentionSizes{2, 100, 4, 2, 64, 37}}) {
    const Shape queries{s.rows, s.sequence, s.heads, s.size}, keys{s.rows, s.sequence, s.kv_heads, s.size};
    const Twin q = twin(type, queries), k = twin(type, keys), v = twin(type, keys), dout = twin(type, queries);
    const Twin out = twin(type, queries), lse = twin(DType::f32, {s.rows, s.heads, s.sequence}), dq = twin(type, queries), dk = twin(type, keys),
               dv = twin(type, keys);
    Twin starts = twin(DType::i32, {s.rows, s.sequence});
    starts.set([&](std::size_t i) {
      const auto at = static_cast<std::int64_t>(i) % s.sequence;
      return s.document > 0 ? static_cast<double>(at - at % s.document) : 0.0;
    });
    const double scale = 1.0 / std::sqrt(static_cast<double>(s.size));
    on_both([&](Device& d, Kernels& kernels, Stream& on) {
      const TensorView documents = s.document > 0 ? starts.on(d) : TensorView{};
      kernels.attention(on, q.on(d), k.on(d), v.on(d), scale, out.on(d), lse.on(d), documents);
      kernels.attention_backward(on, dout.on(d), q.on(d), k.on(d), v.on(d), out.on(d), lse.on(d), scale, dq.on(d), dk.on(d), dv.on(d), documents);
    });
    const double limit = type == DType::bf16 ? 8e-3 : 1e-5;
    EXPECT_LT(out.difference(), limit) << "sequence " << s.sequence << ", heads of " << s.size;
    EXPECT_LT(lse.difference(), type == DType::bf16 ? 1e-3 : 1e-5);
    EXPECT_LT(dq.difference(), limit) << "sequence " << s.sequence << ", heads of " << s.size;
    EXPECT_LT(dk.difference(), limit) << "sequence " << s.sequence << ", heads of " << s.size;
    EXPECT_LT(dv.difference(), limit) << "sequence " << s.sequence << ", heads of " << s.size;
  }
}

TEST_P(CudaKernels, TheLossCountsAndItsGradientAreTheCpus) {
  const DType type = GetParam();
  for (const std::int64_t vocabulary : {258, 128256}) {
    const std::int64_t tokens = 19;
    const Twin logits = twin(type, {tokens, vocabulary});
    Twin labels = twin(DType::i32, {tokens}), sums = twin(DType::f64, {5});
    labels.set([&](std::size_t i) { return i % 5 == 3 ? -100.0 : static_cast<double>(i * 13 % 258); });
    sums.set([](std::size_t) { return 0.0; });
    on_both([&](Device& d, Kernels& k, Stream& on) { k.cross_entropy(on, logits.on(d), labels.on(d), 1.0 / 19, sums.on(d).as<VerdictSums>()); });
    EXPECT_LT(logits.difference(), tolerance(type)) << vocabulary;
    EXPECT_LT(sums.difference(), 1e-5) << vocabulary;
    EXPECT_EQ(sums.found()[2], 15.0) << "valid labels";
  }
}

TEST(CudaMemory, FillsCastsAndCopiesAreTheCpus) {
  Devices devices;
  const Twin wide(devices, DType::f32, {77, 3}), narrow(devices, DType::bf16, {77, 3}), back(devices, DType::f64, {77, 3}), filled(devices, DType::f32, {5});
  for (Device* d : {devices.cpu.get(), devices.gpu.get()}) {
    Kernels& k = d->kernels();
    Stream& on = d->setup_stream();
    k.cast(on, wide.on(*d), narrow.on(*d));
    k.cast(on, narrow.on(*d), back.on(*d));
    k.fill(on, filled.on(*d), 2.5);
  }
  EXPECT_TRUE(narrow.same_bits());
  EXPECT_TRUE(back.same_bits());
  EXPECT_THAT(filled.found(), ::testing::Each(2.5));
}

TEST(CudaMemory, WhatDoesNotFitIsRefusedWithWhatIsFree) {
  Devices devices;
  try {
    (void)devices.gpu->allocate(std::size_t{1} << 44U, Placement::device);
    FAIL() << "16 TiB were handed out";
  } catch (const std::bad_alloc& problem) {
    EXPECT_THAT(problem.what(), ::testing::AllOf(::testing::HasSubstr("16384.00 GiB asked"), ::testing::HasSubstr("free")));
  }
  EXPECT_NO_THROW((void)devices.gpu->allocate(1024, Placement::device)) << "the refusal must not stick";
}

TEST(CudaMemory, ADeviceThatIsNotThereIsNamed) {
  try {
    (void)plugin().open_device({.index = 99});
    FAIL();
  } catch (const std::runtime_error& problem) {
    EXPECT_THAT(problem.what(), ::testing::HasSubstr("CUDA device 99 was asked for, but this process sees"));
  }
}

}  // namespace
}  // namespace troupe::test
