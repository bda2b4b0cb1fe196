#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "src/device/normal_draw.hpp"
#include "src/model/model_description.hpp"

namespace troupe {

/// Value of element `index` of a parameter: a pure function of (seed, name, index), so that any sharding starts from the same tensor.
/// Normal values are those of a NormalDraw, cut or not, so nothing is rejected, and a device can make them itself.
class InitialValues {
 public:
  InitialValues(const Initialisation& rule, std::uint64_t seed, std::string_view name);
  [[nodiscard]] float at(std::uint64_t index) const noexcept;
  /// Elements [first, first + values.size()).
  void fill(std::uint64_t first, std::span<float> values) const noexcept;
  /// What a device draws in place of `fill`; null: all values are one.
  [[nodiscard]] const NormalDraw* draw() const noexcept { return rule_.kind == Initialisation::Kind::ones ? nullptr : &draw_; }

 private:
  Initialisation rule_;
  NormalDraw draw_;
};

}  // namespace troupe
