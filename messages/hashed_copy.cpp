#include "messages/hashed_copy.hpp"

#define XXH_STATIC_LINKING_ONLY  // the streaming state's members
#include <xxhash.h>
#ifdef TROUPE_XXHASH_DISPATCH
#include <xxh_x86dispatch.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

namespace troupe {
namespace {

// XXH3 of long inputs (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md): stripes of 64 bytes are added to eight
// accumulators, and after each block of 16 stripes the accumulators are scrambled. A block is what is copied and hashed in one pass here;
// the rest, and the end, are the library's.
constexpr std::size_t stripe_bytes = 64, block_bytes = 1024;
constexpr int secret_step = 8;        ///< bytes by which a stripe's place in the secret differs from the last one's
constexpr int scramble_offset = 128;  ///< in the secret

using Kernel = void (*)(XXH64_hash_t* accumulators, const unsigned char* secret, std::byte* to, const std::byte* from, std::size_t blocks);

#if defined(__x86_64__)
#pragma GCC diagnostic push
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 says it of its own header's "undefined" vectors
#endif
constexpr int prime32 = static_cast<int>(0x9E3779B1U);

/// `beside_cache`: written straight to memory; `to` is then aligned to 64 bytes.
template <bool beside_cache>
[[gnu::target("avx512f")]] void copy_avx512(XXH64_hash_t* accumulators, const unsigned char* secret, std::byte* to, const std::byte* from, std::size_t blocks) {
  __m512i sum = _mm512_loadu_si512(accumulators);
  for (std::size_t block = 0; block < blocks; ++block) {
    for (int stripe = 0; stripe < 16; ++stripe, from += stripe_bytes, to += stripe_bytes) {
      const __m512i data = _mm512_loadu_si512(from);
      if constexpr (beside_cache) {
        _mm512_stream_si512(reinterpret_cast<__m512i*>(to), data);
      } else {
        _mm512_storeu_si512(to, data);
      }
      const __m512i keyed = _mm512_xor_si512(data, _mm512_loadu_si512(secret + secret_step * stripe));
      const __m512i product = _mm512_mul_epu32(keyed, _mm512_srli_epi64(keyed, 32));
      sum = _mm512_add_epi64(sum, _mm512_add_epi64(product, _mm512_shuffle_epi32(data, _MM_PERM_BADC)));
    }
    const __m512i mixed = _mm512_xor_si512(_mm512_xor_si512(sum, _mm512_srli_epi64(sum, 47)), _mm512_loadu_si512(secret + scramble_offset));
    const __m512i prime = _mm512_set1_epi32(prime32);
    const __m512i high = _mm512_mul_epu32(_mm512_srli_epi64(mixed, 32), prime);
    sum = _mm512_add_epi64(_mm512_mul_epu32(mixed, prime), _mm512_slli_epi64(high, 32));
  }
  _mm512_storeu_si512(accumulators, sum);
  if constexpr (beside_cache) _mm_sfence();
}

[[gnu::target("avx2")]] inline __m256i load(const void* at) { return _mm256_loadu_si256(static_cast<const __m256i*>(at)); }

template <bool beside_cache>
[[gnu::target("avx2")]] void copy_avx2(XXH64_hash_t* accumulators, const unsigned char* secret, std::byte* to, const std::byte* from, std::size_t blocks) {
  __m256i sums[2] = {load(accumulators), load(accumulators + 4)};
  for (std::size_t block = 0; block < blocks; ++block) {
    for (int stripe = 0; stripe < 16; ++stripe) {
      for (int half = 0; half < 2; ++half, from += 32, to += 32) {
        const __m256i data = load(from);
        if constexpr (beside_cache) {
          _mm256_stream_si256(reinterpret_cast<__m256i*>(to), data);
        } else {
          _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), data);
        }
        const __m256i keyed = _mm256_xor_si256(data, load(secret + secret_step * stripe + 32 * half));
        const __m256i product = _mm256_mul_epu32(keyed, _mm256_srli_epi64(keyed, 32));
        sums[half] = _mm256_add_epi64(sums[half], _mm256_add_epi64(product, _mm256_shuffle_epi32(data, 0x4E)));
      }
    }
    const __m256i prime = _mm256_set1_epi32(prime32);
    for (int half = 0; half < 2; ++half) {
      const __m256i mixed = _mm256_xor_si256(_mm256_xor_si256(sums[half], _mm256_srli_epi64(sums[half], 47)), load(secret + scramble_offset + 32 * half));
      const __m256i high = _mm256_mul_epu32(_mm256_srli_epi64(mixed, 32), prime);
      sums[half] = _mm256_add_epi64(_mm256_mul_epu32(mixed, prime), _mm256_slli_epi64(high, 32));
    }
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(accumulators), sums[0]);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(accumulators + 4), sums[1]);
  if constexpr (beside_cache) _mm_sfence();
}
#pragma GCC diagnostic pop
#endif

