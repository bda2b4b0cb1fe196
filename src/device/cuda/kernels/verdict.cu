#include "src/device/cuda/kernels/element.hpp"
#include "src/device/cuda/kernels/verdict.hpp"

namespace troupe::cuda {
namespace {

__global__ void decide_kernel(const Decide call) {
  const VerdictSums sums = *call.sums;
  const bool halted = call.halt != nullptr && *reinterpret_cast<const volatile std::uint32_t*>(call.halt) != 0;
  Verdict verdict;
  verdict.tokens = sums.tokens;
  verdict.bad = sums.bad;
  verdict.activations = sums.activations;
  verdict.weights = sums.weights;
  if (!halted && sums.tag == call.world * call.expected_tag) {
    const double rescale = sums.tokens > 0 ? call.nominal_tokens / sums.tokens : 0.0;
    verdict.grad_norm = sqrt(sums.grad_square) * rescale;
    verdict.mean_loss = sums.tokens > 0 ? sums.loss / sums.tokens : 0.0;
    if (sums.bad > 0 || !isfinite(sums.grad_square)) {
      verdict.outcome = VerdictOutcome::skip;
    } else {
      const double clip = call.max_norm > 0 && isfinite(call.max_norm) ? fmin(1.0, call.max_norm / (verdict.grad_norm + 1e-6)) : 1.0;
      verdict.gradient_factor = static_cast<float>(clip * rescale);
      verdict.outcome = VerdictOutcome::commit;
    }
  }
  *call.verdict = verdict;
}

}  // namespace

void decide(cudaStream_t stream, const Decide& call) {
  static_assert(sizeof(HaltWord) == sizeof(std::uint32_t));
  decide_kernel<<<1, 1, 0, stream>>>(call);
  check_launch("decide");
}

}  // namespace troupe::cuda
