#pragma once
// LibTorch's wheel holds Gloo and ProcessGroupGloo.hpp, but not Gloo's own headers that the latter includes. These declarations are all
// that it needs of them: objects of these types are made inside LibTorch alone.
#include <chrono>
#include <string>
#include <vector>

namespace gloo {
class Context {
 public:
  Context() = delete;
  void setTimeout(std::chrono::milliseconds timeout);
};
}  // namespace gloo
