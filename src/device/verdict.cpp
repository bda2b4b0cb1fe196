#include "src/device/verdict.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {

Verdict decide_verdict(const VerdictSums& sums, double world, double expected_tag, double nominal_tokens, double max_norm, bool halted) noexcept {
  Verdict verdict;
  verdict.tokens = sums.tokens;
  verdict.bad = sums.bad;
  verdict.activations = sums.activations;
  verdict.weights = sums.weights;
  if (halted || sums.tag != world * expected_tag) return verdict;
  // Σg² is of gradients divided by the nominal count; a batch with ignored targets has fewer. No valid target at all: zero gradients.
  const double rescale = sums.tokens > 0 ? nominal_tokens / sums.tokens : 0.0;
  verdict.grad_norm = std::sqrt(sums.grad_square) * rescale;
  verdict.mean_loss = sums.tokens > 0 ? sums.loss / sums.tokens : 0.0;
  if (sums.bad > 0 || !std::isfinite(sums.grad_square)) {
    verdict.outcome = VerdictOutcome::skip;
    return verdict;
  }
  // torch.nn.utils.clip_grad_norm_: coefficient max_norm / (norm + 1e-6), at most 1.
  const double clip = max_norm > 0 && std::isfinite(max_norm) ? std::min(1.0, max_norm / (verdict.grad_norm + 1e-6)) : 1.0;
  verdict.gradient_factor = static_cast<float>(clip * rescale);
  verdict.outcome = VerdictOutcome::commit;
  return verdict;
}

}  // namespace troupe
