#include <gtest/gtest.h>

#include <cmath>

#include "src/device/fused_kernels.hpp"
#include "tests/cuda/twin.hpp"

// Fp8 beyond the tensor-wise casts of tests/cuda/seam_test.cpp: what casts count, and scales by rows and columns; against the CPU's.
namespace troupe::test {
namespace {

class CudaFloat8 : public OnBothDevices {};
INSTANTIATE_TEST_SUITE_P(Types, CudaFloat8, ::testing::Values(DType::f32, DType::bf16), [](const auto& test) { return std::string(name_of(test.param)); });

struct Sizes {
  std::int64_t tokens, inputs, outputs;
};

/// Values that a scale of another tensor cuts, and some that are not finite.
TEST_P(CudaFloat8, Float8CastsCountWhatTheyCut) {
  Twin x = twin(GetParam(), {37, 128}), scale = twin(DType::f32, {1}), codes = twin(DType::e4m3, {37, 128}), counts = twin(DType::f64, {2});
  x.set([](std::size_t i) { return i % 97 == 0 ? HUGE_VAL : i % 89 == 0 ? std::nan("") : static_cast<double>(i % 31) - 15.0; });
  scale.set([](std::size_t) { return 40.0; });
  counts.set([](std::size_t) { return 3.0; });
  on_both([&](Device& d, Kernels& k, Stream& on) { k.quantize(on, x.on(d), scale.on(d).as<float>(), codes.on(d), counts.on(d).as<Float8Counts>()); });
  EXPECT_TRUE(counts.same_bits()) << counts.found()[0] << " cut, " << counts.found()[1] << " not finite";
  EXPECT_GT(counts.found()[0], 100.0);
  EXPECT_GT(counts.found()[1], 50.0);
}

TEST_P(CudaFloat8, FusedCastsCountWhatIsNotFiniteAndNothingElse) {
  const Twin codes = twin(DType::e4m3, {48, 96}), scalars = twin(DType::f32, {2});
  Twin counts = twin(DType::f64, {2});
  counts.set([](std::size_t) { return 0.0; });
  auto* fused = dynamic_cast<FusedKernels*>(&devices_.gpu->kernels());
  ASSERT_NE(fused, nullptr);
  double expected = 0;
  for (const auto& [value, counted] : {std::pair{7.0, 0.0}, std::pair{std::nan(""), 48.0 * 96.0}, std::pair{HUGE_VAL, 1.0}}) {
    Twin x = twin(GetParam(), {48, 96});
    x.set([odd = value](std::size_t i) { return i == 1000 ? odd : static_cast<double>(i % 31) - 15.0; });
    float* at = scalars.on_gpu().as<float>();
    fused->cast_fp8(devices_.gpu->setup_stream(), x.on_gpu(), {codes.on_gpu(), at, at + 1, counts.on_gpu().as<Float8Counts>()});
    devices_.gpu->wait(devices_.gpu->setup_stream());
    expected += counted;
    EXPECT_EQ(counts.found()[1], expected) << value;
    EXPECT_EQ(counts.found()[0], 0.0) << value;
  }
}

TEST_P(CudaFloat8, ScalesByRowsAndColumnsAndTheirProductsAreTheCpus) {
  const DType type = GetParam();
  for (const Sizes& s : {Sizes{64, 32, 48}, Sizes{37, 70, 129}, Sizes{256, 1024, 512}}) {
    const Twin values = twin(type, {s.tokens, s.inputs}, 3.0), weights = twin(type, {s.outputs, s.inputs}), errors = twin(type, {s.tokens, s.outputs}, 1e-3);
    const Twin x = twin(DType::e4m3, {s.tokens, s.inputs}), xt = twin(DType::e4m3, {s.tokens, s.inputs}), w = twin(DType::e4m3, {s.outputs, s.inputs}),
               wt = twin(DType::e4m3, {s.outputs, s.inputs}), dy = twin(DType::e4m3, {s.tokens, s.outputs}), dyt = twin(DType::e4m3, {s.tokens, s.outputs});
    const Twin of_tokens = twin(DType::f32, {s.tokens}), of_outputs = twin(DType::f32, {s.outputs}), of_inputs = twin(DType::f32, {s.inputs}),
               errors_of_tokens = twin(DType::f32, {s.tokens}), errors_of_outputs = twin(DType::f32, {s.outputs}),
               values_of_inputs = twin(DType::f32, {s.inputs});
    const Twin counts = twin(DType::f64, {2});
    const Twin y = twin(type, {s.tokens, s.outputs}), dx = twin(type, {s.tokens, s.inputs}), dw = twin(DType::f32, {s.outputs, s.inputs});
    on_both([&](Device& d, Kernels& k, Stream& on) {
      auto* told = counts.on(d).as<Float8Counts>();
      const auto scale = [&](const Twin& of) { return of.on(d).as<const float>(); };
      k.quantize_by_powers(on, values.on(d), Float8Scaling::rows, of_tokens.on(d), x.on(d), told);
      k.quantize_by_powers(on, values.on(d), Float8Scaling::columns, values_of_inputs.on(d), xt.on(d), told);
      k.quantize_by_powers(on, weights.on(d), Float8Scaling::rows, of_outputs.on(d), w.on(d), told);
      k.quantize_by_powers(on, weights.on(d), Float8Scaling::columns, of_inputs.on(d), wt.on(d), told);
      k.quantize_by_powers(on, errors.on(d), Float8Scaling::rows, errors_of_tokens.on(d), dy.on(d), told);
      k.quantize_by_powers(on, errors.on(d), Float8Scaling::columns, errors_of_outputs.on(d), dyt.on(d), told);
      k.linear_fp8(on, {x.on(d), scale(of_tokens), Float8Scaling::rows}, {w.on(d), scale(of_outputs), Float8Scaling::rows}, y.on(d));
      k.linear_fp8_backward_input(on, {dy.on(d), scale(errors_of_tokens), Float8Scaling::rows}, {wt.on(d), scale(of_inputs), Float8Scaling::columns}, dx.on(d),
                                  false);
      k.linear_fp8_backward_weight(on, {dyt.on(d), scale(errors_of_outputs), Float8Scaling::columns},
                                   {xt.on(d), scale(values_of_inputs), Float8Scaling::columns}, dw.on(d), false);
    });
    for (const Twin* exact : {&x, &xt, &w, &wt, &dy, &dyt, &of_tokens, &values_of_inputs, &of_outputs, &of_inputs, &errors_of_tokens, &errors_of_outputs})
      EXPECT_TRUE(exact->same_bits()) << s.tokens << " × " << s.inputs << " × " << s.outputs;
    EXPECT_LT(y.difference(), tolerance(type)) << s.tokens << " × " << s.inputs << " × " << s.outputs;
    EXPECT_LT(dx.difference(), tolerance(type)) << s.tokens << " × " << s.inputs << " × " << s.outputs;
    EXPECT_LT(dw.difference(), 1e-5) << s.tokens << " × " << s.inputs << " × " << s.outputs;
  }
}

}  // namespace
}  // namespace troupe::test
