#include <cstring>
#include <stdexcept>
#include <string>

#include "src/device/cpu/arguments.hpp"
#include "src/device/cpu/cpu_kernels.hpp"
#include "src/device/cpu/parallel.hpp"
#include "src/device/cpu/vectorise.hpp"

namespace troupe::cpu {
namespace {

void check_tokens(const char* operation, const TensorView& tokens, std::int64_t vocabulary) {
  const auto* ids = tokens.as<const std::int32_t>();
  for (std::int64_t t = 0; t < tokens.shape[0]; ++t) {
    if (ids[t] >= 0 && ids[t] < vocabulary) continue;
    throw std::out_of_range(std::string(operation) + ": token " + std::to_string(ids[t]) + " at position " + std::to_string(t) + " is outside the table of " +
                            std::to_string(vocabulary) + " rows: does the tokenizer belong to the model?");
  }
}

/// Columns [first, last) of dtable, tokens in their order.
template <class T>
TROUPE_VECTORISED void scatter_columns(const std::int32_t* ids, const T* dout, Wide<T>* dtable, std::int64_t count, std::int64_t columns, std::int64_t first,
                                       std::int64_t last) {
  for (std::int64_t t = 0; t < count; ++t, dout += columns) {
    Wide<T>* row = dtable + ids[t] * columns;
#pragma GCC ivdep
    for (std::int64_t i = first; i < last; ++i) row[i] += widen(dout[i]);
  }
}

bool lookup_shapes(const TensorView& tokens, const TensorView& table, const TensorView& rows) {
  return tokens.shape.rank == 1 && tokens.dtype == DType::i32 && table.shape.rank == 2 && rows.shape == Shape{tokens.shape[0], table.shape[1]} &&
         Arguments::floating(rows.dtype);
}

}  // namespace

void CpuKernels::embedding(Stream&, TensorView tokens, TensorView table, TensorView out) {
  const Arguments arguments("embedding", "tokens [T] int32, table [V,D] and out [T,D] of one floating type",
                            {{"tokens", tokens}, {"table", table}, {"out", out}});
  arguments.require(lookup_shapes(tokens, table, out) && table.dtype == out.dtype);
  check_tokens("embedding", tokens, table.shape[0]);
  const auto* ids = tokens.as<const std::int32_t>();
  const std::size_t row = static_cast<std::size_t>(table.shape[1]) * size_of(table.dtype);
  if (row == 0) return;
  for (std::int64_t t = 0; t < tokens.shape[0]; ++t) {
    std::memcpy(out.data + static_cast<std::size_t>(t) * row, table.data + static_cast<std::size_t>(ids[t]) * row, row);
  }
}

void CpuKernels::embedding_backward(Stream& stream, TensorView tokens, TensorView dout, TensorView dtable, bool accumulate) {
  const Arguments arguments("embedding_backward", "tokens [T] int32, dout [T,D] floating, dtable [V,D] float32 or dout's (float64 beside float64)",
                            {{"tokens", tokens}, {"dout", dout}, {"dtable", dtable}});
  arguments.require(lookup_shapes(tokens, dtable, dout) && (dtable.dtype == Arguments::wide(dout.dtype) || dtable.dtype == dout.dtype));
  check_tokens("embedding_backward", tokens, dtable.shape[0]);
  if (dtable.dtype != Arguments::wide(dout.dtype)) {  // each sum is rounded once
    float* const room = scratch_.mine().take<float>(Scratch::Use::product, dtable.shape.elements());
    const TensorView sums = TensorView::contiguous(room, DType::f32, dtable.shape);
    if (accumulate) cast(stream, dtable, sums);
    embedding_backward(stream, tokens, dout, sums, accumulate);
    return cast(stream, sums, dtable);
  }
  if (!accumulate) fill(stream, dtable, 0.0);
  const std::int64_t count = tokens.shape[0], columns = dtable.shape[1];
  with_floating(dout.dtype, [&]<class T>(Type<T>) {
    in_parallel(columns, elements_a_thread / (count + 1) + 64, [&](std::int64_t first, std::int64_t last) {
      scatter_columns(tokens.as<const std::int32_t>(), dout.as<const T>(), dtable.as<Wide<T>>(), count, columns, first, last);
    });
  });
}

}  // namespace troupe::cpu
