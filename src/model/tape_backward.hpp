#pragma once
#include <string>
#include <utility>
#include <vector>

#include "src/model/tape_plan.hpp"

namespace troupe {

/// Appends instructions to a TapePlan and keeps each buffer's lifetime; inside of plan_tapes.
class TapeEmitter {
 public:
  explicit TapeEmitter(TapePlan& plan, Float8Recipe recipe) : plan_(plan), recipe_(recipe) {}
  void begin(std::vector<Instruction>& list) noexcept { list_ = &list; }
  void emit(Instruction instruction);
  [[nodiscard]] int buffer(std::string name, BufferKind kind, DType dtype, std::int64_t rows, std::int64_t cols);
  [[nodiscard]] int value_buffer(const std::string& prefix, const TapeValue& value, BufferKind kind);
  /// How a cast scales.
  struct Cast {
    DType dtype = DType::e4m3;
    Float8Scaling scaling = Float8Scaling::tensor;
    bool powers = false;
  };
  /// Codes, and behind them their scales.
  [[nodiscard]] std::pair<int, int> float8_buffer(const std::string& name, const Cast& cast, std::int64_t rows, std::int64_t cols);
  /// The weight in fp8: -1 if it was gathered so, else a buffer that is cast here and now.
  [[nodiscard]] int cast_weight(const UnitDescription& unit, const UnitLayout& layout, int parameter, const Cast& cast);
  [[nodiscard]] std::uint32_t now() const noexcept { return now_; }
  [[nodiscard]] Float8Recipe recipe() const noexcept { return recipe_; }
  [[nodiscard]] const TapeSizes& sizes() const noexcept { return plan_.sizes; }
  [[nodiscard]] const TapeBuffer& at(int index) const { return plan_.buffers[static_cast<std::size_t>(index)]; }

 private:
  TapePlan& plan_;
  Float8Recipe recipe_;
  std::vector<Instruction>* list_ = nullptr;
  std::uint32_t now_ = 0;
};

/// How the operands of an fp8 linear are cast, by what a product sums over.
struct Float8Casts {
  TapeEmitter::Cast along_row;     ///< x and w in y = x wᵀ
  TapeEmitter::Cast gradient;      ///< dy in dx = dy w
  TapeEmitter::Cast weight;        ///< w in dx = dy w
  TapeEmitter::Cast along_tokens;  ///< dy and x in dw = dyᵀ x, unless those of `along_row` and `gradient` serve
  bool separate = false;           ///< dw has casts of its own (row-wise)
  bool high_precision = false;     ///< dw takes dy and x as they are (gw_hp)
  static Float8Casts of(Float8Recipe recipe) noexcept;
};

/// Where a unit's values are: in the compute type, and in fp8 with scale (-1: nowhere).
struct UnitValues {
  std::vector<int> buffer;
  std::vector<std::pair<int, int>> float8;
};

/// The unit's tape in reverse. `output_gradient`: buffer, -1 for the unit that ends in the loss. Returns the gradient of its input (-1: it has none).
[[nodiscard]] int emit_backward(TapeEmitter& out, const UnitDescription& unit, const UnitLayout& layout, const UnitValues& values, int output_gradient);

}  // namespace troupe
