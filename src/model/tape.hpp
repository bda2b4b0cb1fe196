#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "src/device/tensor_view.hpp"

namespace troupe {

/// The operations that blocks are made of. Each has a forward and a backward among the device's Kernels.
enum class OperationType : std::uint8_t { embedding, rms_norm, linear, rotary, attention, swiglu, add, cross_entropy };
[[nodiscard]] const char* name_of(OperationType type) noexcept;

/// A named value of a tape: [tokens, width], in the compute type unless `fp32`.
struct TapeValue {
  std::string name;
  std::int64_t width = 0;
  bool fp32 = false;  ///< statistics that backward needs: 1/rms, log-sum-exp
};

using ValueIndex = std::uint16_t;

/// One operation of a tape. `in` are values whose gradients exist (all that it reads); `out[0]` is the result, `out[1]` its statistics.
///   embedding      in: –          out: y            parameter: table       (tokens come from the batch)
///   rms_norm       in: x          out: y, rstd      parameter: weight
///   linear         in: x          out: y            parameter: weight
///   rotary         in: x          out: x rotated, in the same memory
///   attention      in: q, k, v    out: y, lse
///   swiglu         in: gate, up   out: y
///   add            in: a, b       out: a + b
///   cross_entropy  in: logits     out: –            (labels come from the batch; the logits become their gradient)
struct TapeStep {
  OperationType type{};
  std::vector<ValueIndex> in, out;
  int parameter = -1;                                  ///< index among the unit's parameters
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;  ///< rotary: heads and head_dim of x; attention: all
  double eps = 0;                                      ///< rms_norm
};

/// A unit of the model as a static list of operations on named values; backward is its reverse, with the gradients of a value that
/// has several consumers summed. Value 0 is the unit's input (but for the first unit, which has none), `output` its result.
struct Tape {
  std::vector<TapeValue> values;
  std::vector<TapeStep> steps;
  bool has_input = true;
  int output = -1;  ///< -1: the unit ends in the loss
};

/// Sizes that every tape of a run shares.
struct TapeSizes {
  std::int64_t rows = 1, seq_len = 1;  ///< of one micro-batch
  DType compute = DType::f32;          ///< f32, bf16; f64 for tests
  bool documents = false;              ///< attention stays within each token's document: the batch says where they begin
  [[nodiscard]] std::int64_t tokens() const noexcept { return rows * seq_len; }
  [[nodiscard]] DType type_of(const TapeValue& value) const noexcept { return value.fp32 && compute != DType::f64 ? DType::f32 : compute; }
  [[nodiscard]] std::size_t bytes_of(const TapeValue& value) const noexcept {
    return static_cast<std::size_t>(tokens() * value.width) * size_of(type_of(value));
  }
};

/// What one operation takes: bytes of its result, of what backward keeps of it and of its inputs, and the arithmetic and traffic.
struct OperationCost {
  std::size_t out = 0, saved = 0;
  double forward_flops = 0, backward_input_flops = 0, backward_weight_flops = 0;
  double forward_bytes = 0;  ///< read and written, weights included
};
/// A pure function of the shapes; `weight_elements`: of the parameter that the step uses.
[[nodiscard]] OperationCost cost_of(const TapeStep& step, const Tape& tape, const TapeSizes& sizes, std::int64_t weight_elements);

/// Values that the backward of `step` reads (never the result of a linear: only its input).
[[nodiscard]] std::vector<ValueIndex> read_by_backward(const TapeStep& step);

/// Appends operations to a tape; every member returns the index of the result.
class TapeBuilder {
 public:
  /// The unit's input; call it first, or never for a unit that starts from the tokens.
  ValueIndex input(std::string name, std::int64_t width);
  ValueIndex embedding(std::string name, int parameter, std::int64_t width);
  ValueIndex rms_norm(const std::string& name, ValueIndex x, int parameter, double eps);
  ValueIndex linear(std::string name, ValueIndex x, int parameter, std::int64_t width);
  ValueIndex rotary(std::string name, ValueIndex x, std::int64_t heads, std::int64_t head_dim);
  ValueIndex attention(const std::string& name, ValueIndex q, ValueIndex k, ValueIndex v, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim);
  ValueIndex swiglu(std::string name, ValueIndex gate, ValueIndex up);
  ValueIndex add(std::string name, ValueIndex a, ValueIndex b);
  void cross_entropy(ValueIndex logits);
  /// Throws std::logic_error if a value that is rotated in place has another reader, or a result is read by nobody.
  [[nodiscard]] Tape finish(int output);

 private:
  ValueIndex value(std::string name, std::int64_t width, bool fp32 = false);
  Tape tape_{.values = {}, .steps = {}, .has_input = false, .output = -1};
};

}  // namespace troupe
