#pragma once
#include "src/device/cuda/kernels/element.hpp"

namespace troupe::cuda {

/// out[t] = table[tokens[t]]. An id outside the table gives a row of NaN, which ends as a bad loss: the step is not committed.
/// tokens int32 [count]; table [vocabulary, columns], out [count, columns] of one type, fp32 or bf16.
void embedding(cudaStream_t stream, const std::int32_t* tokens, std::int64_t count, const void* table, std::int64_t vocabulary, std::int64_t columns,
               Element type, void* out);

/// dtable[v] (+)= Σ dout[t] over the t with tokens[t] = v, added in an order that the tokens alone decide: repeats bit for bit (K13). Ids outside
/// the table are ignored. Sorts the tokens, adds those that occur often in groups of 32 side by side, then writes each row of dtable once; 4 bytes
/// an element of dtable (8 if it accumulates into rows that occur), and dout's.
struct EmbeddingBackward {
  const std::int32_t* tokens;  ///< [count]
  const void* dout;            ///< [count, columns]
  Element type;                ///< of dout: fp32 or bf16
  float* dtable;               ///< [vocabulary, columns]
  bool accumulate;
  std::int64_t count, vocabulary, columns;
  void* scratch;                ///< embedding_backward_scratch(count, columns) bytes, 256-byte aligned
  void* bf16_dtable = nullptr;  ///< unless null: in place of dtable, each sum rounded once; 2 bytes an element
};
void embedding_backward(cudaStream_t stream, const EmbeddingBackward& call);
[[nodiscard]] std::size_t embedding_backward_scratch(std::int64_t count, std::int64_t columns);

}  // namespace troupe::cuda
