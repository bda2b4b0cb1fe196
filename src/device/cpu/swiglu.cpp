#include "src/device/cpu/arguments.hpp"
#include "src/device/cpu/cpu_kernels.hpp"
#include "src/device/cpu/exponential.hpp"
#include "src/device/cpu/parallel.hpp"
#include "src/device/cpu/vectorise.hpp"

namespace troupe::cpu {
namespace {

template <class W>
TROUPE_INLINE W sigmoid(W x) {
  return W(1) / (W(1) + exponential(-x));
}

template <class T>
TROUPE_VECTORISED void forward_part(const T* gate, const T* up, T* out, std::int64_t first, std::int64_t last) {
#pragma GCC ivdep
  for (std::int64_t i = first; i < last; ++i) {
    const Wide<T> g = widen(gate[i]);
    narrow(g * sigmoid(g) * widen(up[i]), out[i]);
  }
}

/// silu'(g) = σ (1 + g (1 − σ))
template <class T>
TROUPE_VECTORISED void backward_part(const T* dout, const T* gate, const T* up, T* dgate, T* dup, std::int64_t first, std::int64_t last) {
#pragma GCC ivdep
  for (std::int64_t i = first; i < last; ++i) {
    const Wide<T> d = widen(dout[i]), g = widen(gate[i]), u = widen(up[i]);
    const Wide<T> s = sigmoid(g);
    narrow(d * u * s * (Wide<T>(1) + g * (Wide<T>(1) - s)), dgate[i]);
    narrow(d * g * s, dup[i]);
  }
}

template <class T>
TROUPE_VECTORISED void add_part(const T* a, const T* b, T* out, std::int64_t first, std::int64_t last) {
#pragma GCC ivdep
  for (std::int64_t i = first; i < last; ++i) narrow(widen(a[i]) + widen(b[i]), out[i]);
}

bool alike(const TensorView& a, const TensorView& b) { return a.shape == b.shape && a.dtype == b.dtype; }

}  // namespace

void CpuKernels::swiglu(Stream&, TensorView gate, TensorView up, TensorView out) {
  const Arguments arguments("swiglu", "gate, up, out of one shape and floating type", {{"gate", gate}, {"up", up}, {"out", out}});
  arguments.require(alike(gate, up) && alike(gate, out) && Arguments::floating(gate.dtype));
  with_floating(gate.dtype, [&]<class T>(Type<T>) {
    in_parallel(gate.shape.elements(), elements_a_thread,
                [&](std::int64_t first, std::int64_t last) { forward_part(gate.as<const T>(), up.as<const T>(), out.as<T>(), first, last); });
  });
}

void CpuKernels::swiglu_backward(Stream&, TensorView dout, TensorView gate, TensorView up, TensorView dgate, TensorView dup) {
  const Arguments arguments("swiglu_backward", "dout, gate, up, dgate, dup of one shape and floating type",
                            {{"dout", dout}, {"gate", gate}, {"up", up}, {"dgate", dgate}, {"dup", dup}});
  arguments.require(alike(gate, dout) && alike(gate, up) && alike(gate, dgate) && alike(gate, dup) && Arguments::floating(gate.dtype));
  with_floating(gate.dtype, [&]<class T>(Type<T>) {
    in_parallel(gate.shape.elements(), elements_a_thread, [&](std::int64_t first, std::int64_t last) {
      backward_part(dout.as<const T>(), gate.as<const T>(), up.as<const T>(), dgate.as<T>(), dup.as<T>(), first, last);
    });
  });
}

void CpuKernels::add(Stream&, TensorView a, TensorView b, TensorView out) {
  const Arguments arguments("add", "a, b, out of one shape and floating type", {{"a", a}, {"b", b}, {"out", out}});
  arguments.require(alike(a, b) && alike(a, out) && Arguments::floating(a.dtype));
  with_floating(a.dtype, [&]<class T>(Type<T>) {
    in_parallel(a.shape.elements(), elements_a_thread,
                [&](std::int64_t first, std::int64_t last) { add_part(a.as<const T>(), b.as<const T>(), out.as<T>(), first, last); });
  });
}

}  // namespace troupe::cpu
