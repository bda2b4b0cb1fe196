#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "src/device/kernels.hpp"
#include "src/model/model_description.hpp"
#include "src/model/recompute.hpp"
#include "src/model/weight_layout.hpp"

namespace troupe {

/// What a buffer of the arena is for.
enum class BufferKind : std::uint8_t { activation, float8, gradient, scale };
inline constexpr std::size_t buffer_kinds = 4;
[[nodiscard]] const char* name_of(BufferKind kind) noexcept;

/// One value, or one representation of it, in the arena from its first use to its last. Instructions are counted over a whole
/// micro-batch: forward of all units, then backward of all.
struct TapeBuffer {
  std::string name;
  BufferKind kind{};
  DType dtype = DType::f32;
  std::int64_t rows = 0, cols = 0;
  std::uint32_t first = 0, last = 0;
  bool saved = false;                             ///< lives from forward into backward
  Float8Scaling scaling = Float8Scaling::tensor;  ///< fp8 codes: what shares one of the scales in the next buffer
  bool powers = false;                            ///< fp8 codes: scales are powers of two, and stand alone; else (amax, scale)
  std::size_t bytes = 0, offset = 0;
};

/// What an instruction calls; one kernel each but for the casts (amax, scale, quantize).
enum class InstructionCode : std::uint8_t {
  embedding,
  rms_norm,
  linear,
  linear_fp8,
  rotary,
  attention,
  swiglu,
  add,
  cross_entropy,
  cast_fp8,  ///< how, says the buffer of the codes
  cast_weight_fp8,
  embedding_backward,
  rms_norm_backward,
  linear_backward_weight,
  linear_backward_input,
  linear_fp8_backward_weight,
  linear_fp8_backward_input,
  rotary_backward,
  attention_backward,
  swiglu_backward,
  copy
};

/// One call on buffers of the arena; operands in the kernel's order. Fp8 operands are followed by their scale buffer, but for weights
/// that were gathered in fp8, whose scale the shards own.
struct Instruction {
  InstructionCode code{};
  std::vector<int> operands;  ///< indices into TapePlan::buffers
  int parameter = -1;         ///< of the unit
  int weight = -1;            ///< buffer with the weight cast to fp8 here, its scale follows in the next buffer; -1: as gathered
  bool accumulate = false;    ///< adds to the input's gradient
  bool accumulate_weight = false;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;  ///< as TapeStep
  double eps = 0;
  std::vector<int> amaxes{};  ///< of each result: the scale buffer that a device which can puts max |result| into; -1 or empty: none
  bool amax_found = false;    ///< of cast_fp8: on such a device the amax is there
};

struct TapePlanOptions {
  KeptSteps kept = {};     ///< empty: every result that backward reads
  bool inference = false;  ///< forward only, without the loss; the logits stay
  bool with_loss = false;  ///< of inference: with the loss, over the logits
};

/// All tapes of a model as two lists of instructions a unit on one arena whose offsets are fixed: liveness, saved and recomputed values,
/// inserted casts and summed gradients are decided here, once. A value.
struct TapePlan {
  TapeSizes sizes;
  std::vector<std::vector<Instruction>> forward, backward;  ///< [unit]; backward in the order of execution within the unit
  std::vector<TapeBuffer> buffers;
  std::size_t arena_bytes = 0;                           ///< what first-fit by lifetime needs
  std::size_t peak_bytes = 0;                            ///< the most that lives at one instruction; arena − peak is lost to fragmentation
  std::array<std::size_t, buffer_kinds> peak_by_kind{};  ///< [BufferKind] at the peak, without what backward finds saved
  std::size_t peak_saved = 0;                            ///< what lives at the peak from forward into backward, of all kinds
  int logits = -1;                                       ///< buffer
};

/// Whether one of these reads a weight of the unit.
[[nodiscard]] bool reads_weights(const std::vector<Instruction>& instructions) noexcept;

[[nodiscard]] TapePlan plan_tapes(const ModelDescription& model, const WeightLayout& layout, const TapeSizes& sizes, const TapePlanOptions& options);
/// The same without places in an arena: instructions, buffers and their lives.
[[nodiscard]] TapePlan emit_tapes(const ModelDescription& model, const WeightLayout& layout, const TapeSizes& sizes, const TapePlanOptions& options);

}  // namespace troupe
