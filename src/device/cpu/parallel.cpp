#include "src/device/cpu/parallel.hpp"

#include <ATen/Parallel.h>

namespace troupe::cpu {

void in_parallel(std::int64_t count, std::int64_t grain, const std::function<void(std::int64_t, std::int64_t)>& part) {
  if (count > 0) at::parallel_for(0, count, grain, part);
}

}  // namespace troupe::cpu
