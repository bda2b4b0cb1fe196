#include "src/device/cpu/attention_blocks.hpp"

#include <algorithm>
#include <cmath>

#include "src/device/cpu/block_product.hpp"
#include "src/device/cpu/exponential.hpp"
#include "src/device/cpu/parallel.hpp"
#include "src/device/cpu/vectorise.hpp"

namespace troupe::cpu {
namespace {

constexpr std::int64_t block = 64;  // queries and keys of a block

/// Extents; `padded` sequence and `room` for a head are whole numbers of blocks and vectors, filled with zeros.
struct Extents {
  std::int64_t batch, sequence, heads, kv_heads, width, group, padded, room;
  Extents(const TensorView& q, const TensorView& k)
      : batch(q.shape[0]),
        sequence(q.shape[1]),
        heads(q.shape[2]),
        kv_heads(k.shape[2]),
        width(q.shape[3]),
        group(heads / kv_heads),
        padded((sequence + block - 1) / block * block),
        room((width + 15) / 16 * 16) {}
  [[nodiscard]] std::int64_t matrix() const { return padded * room; }
  [[nodiscard]] std::int64_t score_stride() const { return padded + 16; }  ///< no power of two: rows would share cache sets
  [[nodiscard]] std::int64_t query_head(std::int64_t b, std::int64_t h) const { return (b * sequence * heads + h) * width; }
  [[nodiscard]] std::int64_t key_head(std::int64_t b, std::int64_t h) const { return (b * sequence * kv_heads + h) * width; }
};

/// [S] of one sequence; null: all keys from 0 on are seen.
const std::int32_t* starts_of(const TensorView& starts, const Extents& e, std::int64_t b) {
  return starts.data == nullptr ? nullptr : starts.as<const std::int32_t>() + b * e.sequence;
}

/// One head of a [S, heads, d] tensor into rows [padded, room]; `stride` between tokens.
template <class T>
TROUPE_VECTORISED void load_rows(const T* from, std::int64_t stride, const Extents& e, float factor, float* to) {
  for (std::int64_t s = 0; s < e.padded; ++s, to += e.room) {
    const std::int64_t valid = s < e.sequence ? e.width : 0;
#pragma GCC ivdep
    for (std::int64_t d = 0; d < valid; ++d) to[d] = widen(from[s * stride + d]) * factor;
    for (std::int64_t d = valid; d < e.room; ++d) to[d] = 0;
  }
}

/// Rows [padded, room] into their transpose as panels of 32 tokens: [padded / 32, room, 32].
TROUPE_VECTORISED void transpose_rows(const float* rows, const Extents& e, float* panels) {
  for (std::int64_t s = 0; s < e.padded; ++s) {
    float* to = panels + s / block_panel * e.room * block_panel + s % block_panel;
    for (std::int64_t d = 0; d < e.room; ++d) to[d * block_panel] = rows[s * e.room + d];
  }
}

template <class T>
TROUPE_VECTORISED void store_rows(const float* from, const Extents& e, T* to, std::int64_t stride) {
  for (std::int64_t s = 0; s < e.sequence; ++s) {
#pragma GCC ivdep
    for (std::int64_t d = 0; d < e.width; ++d) narrow(from[s * e.room + d], to[s * stride + d]);
  }
}

/// Scores become exp(score − top) with zeros before `begin` and from `valid` on; returns top, and their sum through `sum`.
TROUPE_VECTORISED float soften_row(float* scores, std::int64_t begin, std::int64_t valid, std::int64_t columns, float& sum) {
  float tops[sum_parts], parts[sum_parts] = {};
  for (std::int64_t j = 0; j < begin; ++j) scores[j] = scores[begin];
  for (std::int64_t i = 0; i < sum_parts; ++i) tops[i] = scores[0];
  std::int64_t j = 0;
  for (; j + sum_parts <= valid; j += sum_parts) {
    for (std::int64_t i = 0; i < sum_parts; ++i) tops[i] = scores[j + i] > tops[i] ? scores[j + i] : tops[i];
  }
  for (; j < valid; ++j) tops[0] = scores[j] > tops[0] ? scores[j] : tops[0];
  float top = tops[0];
  for (std::int64_t i = 1; i < sum_parts; ++i) top = tops[i] > top ? tops[i] : top;
#pragma GCC ivdep
  for (j = 0; j < valid; ++j) scores[j] = exponential(scores[j] - top);
  for (j = valid; j < columns; ++j) scores[j] = 0;
  for (j = 0; j < begin; ++j) scores[j] = 0;
  for (j = 0; j < columns; j += sum_parts) {  // columns: a multiple of 16
    for (std::int64_t i = 0; i < sum_parts; ++i) parts[i] += scores[j + i];
  }
  sum = sum_of(parts);
  return top;
}

template <class T>
TROUPE_VECTORISED void store_scaled(const float* from, float factor, T* to, std::int64_t count) {
#pragma GCC ivdep
  for (std::int64_t d = 0; d < count; ++d) narrow(from[d] * factor, to[d]);
}

/// The heads of a group over one key head.
template <class T>
void forward_group(const TensorView& q, const TensorView& k, const TensorView& v, double scale, const TensorView& out, const TensorView& lse, const Extents& e,
                   const std::int32_t* starts, std::int64_t b, std::int64_t head, Scratch& scratch) {
  float* keys = scratch.take<float>(Scratch::Use::left, 4 * e.matrix() + block * (e.score_stride() + e.room));
  float *key_panels = keys + e.matrix(), *values = key_panels + e.matrix(), *queries = values + e.matrix();
  float *scores = queries + e.matrix(), *sums = scores + block * e.score_stride();
  load_rows(k.as<const T>() + e.key_head(b, head), e.kv_heads * e.width, e, 1.0F, keys);
  transpose_rows(keys, e, key_panels);
  load_rows(v.as<const T>() + e.key_head(b, head), e.kv_heads * e.width, e, 1.0F, values);
  for (std::int64_t h = head * e.group; h < (head + 1) * e.group; ++h) {
    load_rows(q.as<const T>() + e.query_head(b, h), e.heads * e.width, e, static_cast<float>(scale), queries);
    for (std::int64_t first = 0; first < e.padded; first += block) {
      const std::int64_t columns = first + block;  // keys that any of these queries may see
      block_product({queries + first * e.room, e.room, 1}, {key_panels, e.room * block_panel, block_panel}, block, e.room, columns, scores, e.score_stride(),
                    false);
      float row_sums[block];
      const std::int64_t rows = std::min(block, e.sequence - first);
      for (std::int64_t i = 0; i < rows; ++i) {
        const float top = soften_row(scores + i * e.score_stride(), starts == nullptr ? 0 : starts[first + i], first + i + 1, columns, row_sums[i]);
        lse.as<float>()[(b * e.heads + h) * e.sequence + first + i] = top + std::log(row_sums[i]);
      }
      block_product({scores, e.score_stride(), 1}, {values, block_panel, e.room}, block, columns, e.room, sums, e.room, false);
      for (std::int64_t i = 0; i < rows; ++i) {
        store_scaled(sums + i * e.room, 1.0F / row_sums[i], out.as<T>() + e.query_head(b, h) + (first + i) * e.heads * e.width, e.width);
      }
    }
  }
}

/// p = exp(score × scale − lse), ds = p (dp − along) scale; overwrite scores and dp. Zero above the diagonal, in padded rows, and for keys (the first of
/// the block is `key`) before the rows' `starts`.
TROUPE_VECTORISED void differentiate(float* scores, float* products, const float* lse, const float* along, float scale, std::int64_t rows, bool diagonal,
                                     const std::int32_t* starts, std::int64_t key) {
  for (std::int64_t i = 0; i < block; ++i, scores += block, products += block) {
    const std::int64_t valid = i >= rows ? 0 : diagonal ? i + 1 : block;
    const std::int64_t begin = starts == nullptr || i >= rows ? 0 : std::clamp<std::int64_t>(starts[i] - key, 0, valid);
    const float log_sum = i < rows ? lse[i] : 0.0F, a = along[i];
    for (std::int64_t j = 0; j < begin; ++j) scores[j] = products[j] = 0;
#pragma GCC ivdep
    for (std::int64_t j = begin; j < valid; ++j) {
      const float p = exponential(scores[j] * scale - log_sum);
      scores[j] = p;
      products[j] = p * (products[j] - a) * scale;
    }
    for (std::int64_t j = valid; j < block; ++j) scores[j] = products[j] = 0;
  }
}

TROUPE_VECTORISED void dot_rows(const float* a, const float* b, const Extents& e, float* result) {
  for (std::int64_t s = 0; s < e.padded; ++s, a += e.room, b += e.room) {
    float parts[sum_parts] = {};
    for (std::int64_t d = 0; d < e.room; d += sum_parts) {
      for (std::int64_t i = 0; i < sum_parts; ++i) parts[i] += a[d + i] * b[d + i];
    }
    result[s] = sum_of(parts);
  }
}

/// One key head's matrices [padded, room] and one query head's, for the backward.
struct BackwardRoom {
  float *keys, *key_panels, *value_panels, *dkeys, *dvalues, *queries, *dout, *dqueries, *along, *scores, *products;
  BackwardRoom(const Extents& e, Scratch& scratch) {
    float* next = scratch.take<float>(Scratch::Use::left, 8 * e.matrix() + e.padded + 2 * block * block);
    for (float** matrix : {&keys, &key_panels, &value_panels, &dkeys, &dvalues, &queries, &dout, &dqueries}) {
      *matrix = next;
      next += e.matrix();
    }
    along = next;
    scores = along + e.padded;
    products = scores + block * block;
  }
};

/// Adds one query head's part to dkeys and dvalues, and makes its dqueries.
void backward_head(const BackwardRoom& room, const float* lse, float scale, const Extents& e, const std::int32_t* starts) {
  std::fill_n(room.dqueries, e.matrix(), 0.0F);
  for (std::int64_t key = 0; key < e.padded; key += block) {
    const std::int64_t panels = key * e.room;  // the block's panels start here
    for (std::int64_t query = key; query < e.padded; query += block) {
      const std::int64_t at = query * e.room;
      block_product({room.queries + at, e.room, 1}, {room.key_panels + panels, e.room * block_panel, block_panel}, block, e.room, block, room.scores, block,
                    false);
      block_product({room.dout + at, e.room, 1}, {room.value_panels + panels, e.room * block_panel, block_panel}, block, e.room, block, room.products, block,
                    false);
      differentiate(room.scores, room.products, lse + query, room.along + query, scale, std::min(block, e.sequence - query), query == key,
                    starts == nullptr ? nullptr : starts + query, key);
      block_product({room.scores, 1, block}, {room.dout + at, block_panel, e.room}, block, block, e.room, room.dvalues + panels, e.room, true);
      block_product({room.products, 1, block}, {room.queries + at, block_panel, e.room}, block, block, e.room, room.dkeys + panels, e.room, true);
      block_product({room.products, block, 1}, {room.keys + panels, block_panel, e.room}, block, block, e.room, room.dqueries + at, e.room, true);
    }
  }
}

}  // namespace

void attention_blocks(const TensorView& q, const TensorView& k, const TensorView& v, double scale, const TensorView& out, const TensorView& lse,
                      const TensorView& starts, ScratchOfThreads& scratch) {
  const Extents e(q, k);
  in_parallel(e.batch * e.kv_heads, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t n = first; n < last; ++n) {
      const std::int64_t b = n / e.kv_heads, head = n % e.kv_heads;
      if (q.dtype == DType::bf16) {
        forward_group<BFloat16>(q, k, v, scale, out, lse, e, starts_of(starts, e, b), b, head, scratch.mine());
      } else {
        forward_group<float>(q, k, v, scale, out, lse, e, starts_of(starts, e, b), b, head, scratch.mine());
      }
    }
  });
}

