#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "src/device/cached_attention.hpp"
#include "src/device/fused_kernels.hpp"
#include "src/model/extension.hpp"
#include "src/model/programs.hpp"
#include "src/model/step_totals.hpp"
#include "src/model/tape_plan.hpp"
#include "src/model/weight_layout.hpp"

namespace troupe {

/// Keys and values of the tokens before, for each unit that has attention. Memory is somebody else's.
struct KeyValueCache {
  struct Unit {
    TensorView keys, values;  ///< [capacity, KV · d] in the compute type; data null: the unit has no attention
  };
  std::vector<Unit> units;
  std::int64_t length = 0;               ///< tokens that it holds
  CachedAttention* attention = nullptr;  ///< the device's
};

/// Of an instruction and the next one.
struct Joint {
  bool made = false;        ///< the two run as one
  bool value_read = false;  ///< others read what lies between them, too
};

/// Runs a TapePlan: each instruction becomes one call of the device's kernels on views of arena, weights and gradients slots.
/// Where the kernels are FusedKernels too, two neighbouring instructions become one call if nobody else needs what lies between them.
/// Everything referred to outlives the program. Compute's lane only; allocates nothing.
class TapeProgram final : public ComputeProgram {
 public:
  struct Inputs {
    const TapePlan& plan;
    const WeightLayout& layout;
    Kernels& kernels;
    std::span<std::byte> arena;             ///< plan.arena_bytes
    TensorView rotary;                      ///< [seq_len, head_dim / 2, 2]
    std::vector<const float*> scales;       ///< [LaidParameter] of weights that are gathered in fp8; null for the others
    StepTotals* totals = nullptr;           ///< device memory
    double gradient_scale = 1;              ///< 1 / nominal tokens
    LossSum* marks = nullptr;               ///< device memory [micro-batch][row]: loss and tokens of `totals` behind each row of the step; null: none are kept
    LossFunction loss = {};                 ///< in place of the kernels' cross entropy, where there is one
    KeyValueCache* cache = nullptr;         ///< inference token by token: tokens are those at cache->length and after
    std::vector<void*> own_gradients = {};  ///< [LaidParameter]: where backward writes weights' gradients; empty: into the gradients slot
  };
  explicit TapeProgram(Inputs inputs);

  void forward(Stream& stream, Step step, Micro micro, Unit unit, std::span<const std::byte> batch, std::span<const std::byte> weights) override;
  void backward(Stream& stream, Step step, Micro micro, Unit unit, std::span<const std::byte> batch, std::span<const std::byte> weights,
                std::span<std::byte> gradients) override;
  /// [tokens, vocabulary] after an inference plan's last unit.
  [[nodiscard]] TensorView logits() const;

 private:
  struct Call;
  void run_all(const Call& call, const std::vector<Instruction>& instructions, const std::vector<Joint>& joined) const;
  void run_joined(const Call& call, const Instruction& first, const Instruction& second, bool value_read) const;
  void run(const Call& call, const Instruction& instruction) const;
  void run_forward(const Call& call, const Instruction& instruction) const;
  void run_backward(const Call& call, const Instruction& instruction) const;
  void attend_cached(const Call& call, const Instruction& instruction, double scale) const;
  void cast_to_float8(const Call& call, TensorView from, const Instruction& instruction, std::size_t to) const;
  void cross_entropy_by_rows(const Call& call, const TensorView& logits) const;
  [[nodiscard]] TensorView view(int buffer) const;
  [[nodiscard]] TensorView rotary_table() const;
  [[nodiscard]] TensorView by_heads(int buffer, std::int64_t heads, std::int64_t head_dim, bool by_rows) const;
  [[nodiscard]] TensorView log_sum_exp(int buffer, std::int64_t heads) const;
  [[nodiscard]] Float8View float8(int data, int scale) const;
  [[nodiscard]] TensorView weight(const Call& call, int parameter) const;
  [[nodiscard]] Float8View float8_weight(const Call& call, const Instruction& instruction) const;
  [[nodiscard]] TensorView weight_gradient(const Call& call, int parameter) const;
  [[nodiscard]] TensorView starts(const Call& call) const;  ///< [rows, seq_len]; none: attention sees the whole row
  [[nodiscard]] TensorView batch_part(const Call& call, std::size_t part) const;

  [[nodiscard]] CastTarget cast_target(const Instruction& instruction, std::size_t first) const;
  /// Where the device puts the amax of this result; null: nowhere.
  [[nodiscard]] float* amax(const Instruction& instruction, std::size_t result) const;

  Inputs in_;
  FusedKernels* fused_;                                               ///< null: the device has none, or none for the recipe
  std::vector<std::vector<Joint>> forward_joined_, backward_joined_;  ///< [unit][instruction]
};

}  // namespace troupe
