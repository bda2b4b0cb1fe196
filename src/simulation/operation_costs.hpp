#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/model/training_model.hpp"
#include "src/plan/compiler.hpp"
#include "src/simulation/cluster_model.hpp"

namespace troupe {

[[nodiscard]] constexpr double seconds_of(Nanos time) noexcept { return static_cast<double>(time.count()) * 1e-9; }

/// What a lane's operation is made of: arithmetic that a device has a rate for, and traffic with its memory.
enum class WorkKind : std::uint8_t { product, product_fp8, attention, attention_backward, memory };
inline constexpr std::size_t work_kinds = 5;
[[nodiscard]] const char* name_of(WorkKind kind) noexcept;

/// The time of one operation by kind of work, in seconds; a kernel takes the longer of its arithmetic and its traffic.
struct WorkTime {
  std::array<double, work_kinds> seconds{};
  double flops = 0, bytes = 0;  ///< executed and moved
  double overhead = 0;          ///< seconds, of launches
  [[nodiscard]] double total() const noexcept;
  void add(const WorkTime& other, double times = 1) noexcept;
};
/// A forward or backward of one unit and micro-batch on the device, by its list of instructions and their buffers.
[[nodiscard]] WorkTime time_of(const TrainingEstimate& estimate, std::size_t unit, bool backward, const DeviceModel& device);

/// Which of a model's units one is: they have the like operations, whatever the number of blocks.
enum class UnitClass : std::uint8_t { first, block, last };
[[nodiscard]] constexpr UnitClass class_of(std::size_t unit, std::size_t units) noexcept {
  return unit == 0 ? UnitClass::first : unit + 1 == units ? UnitClass::last : UnitClass::block;
}

/// How long every operation of a rank's step takes: by the roofline of a device and a network, perhaps corrected by what a run has measured. A value.
class OperationCosts {
 public:
  struct Inputs {
    const TrainingEstimate& estimate;
    const TrainingOptions& options;
    const ClusterModel& cluster;
    std::size_t state_bytes = 0;  ///< of this rank, as a snapshot holds it
  };
  /// By roofline. Everything is a pure function of the inputs.
  explicit OperationCosts(const Inputs& inputs);

  /// Operations of the same kind in units of one class; `shared`: where other ranks take part.
  struct Kind {
    OperationKind operation{};
    UnitClass unit{};
    bool shared = false;
    auto operator<=>(const Kind&) const = default;
  };
  /// "forward block", "verdict", "gather head, shared": as a profile's report names it.
  [[nodiscard]] static std::string name_of(const Kind& kind);
  /// Of the roofline's time, what operations of a kind really take: measured at some sizes, and between two of them in between.
  class Factor {
   public:
    Factor() = default;
    Factor(double everywhere) : points_{{0, everywhere}} {}  // NOLINT(google-explicit-constructor): 1.7 is a factor
    /// Where the roofline says so many seconds.
    void add(double roofline, double factor) { points_[roofline] = factor; }
    [[nodiscard]] double at(double roofline) const;

   private:
    std::map<double, double> points_;
  };
  using Factors = std::map<Kind, Factor>;
  /// Where a kind is not named, the factor of its other `shared` stands in; without either it stays as it is.
  void correct(const Factors& factors) { factors_ = factors; }

  [[nodiscard]] Nanos of(const Fact& fact) const;
  [[nodiscard]] Nanos of(const PlannedOperation& operation) const { return of(operation.fact); }
  [[nodiscard]] Kind kind_of(const Fact& fact) const;
  [[nodiscard]] std::size_t units() const noexcept { return units_.size(); }

 private:
  struct UnitTimes {
    Nanos forward{0}, backward{0}, scales{0}, gather{0}, accumulate{0}, reduce{0}, all_reduce{0}, optimize{0};
  };
  std::vector<UnitTimes> units_;
  Nanos load_{0}, verdict_{0}, snapshot_{0}, save_{0}, keep_{0};
  std::uint32_t world_ = 1, replicas_ = 1;
  Factors factors_;
};

}  // namespace troupe
