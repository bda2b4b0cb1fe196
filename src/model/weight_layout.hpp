#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/model/model_description.hpp"
#include "src/model/settings.hpp"

namespace troupe {

/// Granularity of the scales, as torchao's recipes of these names. Tensor-wise: one scale a tensor, e5m2 for output gradients. Row-wise:
/// e4m3 everywhere, a power of two for each row or column, whichever a product does not sum over. With gw_hp: the gradient of a weight in the
/// compute type, and one scale (a power of two) for the weight in the gradient of the input.
enum class Float8Recipe : std::uint8_t { tensorwise, rowwise, rowwise_with_gw_hp };

/// This entry of filter_fqns is no name: it leaves out linears too small to gain (torchao's thresholds, measured on H100).
inline constexpr std::string_view float8_auto_filter = "auto_filter_small_kn";

/// FP8 of the linears of blocks and head: dynamic scaling.
struct Float8Options {
  bool enable = false;
  std::vector<std::string> filter_fqns;  ///< a linear whose name contains one of these stays in high precision
  bool all_gather = true;                ///< tensor-wise only: weights travel as one byte a value, cast on their shard with the scale of the whole tensor
  Float8Recipe recipe = Float8Recipe::tensorwise;
  [[nodiscard]] bool gathers_codes() const noexcept { return enable && all_gather && recipe == Float8Recipe::tensorwise; }
};

/// Of the checked `[float8]` section.
[[nodiscard]] Float8Recipe float8_recipe(const Float8Settings& settings);
/// "tensorwise", "rowwise", "rowwise_with_gw_hp".
[[nodiscard]] std::string_view name_of(Float8Recipe recipe) noexcept;

/// Which linears run in fp8, by name without ".weight", and why the others do not.
struct Float8Selection {
  struct Skipped {
    std::string name, why;
  };
  std::vector<std::string> converted;
  std::vector<Skipped> skipped;
};

/// One parameter as a unit's slots hold it: padded_rows × cols, row-major, member r's rows at [r, r+1) · rows_per_rank.
struct ParameterSlot {
  std::size_t parameter = 0;        ///< index into WeightLayout::parameters
  std::size_t weight_offset = 0;    ///< bytes, in the weights slot
  std::size_t gradient_offset = 0;  ///< bytes, in the gradients slot
  DType stored = DType::f32;        ///< in the weights slot: the compute type, or e4m3
  bool fp8 = false;                 ///< the linear computes in fp8
  bool tied_reader = false;         ///< this unit reads another unit's parameter
};

/// A parameter with state of its own; tied names have none.
struct LaidParameter {
  ParameterDescription description;
  std::size_t unit = 0;            ///< that owns it
  std::int64_t rows_per_rank = 0;  ///< padded
  bool fp8 = false;
  bool tied = false;            ///< another unit reads it too
  DType gradient = DType::f32;  ///< of the shard's gradient, which is kept until the step; bf16 only where no rank adds to it
  [[nodiscard]] std::int64_t first_row(std::uint32_t rank) const noexcept { return std::min(rows_per_rank * rank, description.rows); }
  [[nodiscard]] std::int64_t rows_of(std::uint32_t rank) const noexcept { return std::min(rows_per_rank * (rank + 1), description.rows) - first_row(rank); }
};

struct UnitLayout {
  std::vector<ParameterSlot> slots;                    ///< in the order of the unit's parameters
  std::size_t weights_bytes = 0, gradients_bytes = 0;  ///< of a slot that holds the unit
};

/// Where every parameter lies, on every rank; a pure function of model, sizes, precision and world.
struct WeightLayout {
  std::uint32_t world = 1;
  DType compute = DType::f32;
  DType gradient = DType::f32;  ///< f64 only where compute is (tests)
  std::vector<LaidParameter> parameters;
  std::vector<UnitLayout> units;
  Float8Selection float8;
  Float8Recipe recipe = Float8Recipe::tensorwise;
};

[[nodiscard]] WeightLayout lay_out_weights(const ModelDescription& model, const TapeSizes& sizes, const Float8Options& float8, std::uint32_t world);

}  // namespace troupe
