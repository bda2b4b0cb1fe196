#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "src/model/model_description.hpp"

namespace troupe {

/// Value of element `index` of a parameter: a pure function of (seed, name, index), so that any sharding starts from the same tensor.
/// A counter-based generator (SplitMix64's finaliser over key + index · golden ratio) gives a uniform number, the inverse of the normal
/// distribution (Wichura's AS 241) the draw; a cut distribution maps the uniform number onto what lies between the cuts, so nothing is rejected.
class InitialValues {
 public:
  InitialValues(const Initialisation& rule, std::uint64_t seed, std::string_view name);
  [[nodiscard]] float at(std::uint64_t index) const noexcept;
  /// Elements [first, first + values.size()).
  void fill(std::uint64_t first, std::span<float> values) const noexcept;

 private:
  Initialisation rule_;
  std::uint64_t key_;
  double low_ = 0, width_ = 1;  ///< of the uniform numbers that lie between the cuts
};

}  // namespace troupe
