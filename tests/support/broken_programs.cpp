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

}  // namespace

std::shared_ptr<ComputeProgram> reads_weights_after_release(std::shared_ptr<ComputeProgram> inner) { return std::make_shared<ReadsAgain>(std::move(inner)); }

}  // namespace troupe
