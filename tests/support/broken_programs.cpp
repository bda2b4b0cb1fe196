#include "tests/support/broken_programs.hpp"

#include <utility>

namespace troupe {
namespace {

class ReadsAgain final : public ComputeProgram {
 public:
  explicit ReadsAgain(std::shared_ptr<ComputeProgram> inner) : inner_(std::move(inner)) {}
  void forward(Stream& on, Step step, Micro micro, Unit unit, std::span<const std::byte> batch, std::span<const std::byte> weights) override {
    if (unit.value() > 1) inner_->forward(on, step, micro, Unit{unit.value() - 1}, batch, before_);  // as if it kept a pointer
    inner_->forward(on, step, micro, unit, batch, weights);
    before_ = weights;
  }
  void backward(Stream& on, Step step, Micro micro, Unit unit, std::span<const std::byte> batch, std::span<const std::byte> weights,
                std::span<std::byte> gradients) override {
    inner_->backward(on, step, micro, unit, batch, weights, gradients);
  }

 private:
  std::shared_ptr<ComputeProgram> inner_;
  std::span<const std::byte> before_;
};

class ForgetsASum final : public ShardProgram {
 public:
  explicit ForgetsASum(std::shared_ptr<ShardProgram> inner) : inner_(std::move(inner)) {}
  [[nodiscard]] std::size_t weights_bytes(Unit unit) const override { return inner_->weights_bytes(unit); }
  [[nodiscard]] std::size_t gradients_bytes(Unit unit) const override { return inner_->gradients_bytes(unit); }
  void scales(Stream& on, Unit unit, Communicator& dp_shard) override { inner_->scales(on, unit, dp_shard); }
  void gather(Stream& on, Unit unit, std::span<std::byte> weights, Communicator& dp_shard) override { inner_->gather(on, unit, weights, dp_shard); }
  void accumulate(Stream& on, Micro micro, Unit unit, std::span<std::byte> gradients) override { inner_->accumulate(on, micro, unit, gradients); }
  void reduce(Stream& on, Micro micro, Unit unit, std::span<std::byte> gradients, Communicator& dp_shard) override {
    inner_->reduce(on, micro, unit, gradients, dp_shard);
  }
  void all_reduce(Stream& on, Unit unit, Communicator& dp_replicate) override {
    if (unit.value() > 0) inner_->all_reduce(on, unit, dp_replicate);
  }
  void verdict(Stream& on, EpochId epoch, Step step, Communicator& world) override { inner_->verdict(on, epoch, step, world); }
  void unit_verdict(Stream& on, EpochId epoch, Step step, Unit unit, Communicator& world) override { inner_->unit_verdict(on, epoch, step, unit, world); }
  void optimize(Stream& on, Step step, Unit unit, double learning_rate) override { inner_->optimize(on, step, unit, learning_rate); }
  [[nodiscard]] StepNumbers numbers() const override { return inner_->numbers(); }

 private:
  std::shared_ptr<ShardProgram> inner_;
};

}  // namespace

std::shared_ptr<ShardProgram> forgets_a_sum_over_replicas(std::shared_ptr<ShardProgram> inner) { return std::make_shared<ForgetsASum>(std::move(inner)); }

std::shared_ptr<ComputeProgram> reads_weights_after_release(std::shared_ptr<ComputeProgram> inner) { return std::make_shared<ReadsAgain>(std::move(inner)); }

}  // namespace troupe
