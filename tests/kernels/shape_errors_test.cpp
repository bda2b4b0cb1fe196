#include <functional>
#include <stdexcept>

#include "tests/kernels/kernel_test.hpp"

namespace troupe {
namespace {

class ShapeErrors : public KernelTest {
 protected:
  static std::string message_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "nothing was thrown";
  }
};

TEST_F(ShapeErrors, NameTheOperationTheRuleAndWhatWasFound) {
  const at::Tensor x = at::zeros({4, 8}), w = at::zeros({5, 7}, at::kBFloat16), y = at::zeros({4, 5});
  EXPECT_EQ(message_of([&] { kernels_.linear(stream_, view(x), view(w), view(y)); }),
            "linear: expected x [T,K], w [N,K], y [T,N] of one floating type; found x [4, 8] float32, w [5, 7] bfloat16, y [4, 5] float32");
}

TEST_F(ShapeErrors, EveryOperationRefusesAWrongShape) {
  const TensorView a = view(at::zeros({4, 8})), b = view(at::zeros({4, 7})), v = view(at::zeros({3})), four = view(at::zeros({1, 4, 3, 8}));
  const TensorView lse = view(at::zeros({1, 3, 4})), two = view(at::zeros({1, 4, 2, 8})),
                   codes = view(at::zeros({4, 8}, at::TensorOptions(at::kFloat8_e4m3fn)));
  const TensorView tokens = view(at::zeros({9}, at::kInt));
  const float scale = 1;
  std::int64_t count = 0;
  const Verdict verdict;
  VerdictSums sums;
  double sum = 0;
  const std::vector<std::pair<std::string, std::function<void()>>> calls = {
      {"linear_backward_input", [&] { kernels_.linear_backward_input(stream_, a, b, a, false); }},
      {"linear_backward_weight", [&] { kernels_.linear_backward_weight(stream_, a, b, a, false); }},
      {"amax", [&] { kernels_.amax(stream_, codes, nullptr, false); }},
      {"scale_from_amax", [&] { kernels_.scale_from_amax(stream_, &scale, DType::f32, nullptr); }},
      {"quantize_by_powers", [&] { kernels_.quantize_by_powers(stream_, a, Float8Scaling::rows, b, codes, nullptr); }},
      {"average", [&] { kernels_.average(stream_, a, b, 0.5, &verdict); }},
      {"quantize", [&] { kernels_.quantize(stream_, b, &scale, codes, nullptr); }},
      {"linear_fp8", [&] { kernels_.linear_fp8(stream_, {codes, &scale}, {codes, &scale}, a); }},
      {"linear_fp8_backward_input", [&] { kernels_.linear_fp8_backward_input(stream_, {codes, &scale}, {codes, &scale}, a, false); }},
      {"linear_fp8_backward_weight", [&] { kernels_.linear_fp8_backward_weight(stream_, {codes, &scale}, {codes, &scale}, a, false); }},
      {"rms_norm", [&] { kernels_.rms_norm(stream_, a, v, 1e-5, a, v); }},
      {"rms_norm_backward", [&] { kernels_.rms_norm_backward(stream_, a, a, v, v, a, false, v, false); }},
      {"rotary", [&] { kernels_.rotary(stream_, a, a, false); }},
      {"attention", [&] { kernels_.attention(stream_, four, two, two, 1.0, four, lse); }},
      {"attention_backward", [&] { kernels_.attention_backward(stream_, four, four, two, two, four, lse, 1.0, four, two, two); }},
      {"swiglu", [&] { kernels_.swiglu(stream_, a, b, a); }},
      {"swiglu_backward", [&] { kernels_.swiglu_backward(stream_, a, a, b, a, a); }},
      {"add", [&] { kernels_.add(stream_, a, b, a); }},
      {"embedding", [&] { kernels_.embedding(stream_, tokens, a, b); }},
      {"embedding_backward", [&] { kernels_.embedding_backward(stream_, tokens, a, b, false); }},
      {"cross_entropy", [&] { kernels_.cross_entropy(stream_, a, tokens, 1.0, &sums); }},
      {"fill", [&] { kernels_.fill(stream_, codes, 1.0); }},
      {"cast", [&] { kernels_.cast(stream_, a, b); }},
      {"sum_squares", [&] { kernels_.sum_squares(stream_, tokens, &sum); }},
      {"adamw", [&] { kernels_.adamw(stream_, a, b, a, a, &count, AdamWStep{}, &verdict); }},
  };
  for (const auto& [operation, call] : calls) {
    const std::string message = message_of(call);
    EXPECT_TRUE(message.starts_with(operation + ": expected ")) << operation << ": " << message;
    EXPECT_NE(message.find("; found "), std::string::npos) << message;
  }
}

TEST_F(ShapeErrors, StridedViewsAreRefused) {
  const at::Tensor x = at::zeros({4, 8});
  TensorView strided = view(x);
  strided.strides[0] = 16;
  EXPECT_NE(message_of([&] { kernels_.add(stream_, strided, view(x), view(x)); }).find("contiguous"), std::string::npos);
}

}  // namespace
}  // namespace troupe
