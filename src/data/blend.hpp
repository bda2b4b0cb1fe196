#pragma once
#include <cstdint>
#include <vector>

namespace troupe {

/// Which source a row of a blend comes from. Of the first n draws a source with share w has c with |c − n·w| < 1, for every n: Tijdeman's rule
/// for the chairman assignment problem (R. Tijdeman, The chairman assignment problem, Discrete Mathematics 32, 1980). No random numbers, so a draw
/// is a function of the weights and its number alone. One thread.
class Blend {
 public:
  struct Draw {
    std::uint32_t source = 0;
    std::uint64_t row = 0;  ///< of that source: how often it was drawn before
  };

  /// Weights need not add up to one. Throws std::invalid_argument as weights_problem (blend_weights.hpp) says.
  explicit Blend(const std::vector<double>& weights);
  /// Draw `k`, from 0. Fast when k grows; a first large one walks there (about 10 ns a draw and source), later ones begin at the nearest mark.
  [[nodiscard]] Draw at(std::uint64_t k);

 private:
  using Counts = std::vector<std::uint64_t>;
  [[nodiscard]] std::uint32_t next() const;

  std::vector<double> shares_;
  double slack_ = 0;  ///< 1 / (2·sources − 2)
  std::uint64_t draws_ = 0;
  Counts counts_;              ///< of the first `draws_` draws
  std::vector<Counts> marks_;  ///< [i]: of the first i · stride draws
};

}  // namespace troupe
