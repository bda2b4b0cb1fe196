#include "src/model/amax_joints.hpp"

#include <algorithm>
#include <cstddef>
#include <span>

namespace troupe {
namespace {

/// Places among an instruction's operands of what it writes.
std::span<const std::size_t> written_by(InstructionCode code) {
  static constexpr std::size_t zero[]{0}, one[]{1}, two[]{2}, three[]{3}, first_two[]{0, 1}, second_two[]{1, 2}, fourth_two[]{3, 4}, last_three[]{6, 7, 8};
  switch (code) {
    case InstructionCode::embedding:
    case InstructionCode::rotary:
    case InstructionCode::cross_entropy:
    case InstructionCode::rotary_backward: return zero;
    case InstructionCode::linear:
    case InstructionCode::linear_backward_input:
    case InstructionCode::copy: return one;
    case InstructionCode::linear_fp8:
    case InstructionCode::linear_fp8_backward_input:
    case InstructionCode::swiglu:
    case InstructionCode::add: return two;
    case InstructionCode::rms_norm_backward: return three;
    case InstructionCode::cast_weight_fp8: return first_two;
    case InstructionCode::rms_norm:
    case InstructionCode::cast_fp8: return second_two;
    case InstructionCode::attention:
    case InstructionCode::swiglu_backward: return fourth_two;
    case InstructionCode::attention_backward: return last_three;
    case InstructionCode::embedding_backward:
    case InstructionCode::linear_backward_weight:
    case InstructionCode::linear_fp8_backward_weight: return {};
  }
  return {};
}

bool finds_amaxes(InstructionCode code) {
  return code == InstructionCode::rms_norm_backward || code == InstructionCode::swiglu_backward || code == InstructionCode::rotary_backward;
}

/// Who wrote a buffer last: the instruction, its number in the micro-batch, and which of its results the buffer is.
struct Writer {
  Instruction* instruction = nullptr;
  std::uint32_t number = 0;
  std::size_t result = 0;
};

}  // namespace

void join_amaxes(TapePlan& plan) {
  std::uint32_t number = 0;
  for (const auto& unit : plan.forward) number += static_cast<std::uint32_t>(unit.size());
  std::vector<Writer> last(plan.buffers.size());
  for (std::size_t u = plan.backward.size(); u-- > 0;) {
    for (Instruction& i : plan.backward[u]) {
      if (i.code == InstructionCode::cast_fp8) {
        TapeBuffer& scale = plan.buffers[static_cast<std::size_t>(i.operands[2])];
        const TapeBuffer& codes = plan.buffers[static_cast<std::size_t>(i.operands[1])];
        const Writer& writer = last[static_cast<std::size_t>(i.operands[0])];
        const bool tensor = codes.scaling == Float8Scaling::tensor && !codes.powers;
        if (tensor && writer.instruction != nullptr && finds_amaxes(writer.instruction->code)) {
          std::vector<int>& amaxes = writer.instruction->amaxes;
          amaxes.resize(written_by(writer.instruction->code).size(), -1);
          if (amaxes[writer.result] < 0) {
            amaxes[writer.result] = i.operands[2];
            i.amax_found = true;
            scale.first = std::min(scale.first, writer.number);
          }
        }
      }
      const std::span<const std::size_t> written = written_by(i.code);
      for (std::size_t result = 0; result < written.size(); ++result) {
        last[static_cast<std::size_t>(i.operands[written[result]])] = {&i, number, result};
      }
      ++number;
    }
  }
}

}  // namespace troupe
