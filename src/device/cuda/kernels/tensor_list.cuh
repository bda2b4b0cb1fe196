#pragma once
// Many tensors in one launch: their descriptions travel as a kernel parameter, blocks find theirs by counting chunks.
#include <cstddef>
#include <cstdint>

namespace troupe::cuda {

/// Up to `room` tensors; `first[i]` is the number of chunks before tensor i.
template <class Tensor, int room>
struct TensorList {
  static constexpr int capacity = room;
  Tensor tensor[room];
  std::int32_t first[room + 1];
  int size = 0;

  [[nodiscard]] __device__ int of_chunk(std::int32_t chunk) const {
    int low = 0, high = size - 1;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (first[middle] <= chunk) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }
};

/// Calls launch(list, chunks, index of the first tensor) for groups of tensors that fit a list. Empty tensors have no chunk.
template <class List, class Tensor, class Launch>
void in_lists(const Tensor* tensors, std::size_t count, std::int64_t chunk_elements, Launch launch) {
  for (std::size_t begin = 0; begin < count; begin += List::capacity) {
    List list;
    std::int64_t chunks = 0;
    for (std::size_t i = begin; i < count && i < begin + List::capacity; ++i) {
      list.first[list.size] = static_cast<std::int32_t>(chunks);
      list.tensor[list.size++] = tensors[i];
      chunks += (tensors[i].elements + chunk_elements - 1) / chunk_elements;
    }
    list.first[list.size] = static_cast<std::int32_t>(chunks);
    launch(list, chunks, begin);
  }
}

}  // namespace troupe::cuda
