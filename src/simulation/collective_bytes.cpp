#include "src/simulation/collective_bytes.hpp"

#include <algorithm>
#include <cstring>

namespace troupe {
namespace {

using Call = SimulatedGroup::Call;
using Calls = std::vector<const Call*>;

void all_gather(const Calls& calls) {
  for (std::size_t piece = 0; piece < calls[0]->gathers.size(); ++piece) {
    const std::size_t bytes = calls[0]->gathers[piece].bytes;
    for (std::size_t to = 0; to < calls.size(); ++to) {
      for (std::size_t from = 0; from < calls.size(); ++from) {
        if (from != to && bytes > 0) std::memcpy(calls[to]->gathers[piece].data + from * bytes, calls[from]->gathers[piece].data + from * bytes, bytes);
      }
    }
  }
}

void reduce_scatter(const Calls& calls) {
  for (std::size_t piece = 0; piece < calls[0]->reduces.size(); ++piece) {
    for (std::size_t to = 0; to < calls.size(); ++to) {
      const ReducePiece& own = calls[to]->reduces[piece];
      for (std::size_t i = 0; i < own.count; ++i) {
        float sum = 0;
        for (const Call* from : calls) sum += from->reduces[piece].input[to * own.count + i];
        own.output[i] = own.accumulate ? own.output[i] + sum : sum;
      }
    }
  }
}

template <class T>
void all_reduce_as(const Calls& calls) {
  const auto count = static_cast<std::size_t>(calls[0]->values.shape.elements());
  std::vector<T> result(count);
  for (std::size_t i = 0; i < count; ++i) {
    T value = calls[0]->values.as<T>()[i];
    for (std::size_t r = 1; r < calls.size(); ++r) {
      const T other = calls[r]->values.as<T>()[i];
      value = calls[0]->reduction == Reduction::sum ? value + other : std::max(value, other);
    }
    result[i] = value;
  }
  for (const Call* call : calls) std::copy(result.begin(), result.end(), call->values.as<T>());
}

void broadcast(const Calls& calls) {
  const std::span<const std::byte> source = calls[calls[0]->root]->output;
  for (const Call* call : calls) {
    if (call->output.data() != source.data()) std::copy(source.begin(), source.end(), call->output.begin());
  }
}

void all_to_all(const Calls& calls) {
  const std::size_t part = calls[0]->input.size() / calls.size();
  for (std::size_t to = 0; to < calls.size(); ++to) {
    for (std::size_t from = 0; from < calls.size(); ++from) {
      const auto source = calls[from]->input.subspan(to * part, part);
      std::copy(source.begin(), source.end(), calls[to]->output.begin() + static_cast<std::ptrdiff_t>(from * part));
    }
  }
}

}  // namespace

void move_collective_bytes(const Calls& calls) {
  switch (calls[0]->kind) {
    case SimulatedGroup::Kind::all_gather: return all_gather(calls);
    case SimulatedGroup::Kind::reduce_scatter: return reduce_scatter(calls);
    case SimulatedGroup::Kind::all_reduce:
      if (calls[0]->values.dtype == DType::f64) return all_reduce_as<double>(calls);
      if (calls[0]->values.dtype == DType::f32) return all_reduce_as<float>(calls);
      throw CollectiveError("all-reduce takes f32 or f64, not " + std::string(name_of(calls[0]->values.dtype)));
    case SimulatedGroup::Kind::broadcast: return broadcast(calls);
    case SimulatedGroup::Kind::all_to_all: return all_to_all(calls);
  }
}

}  // namespace troupe
