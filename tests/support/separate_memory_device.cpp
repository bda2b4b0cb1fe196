#include "tests/support/separate_memory_device.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

#include "src/device/fused_kernels.hpp"

namespace troupe::test {
namespace {

constexpr std::size_t page = 4096;

std::byte* map(std::size_t bytes, int access) {
  void* const begin = mmap(nullptr, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (begin == MAP_FAILED) throw std::bad_alloc();
  return static_cast<std::byte*>(begin);
}

class Part final : public Buffer {
 public:
  explicit Part(std::span<std::byte> bytes) : bytes_(bytes) {}
  [[nodiscard]] std::span<std::byte> bytes() const noexcept override { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

/// Hands each call on with the real addresses, once the stream's copies are done. What a GPU does in one go is done here one after the other, to
/// the same bits; an amax that is said to be there is believed.
class ReachingKernels final : public Kernels, public FusedKernels {
 public:
  ReachingKernels(SeparateMemoryDevice& device, Kernels& inner) : device_(device), k_(inner) {}

  void linear(Stream& s, TensorView x, TensorView w, TensorView y) override { k_.linear(at(s), at(x), at(w), at(y)); }
  void linear_backward_input(Stream& s, TensorView dy, TensorView w, TensorView dx, bool accumulate) override {
    k_.linear_backward_input(at(s), at(dy), at(w), at(dx), accumulate);
  }
  void linear_backward_weight(Stream& s, TensorView dy, TensorView x, TensorView dw, bool accumulate) override {
    k_.linear_backward_weight(at(s), at(dy), at(x), at(dw), accumulate);
  }
  void amax(Stream& s, TensorView x, float* amax, bool accumulate) override { k_.amax(at(s), at(x), at(amax), accumulate); }
  void scale_from_amax(Stream& s, const float* amax, DType dtype, float* scale) override { k_.scale_from_amax(at(s), at(amax), dtype, at(scale)); }
  void quantize(Stream& s, TensorView x, const float* scale, TensorView out, Float8Counts* counts) override {
    k_.quantize(at(s), at(x), at(scale), at(out), at(counts));
  }
  void quantize_by_powers(Stream& s, TensorView x, Float8Scaling by, TensorView scales, TensorView out, Float8Counts* counts) override {
    k_.quantize_by_powers(at(s), at(x), by, at(scales), at(out), at(counts));
  }
  void linear_fp8(Stream& s, Float8View x, Float8View w, TensorView y) override { k_.linear_fp8(at(s), at(x), at(w), at(y)); }
  void linear_fp8_backward_input(Stream& s, Float8View dy, Float8View w, TensorView dx, bool accumulate) override {
    k_.linear_fp8_backward_input(at(s), at(dy), at(w), at(dx), accumulate);
  }
  void linear_fp8_backward_weight(Stream& s, Float8View dy, Float8View x, TensorView dw, bool accumulate) override {
    k_.linear_fp8_backward_weight(at(s), at(dy), at(x), at(dw), accumulate);
  }
  void rms_norm(Stream& s, TensorView x, TensorView w, double eps, TensorView y, TensorView rstd) override {
    k_.rms_norm(at(s), at(x), at(w), eps, at(y), at(rstd));
  }
  void rms_norm_backward(Stream& s, TensorView dy, TensorView x, TensorView w, TensorView rstd, TensorView dx, bool accumulate_dx, TensorView dw,
                         bool accumulate_dw) override {
    k_.rms_norm_backward(at(s), at(dy), at(x), at(w), at(rstd), at(dx), accumulate_dx, at(dw), accumulate_dw);
  }
  void rotary(Stream& s, TensorView x, TensorView table, bool inverse) override { k_.rotary(at(s), at(x), at(table), inverse); }
  void attention(Stream& s, TensorView q, TensorView k, TensorView v, double scale, TensorView out, TensorView lse, TensorView starts) override {
    k_.attention(at(s), at(q), at(k), at(v), scale, at(out), at(lse), starts.data == nullptr ? starts : at(starts));
  }
  void attention_backward(Stream& s, TensorView dout, TensorView q, TensorView k, TensorView v, TensorView out, TensorView lse, double scale, TensorView dq,
                          TensorView dk, TensorView dv, TensorView starts) override {
    k_.attention_backward(at(s), at(dout), at(q), at(k), at(v), at(out), at(lse), scale, at(dq), at(dk), at(dv), starts.data == nullptr ? starts : at(starts));
  }
  void swiglu(Stream& s, TensorView gate, TensorView up, TensorView out) override { k_.swiglu(at(s), at(gate), at(up), at(out)); }
  void swiglu_backward(Stream& s, TensorView dout, TensorView gate, TensorView up, TensorView dgate, TensorView dup) override {
    k_.swiglu_backward(at(s), at(dout), at(gate), at(up), at(dgate), at(dup));
  }
  void add(Stream& s, TensorView a, TensorView b, TensorView out) override { k_.add(at(s), at(a), at(b), at(out)); }
  void embedding(Stream& s, TensorView tokens, TensorView table, TensorView out) override { k_.embedding(at(s), at(tokens), at(table), at(out)); }
  void embedding_backward(Stream& s, TensorView tokens, TensorView dout, TensorView dtable, bool accumulate) override {
    k_.embedding_backward(at(s), at(tokens), at(dout), at(dtable), accumulate);
  }
  void cross_entropy(Stream& s, TensorView logits, TensorView labels, double grad_scale, VerdictSums* sums) override {
    k_.cross_entropy(at(s), at(logits), at(labels), grad_scale, at(sums));
  }
  void fill(Stream& s, TensorView x, double value) override { k_.fill(at(s), at(x), value); }
  void cast(Stream& s, TensorView from, TensorView to) override { k_.cast(at(s), at(from), at(to)); }
  void sum_squares(Stream& s, TensorView x, double* sum) override { k_.sum_squares(at(s), at(x), at(sum)); }
  void decide(Stream& s, const VerdictSums* sums, double world, double expected_tag, double nominal_tokens, double max_norm, const HaltWord* halt,
              Verdict* verdict) override {
    k_.decide(at(s), at(sums), world, expected_tag, nominal_tokens, max_norm, at(halt), at(verdict));
  }
  void adamw(Stream& s, TensorView parameter, TensorView gradient, TensorView first, TensorView second, std::int64_t* count, const AdamWStep& step,
             const Verdict* verdict) override {
    k_.adamw(at(s), at(parameter), at(gradient), at(first), at(second), at(count), step, at(verdict));
  }
  void average(Stream& s, TensorView parameter, TensorView average, double decay, const Verdict* verdict) override {
    k_.average(at(s), at(parameter), at(average), decay, at(verdict));
  }

  void cast_fp8(Stream& s, TensorView x, const CastTarget& to) override {
    amax(s, x, to.amax, false);
    cast_fp8_with_amax(s, x, to);
  }
  void cast_fp8_with_amax(Stream& s, TensorView x, const CastTarget& to) override {
    scale_from_amax(s, to.amax, to.codes.dtype, to.scale);
    quantize(s, x, to.scale, to.codes, nullptr);
  }
  void rms_norm_cast(Stream& s, TensorView x, TensorView w, double eps, TensorView y, bool, TensorView rstd, const CastTarget& to) override {
    rms_norm(s, x, w, eps, y, rstd);
    cast_fp8(s, y, to);
  }
  void swiglu_cast(Stream& s, TensorView gate, TensorView up, TensorView out, const CastTarget& to) override {
    swiglu(s, gate, up, out);
    cast_fp8(s, out, to);
  }
  void linear_fp8_add(Stream& s, Float8View x, Float8View w, TensorView residual, TensorView out) override {
    linear_fp8(s, x, w, out);
    add(s, residual, out, out);
  }
  void rms_norm_backward_amax(Stream& s, TensorView dy, TensorView x, TensorView w, TensorView rstd, TensorView dx, bool accumulate_dx, TensorView dw,
                              bool accumulate_dw, float* found) override {
    rms_norm_backward(s, dy, x, w, rstd, dx, accumulate_dx, dw, accumulate_dw);
    amax(s, dx, found, false);
  }
  void swiglu_backward_amax(Stream& s, TensorView dout, TensorView gate, TensorView up, TensorView dgate, TensorView dup, float* of_gate,
                            float* of_up) override {
    swiglu_backward(s, dout, gate, up, dgate, dup);
    if (of_gate != nullptr) amax(s, dgate, of_gate, false);
    if (of_up != nullptr) amax(s, dup, of_up, false);
  }
  void rotary_amax(Stream& s, TensorView x, TensorView table, bool inverse, float* found) override {
    rotary(s, x, table, inverse);
    amax(s, x, found, false);
  }
  void adamw_all(Stream& s, std::span<const AdamWShard> shards, const Verdict* verdict) override {
    for (const AdamWShard& shard : shards) {
      adamw(s, shard.parameter, shard.gradient, shard.first, shard.second, shard.count, shard.step, verdict);
      if (shard.amax != nullptr && at(verdict)->outcome == VerdictOutcome::commit) amax(s, shard.parameter, shard.amax, false);
    }
  }
  void copy_shards(Stream& s, std::span<const ShardCopy> shards, Float8Counts* counts) override {
    for (const ShardCopy& shard : shards) {
      if (shard.scale != nullptr) {
        quantize(s, shard.from, shard.scale, shard.to, counts);
      } else {
        cast(s, shard.from, shard.to);
      }
    }
  }
  void scales_from_amaxes(Stream& s, const float* amaxes, DType dtype, float* scales, std::size_t count) override {
    for (std::size_t i = 0; i < count; ++i) scale_from_amax(s, amaxes + i, dtype, scales + i);
  }

 private:
  [[nodiscard]] Stream& at(Stream& stream) const {
    device_.wait(stream);
    return stream;
  }
  [[nodiscard]] TensorView at(TensorView view) const {
    if (view.bytes() != 0) view.data = device_.reach(view.data);
    return view;
  }
  [[nodiscard]] Float8View at(Float8View view) const { return {at(view.data), at(view.scale), view.scaling}; }
  template <class T>
  [[nodiscard]] T* at(T* pointer) const {
    return pointer == nullptr ? nullptr : reinterpret_cast<T*>(device_.reach(pointer));
  }
  SeparateMemoryDevice& device_;
  Kernels& k_;
};

}  // namespace

SeparateMemoryDevice::SeparateMemoryDevice(std::unique_ptr<Device> inner, std::size_t bytes)
    : inner_(std::move(inner)),
      kernels_(std::make_unique<ReachingKernels>(*this, inner_->kernels())),
      addresses_{map(bytes, PROT_NONE), bytes},
      real_{map(bytes, PROT_READ | PROT_WRITE), bytes},
      pinned_{map(bytes, PROT_READ | PROT_WRITE), bytes} {}

SeparateMemoryDevice::~SeparateMemoryDevice() {
  for (const Region& region : {addresses_, real_, pinned_}) munmap(region.begin, region.size);
}

std::unique_ptr<Buffer> SeparateMemoryDevice::allocate(std::size_t bytes, Placement placement) {
  const std::lock_guard lock(mutex_);
  const Region& region = placement == Placement::device ? addresses_ : pinned_;
  std::size_t& used = placement == Placement::device ? used_ : pinned_used_;
  if (bytes > region.size - used) throw std::bad_alloc();
  const std::span<std::byte> part{region.begin + used, bytes};
  used = std::min(region.size, used + (bytes + page - 1) / page * page);
  return std::make_unique<Part>(part);
}

std::byte* SeparateMemoryDevice::reach(const void* address) const {
  auto* const p = const_cast<std::byte*>(static_cast<const std::byte*>(address));
  if (addresses_.holds(p)) return real_.begin + (p - addresses_.begin);
  if (pinned_.holds(p)) return p;
  throw std::logic_error("a kernel was given memory that is neither the device's nor pinned");
}

void SeparateMemoryDevice::upload(Stream& stream, std::span<const std::byte> from, std::span<std::byte> to) {
  if (from.size() != to.size()) throw std::invalid_argument("upload of " + std::to_string(from.size()) + " bytes into " + std::to_string(to.size()));
  if (from.empty()) return;
  if (!addresses_.holds(to.data()) || addresses_.holds(from.data())) throw std::logic_error("upload: from the host into the device's memory, please");
  put(stream, {from.data(), reach(to.data()), from.size()});
}

void SeparateMemoryDevice::download(Stream& stream, std::span<const std::byte> from, std::span<std::byte> to) {
  if (from.size() != to.size()) throw std::invalid_argument("download of " + std::to_string(from.size()) + " bytes into " + std::to_string(to.size()));
  if (from.empty()) return;
  if (!addresses_.holds(from.data()) || addresses_.holds(to.data())) throw std::logic_error("download: from the device's memory into the host's, please");
  put(stream, {reach(from.data()), to.data(), from.size()});
}

void SeparateMemoryDevice::put(Stream& stream, Copy copy) {
  const std::lock_guard lock(mutex_);
  copies_[&stream].push_back(copy);
}

void SeparateMemoryDevice::wait(Stream& stream) {
  const std::lock_guard lock(mutex_);
  const auto found = copies_.find(&stream);
  if (found == copies_.end()) return;
  for (const Copy& copy : found->second) std::memcpy(copy.to, copy.from, copy.bytes);
  copies_.erase(found);
}

std::size_t SeparateMemoryDevice::copies_under_way() const {
  const std::lock_guard lock(mutex_);
  std::size_t count = 0;
  for (const auto& [stream, copies] : copies_) count += copies.size();
  return count;
}

}  // namespace troupe::test
