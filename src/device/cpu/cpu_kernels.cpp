#include "src/device/cpu/cpu_kernels.hpp"

namespace troupe::cpu {

void CpuKernels::decide(Stream&, const VerdictSums* sums, double world, double expected_tag, double nominal_tokens, double max_norm, const HaltWord* halt,
                        Verdict* verdict) {
  const bool halted = halt != nullptr && halt->load() != 0;
  *verdict = decide_verdict(*sums, world, expected_tag, nominal_tokens, max_norm, halted);
}

}  // namespace troupe::cpu
