#include <cmath>

#include "src/device/cpu/arguments.hpp"
#include "src/device/cpu/cpu_kernels.hpp"
#include "src/device/cpu/parallel.hpp"
#include "src/device/cpu/vectorise.hpp"

namespace troupe::cpu {
namespace {

/// One step's constants in the type of the arithmetic.
template <class W>
struct Constants {
  W gradient_factor, keep, decay, beta1_rest, beta2, beta2_rest, step_size, root_factor, eps;
};

template <class W>
Constants<W> constants_of(const AdamWStep& step, double count, float gradient_factor) {
  const double correction1 = 1.0 - std::pow(step.beta1, count);
  const double correction2 = 1.0 - std::pow(step.beta2, count);
  return {static_cast<W>(gradient_factor),
          static_cast<W>(step.decoupled ? 1.0 - step.learning_rate * step.weight_decay : 1.0),
          static_cast<W>(step.decoupled ? 0.0 : step.weight_decay),
          static_cast<W>(1.0 - step.beta1),
          static_cast<W>(step.beta2),
          static_cast<W>(1.0 - step.beta2),
          static_cast<W>(step.learning_rate / correction1),
          static_cast<W>(1.0 / std::sqrt(correction2)),
          static_cast<W>(step.eps)};
}

template <class W, class G>
TROUPE_VECTORISED void update(W* parameter, const G* gradient, W* first, W* second, const Constants<W>& c, std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep
  for (std::int64_t i = begin; i < end; ++i) {
    const W g = static_cast<W>(widen(gradient[i])) * c.gradient_factor + c.decay * parameter[i];
    const W m = first[i] + (g - first[i]) * c.beta1_rest;
    const W v = second[i] * c.beta2 + g * g * c.beta2_rest;
    first[i] = m;
    second[i] = v;
    parameter[i] = parameter[i] * c.keep - c.step_size * (m / (std::sqrt(v) * c.root_factor + c.eps));
  }
}

template <class W>
TROUPE_VECTORISED void approach(const W* parameter, W* average, W rest, std::int64_t count) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) average[i] += rest * (parameter[i] - average[i]);
}

/// fp32 squares are exact in fp64.
template <class T>
TROUPE_VECTORISED double squares(const T* x, std::int64_t count) {
  double parts[sum_parts] = {};
  std::int64_t i = 0;
  for (; i + sum_parts <= count; i += sum_parts) {
    for (std::int64_t j = 0; j < sum_parts; ++j) {
      const auto value = static_cast<double>(widen(x[i + j]));
      parts[j] += value * value;
    }
  }
  for (; i < count; ++i) parts[i % sum_parts] += static_cast<double>(widen(x[i])) * static_cast<double>(widen(x[i]));
  return sum_of(parts);
}

}  // namespace

void CpuKernels::sum_squares(Stream&, TensorView x, double* sum) {
  const Arguments arguments("sum_squares", "x of a floating type", {{"x", x}});
  arguments.require(Arguments::floating(x.dtype));
  with_floating(x.dtype, [&]<class T>(Type<T>) { *sum += squares(x.as<const T>(), x.shape.elements()); });
}

void CpuKernels::adamw(Stream&, TensorView parameter, TensorView gradient, TensorView first, TensorView second, std::int64_t* count, const AdamWStep& step,
                       const Verdict* verdict) {
  const Arguments arguments("adamw", "parameter, gradient, first, second of one shape, all float32 (or all float64); the gradient perhaps bfloat16",
                            {{"parameter", parameter}, {"gradient", gradient}, {"first", first}, {"second", second}});
  for (const TensorView& view : {first, second}) arguments.require(view.shape == parameter.shape && view.dtype == parameter.dtype);
  const bool half = gradient.dtype == DType::bf16 && parameter.dtype == DType::f32;
  arguments.require(gradient.shape == parameter.shape && (half || gradient.dtype == parameter.dtype));
  arguments.require(parameter.dtype == DType::f32 || parameter.dtype == DType::f64);
  if (verdict->outcome != VerdictOutcome::commit) return;
  ++*count;
  const auto run = [&]<class W, class G>(Type<W>, Type<G>) {
    const Constants<W> constants = constants_of<W>(step, static_cast<double>(*count), verdict->gradient_factor);
    in_parallel(parameter.shape.elements(), elements_a_thread, [&](std::int64_t begin, std::int64_t end) {
      update(parameter.as<W>(), gradient.as<const G>(), first.as<W>(), second.as<W>(), constants, begin, end);
    });
  };
  if (parameter.dtype == DType::f64) return run(Type<double>{}, Type<double>{});
  if (half) return run(Type<float>{}, Type<BFloat16>{});
  run(Type<float>{}, Type<float>{});
}

void CpuKernels::average(Stream&, TensorView parameter, TensorView average, double decay, const Verdict* verdict) {
  const Arguments arguments("average", "parameter, average of one shape, both float32 (or both float64)", {{"parameter", parameter}, {"average", average}});
  arguments.require(average.shape == parameter.shape && average.dtype == parameter.dtype && (parameter.dtype == DType::f32 || parameter.dtype == DType::f64));
  if (verdict->outcome != VerdictOutcome::commit) return;
  const auto run = [&]<class W>(Type<W>) {
    in_parallel(parameter.shape.elements(), elements_a_thread, [&](std::int64_t begin, std::int64_t end) {
      approach(parameter.as<const W>() + begin, average.as<W>() + begin, static_cast<W>(1.0 - decay), end - begin);
    });
  };
  if (parameter.dtype == DType::f64) return run(Type<double>{});
  run(Type<float>{});
}

}  // namespace troupe::cpu
