#include "src/device/cuda/arguments.hpp"

#include <stdexcept>
#include <string>

namespace troupe::cuda {
namespace {

bool is_contiguous(const TensorView& view) {
  if (view.shape.elements() == 0) return true;
  std::int64_t stride = 1;
  for (std::size_t i = view.shape.rank; i-- > 0;) {
    if (view.shape[i] != 1 && view.strides[i] != stride) return false;
    stride *= view.shape[i];
  }
  return true;
}

std::string describe(const Arguments::Named& argument) {
  std::string text = std::string(argument.name) + " [";
  for (std::size_t i = 0; i < argument.view.shape.rank; ++i) text += (i ? ", " : "") + std::to_string(argument.view.shape[i]);
  return text + "] " + std::string(name_of(argument.view.dtype));
}

}  // namespace

Arguments::Arguments(int index, std::string_view operation, std::string_view expected, std::initializer_list<Named> views)
    : operation_(operation), expected_(expected) {
  for (const Named& view : views) views_.at(count_++) = view;
  for (std::size_t i = 0; i < count_; ++i) {
    if (views_[i].view.device != DeviceId{DeviceKind::cuda, static_cast<std::int16_t>(index)}) refuse("views of this CUDA device");
    if (!is_contiguous(views_[i].view)) refuse("contiguous row-major views");
    if (views_[i].view.data == nullptr && views_[i].view.shape.elements() != 0) refuse("views with memory");
  }
}

void Arguments::refuse(std::string_view rule) const {
  std::string text = std::string(operation_) + ": expected " + std::string(rule) + "; found ";
  for (std::size_t i = 0; i < count_; ++i) text += (i ? ", " : "") + describe(views_[i]);
  throw std::invalid_argument(text);
}

}  // namespace troupe::cuda
