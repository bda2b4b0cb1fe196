#pragma once
#include <stdexcept>
#include <utility>

#include "src/base/result.hpp"

namespace troupe {

/// The value; where there is none, a std::runtime_error with the error's message: for what is built on a lane or a thread that tells of exceptions.
template <class T>
T take(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(result.value());
}

}  // namespace troupe
