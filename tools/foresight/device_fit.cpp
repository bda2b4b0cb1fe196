#include "tools/foresight/device_fit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace troupe {
namespace {

constexpr std::size_t terms = work_kinds + 1;  ///< the last: launches
constexpr double pull = 0.001;                 ///< towards a common multiplier, of a row's weight
constexpr int rounds = 2000;

using Row = std::array<double, terms>;

/// Parts of the measured time: with the right multipliers they sum up to one.
std::vector<Row> rows_of(const std::vector<MeasuredWork>& measured) {
  std::vector<Row> rows;
  for (const MeasuredWork& work : measured) {
    if (work.seconds <= 0) continue;
    Row row{};
    for (std::size_t i = 0; i < work_kinds; ++i) row[i] = work.parts.seconds[i] / work.seconds;
    row[work_kinds] = work.parts.overhead / work.seconds;
    rows.push_back(row);
  }
  return rows;
}

/// The one factor for all terms that meets the rows best.
double common_multiplier(const std::vector<Row>& rows) {
  double above = 0, below = 0;
  for (const Row& row : rows) {
    double sum = 0;
    for (const double part : row) sum += part;
    above += sum;
    below += sum * sum;
  }
  return below > 0 ? above / below : 1;
}

/// Coordinate descent: each multiplier in turn where the squares are least with the others as they are.
Row multipliers_of(const std::vector<Row>& rows) {
  const double common = common_multiplier(rows);
  Row x;
  x.fill(common);
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t j = 0; j < terms; ++j) {
      double above = 0, below = 0;
      for (const Row& row : rows) {
        double others = 0;
        for (std::size_t i = 0; i < terms; ++i) others += i == j ? 0 : row[i] * x[i];
        above += row[j] * (1 - others);
        below += row[j] * row[j];
      }
      const double weight = pull * static_cast<double>(rows.size()) / (common * common);
      x[j] = std::max(0.05 * common, (above + weight * common) / (below + weight));
    }
  }
  return x;
}

}  // namespace

DeviceModel fitted(DeviceModel device, const std::vector<MeasuredWork>& measured) {
  const std::vector<Row> rows = rows_of(measured);
  if (rows.empty()) return device;
  const Row x = multipliers_of(rows);
  device.product_efficiency /= x[static_cast<std::size_t>(WorkKind::product)];
  device.fp8_efficiency /= x[static_cast<std::size_t>(WorkKind::product_fp8)];
  device.attention_efficiency /= x[static_cast<std::size_t>(WorkKind::attention)];
  device.attention_backward_efficiency /= x[static_cast<std::size_t>(WorkKind::attention_backward)];
  device.memory_efficiency /= x[static_cast<std::size_t>(WorkKind::memory)];
  device.kernel_us *= x[work_kinds];
  return device;
}

std::string efficiencies_text(const DeviceModel& d) {
  return fmt::format("products at {:.1f} % of the rate, attention {:.1f} and {:.1f} %, memory {:.1f} %, {:.2f} us a kernel", 100 * d.product_efficiency,
                     100 * d.attention_efficiency, 100 * d.attention_backward_efficiency, 100 * d.memory_efficiency, d.kernel_us);
}

}  // namespace troupe