std::uint64_t library_hash(const void* data, std::size_t bytes) noexcept { return XXH3_64bits(data, bytes); }

void use_blocks(XXH3_state_t& state, Kernel kernel, std::byte* to, const std::byte* from, std::size_t blocks) {
  kernel(state.acc, state.extSecret != nullptr ? state.extSecret : state.customSecret, to, from, blocks);
  state.totalLen += blocks * block_bytes;
}

/// The library's state is its own affair: a kernel is used only where it gives the library's own answer.
bool agrees(Kernel kernel) {
  alignas(64) std::array<std::byte, 4 * block_bytes + 200> from;
  alignas(64) std::array<std::byte, 4 * block_bytes> to{};
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 131 + i / 251);
  XXH3_state_t* const state = XXH3_createState();
  if (state == nullptr) return false;
  XXH3_64bits_reset(state);
  use_blocks(*state, kernel, to.data(), from.data(), 4);
  XXH3_64bits_update(state, from.data() + 4 * block_bytes, 200);
  const bool same = XXH3_64bits_digest(state) == library_hash(from.data(), from.size()) && std::memcmp(from.data(), to.data(), to.size()) == 0;
  XXH3_freeState(state);
  return same;
}

/// Null: neither can be used, the library does it all.
struct Kernels {
  Kernel through_cache = nullptr, beside_cache = nullptr;
};

Kernels choose_kernels() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && agrees(copy_avx512<false>) && agrees(copy_avx512<true>)) return {copy_avx512<false>, copy_avx512<true>};
  if (__builtin_cpu_supports("avx2") && agrees(copy_avx2<false>) && agrees(copy_avx2<true>)) return {copy_avx2<false>, copy_avx2<true>};
#endif
  return {};
}

const Kernels& kernels() {
  static const Kernels chosen = choose_kernels();
  return chosen;
}

}  // namespace

struct HashedCopy::State {
  State() : xxh(XXH3_createState()) {
    if (xxh == nullptr) throw std::bad_alloc();
    XXH3_64bits_reset(xxh);
  }
  ~State() { XXH3_freeState(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  XXH3_state_t* const xxh;
};

HashedCopy::HashedCopy(std::uint64_t bytes) : state_(std::make_unique<State>()), left_(bytes) {}
HashedCopy::~HashedCopy() = default;

/// As much of the next piece as kernels may do: the library needs the last stripe for itself. Bytes.
std::size_t HashedCopy::copy_blocks(Stores stores, std::byte* to, std::span<const std::byte> from) noexcept {
  const bool aligned = reinterpret_cast<std::uintptr_t>(to) % 64 == 0;
  const Kernel kernel = stores == Stores::beside_cache && aligned ? kernels().beside_cache : kernels().through_cache;
  const std::uint64_t left = std::exchange(left_, left_ - std::min<std::uint64_t>(left_, from.size()));
  if (kernel == nullptr || !whole_blocks_ || left <= stripe_bytes) return 0;
  const std::size_t blocks = std::min<std::uint64_t>(from.size(), left - stripe_bytes - 1) / block_bytes;
  use_blocks(*state_->xxh, kernel, to, from.data(), blocks);
  whole_blocks_ = blocks * block_bytes == from.size();
  return blocks * block_bytes;
}

void HashedCopy::copy(std::byte* to, std::span<const std::byte> from, Stores stores) noexcept {
  constexpr std::size_t in_cache = std::size_t{16} << 10;  // so that the hash finds what was just copied
  for (std::size_t done = copy_blocks(stores, to, from); done < from.size();) {
    const std::size_t count = std::min(in_cache, from.size() - done);
    std::memcpy(to + done, from.data() + done, count);
    XXH3_64bits_update(state_->xxh, to + done, count);
    done += count;
  }
}

void HashedCopy::copy_to_shared(std::byte* to, std::span<const std::byte> from, Stores stores) noexcept {
  const std::size_t done = copy_blocks(stores, to, from);
  if (done == from.size()) return;
  XXH3_64bits_update(state_->xxh, from.data() + done, from.size() - done);
  std::memcpy(to + done, from.data() + done, from.size() - done);
}

std::uint64_t HashedCopy::hash() const noexcept { return state_->xxh->totalLen == 0 ? 0 : XXH3_64bits_digest(state_->xxh); }

}  // namespace troupe