namespace {

template <class T>
void backward_group(const TensorView& dout, const TensorView& q, const TensorView& k, const TensorView& v, const TensorView& out, const TensorView& lse,
                    double scale, const TensorView& dq, const TensorView& dk, const TensorView& dv, const Extents& e, const std::int32_t* starts,
                    std::int64_t b, std::int64_t head, Scratch& scratch) {
  const BackwardRoom room(e, scratch);
  const std::int64_t key_stride = e.kv_heads * e.width, query_stride = e.heads * e.width, key_at = e.key_head(b, head);
  load_rows(v.as<const T>() + key_at, key_stride, e, 1.0F, room.keys);
  transpose_rows(room.keys, e, room.value_panels);
  load_rows(k.as<const T>() + key_at, key_stride, e, 1.0F, room.keys);
  transpose_rows(room.keys, e, room.key_panels);
  std::fill_n(room.dkeys, e.matrix(), 0.0F);
  std::fill_n(room.dvalues, e.matrix(), 0.0F);
  for (std::int64_t h = head * e.group; h < (head + 1) * e.group; ++h) {
    const std::int64_t at = e.query_head(b, h);
    load_rows(dout.as<const T>() + at, query_stride, e, 1.0F, room.dout);
    load_rows(out.as<const T>() + at, query_stride, e, 1.0F, room.queries);
    dot_rows(room.dout, room.queries, e, room.along);
    load_rows(q.as<const T>() + at, query_stride, e, 1.0F, room.queries);
    backward_head(room, lse.as<const float>() + (b * e.heads + h) * e.sequence, static_cast<float>(scale), e, starts);
    store_rows(room.dqueries, e, dq.as<T>() + at, query_stride);
  }
  store_rows(room.dkeys, e, dk.as<T>() + key_at, key_stride);
  store_rows(room.dvalues, e, dv.as<T>() + key_at, key_stride);
}

}  // namespace

void attention_blocks_backward(const TensorView& dout, const TensorView& q, const TensorView& k, const TensorView& v, const TensorView& out,
                               const TensorView& lse, double scale, const TensorView& dq, const TensorView& dk, const TensorView& dv, const TensorView& starts,
                               ScratchOfThreads& scratch) {
  const Extents e(q, k);
  in_parallel(e.batch * e.kv_heads, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t n = first; n < last; ++n) {
      const std::int64_t b = n / e.kv_heads, head = n % e.kv_heads;
      if (q.dtype == DType::bf16) {
        backward_group<BFloat16>(dout, q, k, v, out, lse, scale, dq, dk, dv, e, starts_of(starts, e, b), b, head, scratch.mine());
      } else {
        backward_group<float>(dout, q, k, v, out, lse, scale, dq, dk, dv, e, starts_of(starts, e, b), b, head, scratch.mine());
      }
    }
  });
}

}  // namespace troupe::cpu
