#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "src/device/device.hpp"
#include "src/device/state_tensor.hpp"
#include "src/model/weight_layout.hpp"

namespace troupe {

/// The average of a parameter is saved under this and its name.
inline constexpr std::string_view ema_prefix = "optimizer.ema.";

/// One rank's rows of all parameters: fp32 masters, moments, gradients, step counts, and the scales of weights that travel in fp8.
/// Padding rows exist in memory and nowhere else: all views here are of valid rows, but for `gradient_with_padding` and `gradients_of`.
class ShardMemory {
 public:
  struct Options {
    std::uint32_t rank = 0;                   ///< in dp_shard
    bool sums = false;                        ///< unsharded sums of several micro-batches' gradients
    Placement placement = Placement::device;  ///< of masters, moments and averages; host: the kernels reach them there
    bool averages = false;                    ///< room for a moving average of each parameter
    bool step_in_backward = false;            ///< gradients of two units at a time: a unit's place is that of the unit two below it
  };
  ShardMemory(const WeightLayout& layout, const Options& options, Device& device);

  [[nodiscard]] TensorView master(std::size_t parameter) const { return rows(*masters_, offsets_, parameter); }
  [[nodiscard]] TensorView first_moment(std::size_t parameter) const { return rows(*first_, offsets_, parameter); }
  [[nodiscard]] TensorView second_moment(std::size_t parameter) const { return rows(*second_, offsets_, parameter); }
  [[nodiscard]] TensorView average(std::size_t parameter) const { return rows(*averages_, offsets_, parameter); }
  [[nodiscard]] TensorView gradient(std::size_t parameter) const {
    return rows(*gradients_, gradient_offsets_, parameter, layout_.parameters[parameter].gradient);
  }
  /// rows_per_rank × cols values.
  [[nodiscard]] float* gradient_with_padding(std::size_t parameter) const;
  /// Gradient shards of all parameters that the unit owns, with padding: those of one type that lie behind each other are one run.
  [[nodiscard]] std::vector<TensorView> gradients_of(std::size_t unit) const;
  /// The unit's unsharded sums, laid out as its gradients slot; empty without Options::sums.
  [[nodiscard]] std::span<std::byte> sums_of(std::size_t unit) const;
  [[nodiscard]] std::int64_t* count(std::size_t parameter) const;
  [[nodiscard]] float* amax(std::size_t parameter) const;  ///< of a parameter with fp8
  [[nodiscard]] float* scale(std::size_t parameter) const;
  [[nodiscard]] TensorView amaxes_of(std::size_t unit) const;  ///< of the parameters with fp8 that the unit owns, which are neighbours
  [[nodiscard]] float* scales_of(std::size_t unit) const;      ///< of the same, in the order of `amaxes_of`
  [[nodiscard]] std::uint32_t rank() const noexcept { return options_.rank; }
  [[nodiscard]] StateTensors state() const;
  [[nodiscard]] StateTensors averages() const;     ///< under the parameters' own names; empty: there are none
  [[nodiscard]] StateTensors gradients() const;    ///< empty with Options::step_in_backward: they are used up
  [[nodiscard]] std::size_t bytes() const;         ///< allocated, wherever
  [[nodiscard]] std::size_t device_bytes() const;  ///< of those, what lies in Placement::device

  /// Pure: what the constructor will allocate, [masters, moments, averages, gradients, unsharded sums, counts and scales].
  struct Bytes {
    std::size_t masters = 0, moments = 0, averages = 0, gradients = 0, sums = 0, scalars = 0;
  };
  [[nodiscard]] static Bytes bytes_of(const WeightLayout& layout, bool sums, bool averages, bool step_in_backward = false);
  /// Of one rank's gradient shards of the parameters that the unit owns, as `gradients_of`.
  [[nodiscard]] static std::size_t gradient_bytes_of(const WeightLayout& layout, std::size_t unit);
  /// Values of each kind of state that one rank holds of the unit's own parameters, with padding.
  [[nodiscard]] static std::size_t elements_of(const WeightLayout& layout, std::size_t unit);

 private:
  [[nodiscard]] StateTensor part(std::size_t parameter, const std::string& prefix, const TensorView& view, bool model) const;
  [[nodiscard]] TensorView rows(const Buffer& buffer, const std::vector<std::size_t>& offsets, std::size_t parameter, DType dtype = DType::f32) const;

  const WeightLayout& layout_;
  Options options_;
  DeviceId device_;
  std::vector<std::size_t> offsets_;           ///< bytes, of each parameter in each of the buffers of rows
  std::vector<std::size_t> gradient_offsets_;  ///< and in gradients_
  std::vector<std::size_t> float8_;            ///< place among the fp8 parameters
  std::size_t float8_count_ = 0;
  std::vector<std::size_t> sum_offsets_;  ///< bytes, of each unit in sums_, and the end
  std::unique_ptr<Buffer> masters_, first_, second_, averages_, gradients_, sums_, scalars_;
};

}  // namespace troupe
