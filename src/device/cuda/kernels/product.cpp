#include "src/device/cuda/kernels/product.hpp"

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <sstream>
#include <tuple>
#include <utility>
#include <vector>

#include "src/device/cuda/kernels/product_choices.hpp"

namespace troupe::cuda {
namespace {

void check_blas(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) throw std::runtime_error(std::string(what) + ": " + cublasLtGetStatusString(status));
}

cudaDataType_t data_type(Element element) {
  switch (element) {
    case Element::f32: return CUDA_R_32F;
    case Element::bf16: return CUDA_R_16BF;
    case Element::e4m3: return CUDA_R_8F_E4M3;
    case Element::e5m2: return CUDA_R_8F_E5M2;
    default: refuse("product", "operands of fp32, bf16, e4m3 or e5m2");
  }
}

bool is_float8(Element element) { return element == Element::e4m3 || element == Element::e5m2; }

constexpr double clearly_faster = 1.004;  // times that differ less are one time

/// The largest power of two that divides the address, up to 16: what the fast algorithms ask for.
std::uint32_t alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer) | 16U;
  return static_cast<std::uint32_t>(address & (~address + 1));
}

template <class T, void (*drop)(T)>
class Handle {
 public:
  Handle() = default;
  ~Handle() {
    if (value != nullptr) drop(value);
  }
  Handle(Handle&& other) noexcept : value(std::exchange(other.value, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(value, other.value);
    return *this;
  }
  T value = nullptr;
};
void drop_description(cublasLtMatmulDesc_t value) { cublasLtMatmulDescDestroy(value); }
void drop_layout(cublasLtMatrixLayout_t value) { cublasLtMatrixLayoutDestroy(value); }
void drop_preference(cublasLtMatmulPreference_t value) { cublasLtMatmulPreferenceDestroy(value); }
using Description = Handle<cublasLtMatmulDesc_t, drop_description>;
using Layout = Handle<cublasLtMatrixLayout_t, drop_layout>;
using Preference = Handle<cublasLtMatmulPreference_t, drop_preference>;

template <class T>
void set(const Description& description, cublasLtMatmulDescAttributes_t name, const T& value) {
  check_blas(cublasLtMatmulDescSetAttribute(description.value, name, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
}
template <class T>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t name, const T& value) {
  check_blas(cublasLtMatmulPreferenceSetAttribute(preference.value, name, &value, sizeof value), "cublasLtMatmulPreferenceSetAttribute");
}

/// All that an algorithm depends on: sizes, strides, types, modes, alignments.
using Key = std::array<std::int64_t, 19>;
constexpr std::size_t key_accumulate = 11, key_residual = 12;

Key key_of(const Product& p) {
  return {p.rows,
          p.columns,
          p.depth,
          p.a.stride,
          p.b.stride,
          p.d_stride,
          static_cast<std::int64_t>(p.a.type),
          static_cast<std::int64_t>(p.b.type),
          static_cast<std::int64_t>(p.d_type),
          p.a.transposed,
          p.b.transposed,
          p.accumulate,
          p.c != nullptr,
          p.a.inverse_scale != nullptr || p.b.inverse_scale != nullptr,
          p.fast_accumulation,
          p.multiprocessors,
          alignment_of(p.a.data),
          alignment_of(p.b.data),
          std::min(alignment_of(p.d), alignment_of(p.c))};
}

/// Row-major d = a b is column-major dᵀ = bᵀ aᵀ: b is the library's first operand, a its second.
struct Plan {
  Description description;
  Layout first, second, result;
  std::vector<cublasLtMatmulAlgo_t> algorithms;  ///< best first; those that refused the call are dropped
  bool stored = false;                           ///< a stored choice alone: the library was not asked
};

Layout layout_of(Element type, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  Layout layout;
  check_blas(cublasLtMatrixLayoutCreate(&layout.value, data_type(type), static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(columns), stride),
             "cublasLtMatrixLayoutCreate");
  return layout;
}

/// A row-major matrix is its transpose in column-major: columns first.
Layout operand_layout(const Operand& operand, std::int64_t rows, std::int64_t columns) {
  return operand.transposed ? layout_of(operand.type, rows, columns, operand.stride) : layout_of(operand.type, columns, rows, operand.stride);
}

Plan describe(const Product& p) {
  Plan plan;
  check_blas(cublasLtMatmulDescCreate(&plan.description.value, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
  set(plan.description, CUBLASLT_MATMUL_DESC_TRANSA, p.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(plan.description, CUBLASLT_MATMUL_DESC_TRANSB, p.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (is_float8(p.a.type)) set(plan.description, CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<std::int8_t>(p.fast_accumulation));
  if (p.multiprocessors > 0) set(plan.description, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, static_cast<std::int32_t>(p.multiprocessors));
  plan.first = operand_layout(p.b, p.depth, p.columns);
  plan.second = operand_layout(p.a, p.rows, p.depth);
  plan.result = layout_of(p.d_type, p.columns, p.rows, p.d_stride);
  return plan;
}

void set_scales(const Plan& plan, const Product& p) {
  if (!is_float8(p.a.type)) return;
  set(plan.description, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p.b.inverse_scale);
  set(plan.description, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.a.inverse_scale);
}

void require_shapes(const Product& p) {
  const bool a = p.a.stride >= (p.a.transposed ? p.rows : p.depth), b = p.b.stride >= (p.b.transposed ? p.depth : p.columns);
  if (!a || !b || p.d_stride < p.columns) refuse("product", "strides of at least a row's length");
  if (is_float8(p.a.type) != is_float8(p.b.type)) refuse("product", "two fp8 operands or none");
  const auto sixteen = [](const float* scale) { return reinterpret_cast<std::uintptr_t>(scale) % 16 == 0; };
  if (is_float8(p.a.type) && !(sixteen(p.a.inverse_scale) && sixteen(p.b.inverse_scale))) refuse("product", "16-byte aligned scales, which cuBLASLt demands");
  if (p.accumulate && p.c != nullptr) refuse("product", "accumulate or c, not both");
  if (p.d_type != Element::f32 && p.d_type != Element::bf16) refuse("product", "a result of fp32 or bf16");
}

}  // namespace

struct Products::Parts {
  Settings settings;
  cublasLtHandle_t handle = nullptr;
  std::map<Key, Plan> plans;
  std::map<Key, cublasLtMatmulAlgo_t> adopted;
  std::size_t swept = 0;

  [[nodiscard]] cublasStatus_t multiply(cudaStream_t stream, const Plan& plan, const cublasLtMatmulAlgo_t& algorithm, const Product& p, void* d,
                                        void* workspace, std::size_t bytes) const {
    const float one = 1.0F, beta = p.accumulate || p.c != nullptr ? 1.0F : 0.0F;
    const void* c = p.c != nullptr ? p.c : p.accumulate ? p.d : d;
    return cublasLtMatmul(handle, plan.description.value, &one, p.b.data, plan.first.value, p.a.data, plan.second.value, &beta, c, plan.result.value, d,
                          plan.result.value, &algorithm, workspace, bytes, stream);
  }
  [[nodiscard]] std::vector<cublasLtMatmulAlgo_t> candidates(const Plan& plan, const Product& p, std::size_t bytes) const;
  [[nodiscard]] std::vector<double> times_of(cudaStream_t stream, const Plan& plan, const Product& p, void* d, void* workspace, std::size_t bytes, int rounds,
                                             int calls) const;
  void keep_fastest(Plan& plan, const std::vector<double>& times, double slower) const;
  void sweep(cudaStream_t stream, Plan& plan, const Product& p, void* workspace, std::size_t bytes) const;
  [[nodiscard]] std::map<Key, cublasLtMatmulAlgo_t>::const_iterator stored_for(Key key) const;
  Plan& plan_for(cudaStream_t stream, const Product& p, void* workspace, std::size_t bytes);
  [[nodiscard]] std::string heading() const;
};

std::vector<cublasLtMatmulAlgo_t> Products::Parts::candidates(const Plan& plan, const Product& p, std::size_t bytes) const {
  Preference preference;
  check_blas(cublasLtMatmulPreferenceCreate(&preference.value), "cublasLtMatmulPreferenceCreate");
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p.b.data));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p.a.data));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, std::min(alignment_of(p.c), alignment_of(p.d)));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(p.d));
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  // The order and the choice depend on the room that is offered: half of it brings others forward (32 MiB is what ATen offers).
  for (const std::size_t room : {bytes / 2, bytes}) {
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, room);
    std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<std::size_t>(std::max(1, settings.candidates)));
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, plan.description.value, plan.first.value, plan.second.value, plan.result.value,
                                                                 plan.result.value, preference.value, static_cast<int>(found.size()), found.data(), &count);
    found.resize(status == CUBLAS_STATUS_SUCCESS ? static_cast<std::size_t>(count) : 0);
    for (const auto& one : found) {
      const bool known =
          std::any_of(algorithms.begin(), algorithms.end(), [&](const auto& other) { return std::memcmp(&other, &one.algo, sizeof other) == 0; });
      if (one.state == CUBLAS_STATUS_SUCCESS && !known) algorithms.push_back(one.algo);
    }
  }
  for (std::size_t i = algorithms.size(); settings.swizzled && i-- > 0;) {
    cublasLtMatmulAlgo_t other = algorithms[i];
    std::uint32_t swizzling = 0;
    std::size_t written = 0;
    if (cublasLtMatmulAlgoConfigGetAttribute(&other, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, &swizzling, sizeof swizzling, &written) != CUBLAS_STATUS_SUCCESS)
      continue;
    swizzling = swizzling == 0 ? 1 : 0;
    cublasLtMatmulHeuristicResult_t checked{};
    const bool works =
        cublasLtMatmulAlgoConfigSetAttribute(&other, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, &swizzling, sizeof swizzling) == CUBLAS_STATUS_SUCCESS &&
        cublasLtMatmulAlgoCheck(handle, plan.description.value, plan.first.value, plan.second.value, plan.result.value, plan.result.value, &other, &checked) ==
            CUBLAS_STATUS_SUCCESS &&
        checked.workspaceSize <= bytes;
    if (works) algorithms.push_back(other);
  }
  return algorithms;
}

namespace {

/// Memory for a result that must not be kept: the sweep of a product that adds to its result.
struct Temporary {
  explicit Temporary(std::size_t bytes) { check(cudaMalloc(&data, bytes), "memory for a product's sweep"); }
  ~Temporary() { cudaFree(data); }
  Temporary(const Temporary&) = delete;
  void* data = nullptr;
};

struct Stopwatch {
  Stopwatch() {
    check(cudaEventCreate(&begin), "cudaEventCreate");
    check(cudaEventCreate(&end), "cudaEventCreate");
  }
  ~Stopwatch() {
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
  }
  Stopwatch(const Stopwatch&) = delete;
  cudaEvent_t begin = nullptr, end = nullptr;
};

}  // namespace

/// Milliseconds a call of each algorithm, the median of `rounds` rounds in which all take turns, `calls` back to back: under a power cap the
/// clock drifts while the sweep runs, and what is fast alone may not be when it follows itself. Infinity: refused.
std::vector<double> Products::Parts::times_of(cudaStream_t stream, const Plan& plan, const Product& p, void* d, void* workspace, std::size_t bytes, int rounds,
                                              int calls) const {
  const Stopwatch watch;
  std::vector<std::vector<double>> times(plan.algorithms.size());
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < times.size(); ++i) {
      bool refused = false;
      check(cudaEventRecord(watch.begin, stream), "cudaEventRecord");
      for (int n = 0; n < calls && !refused; ++n) refused = multiply(stream, plan, plan.algorithms[i], p, d, workspace, bytes) != CUBLAS_STATUS_SUCCESS;
      check(cudaEventRecord(watch.end, stream), "cudaEventRecord");
      check(cudaEventSynchronize(watch.end), "a candidate of a product's sweep");
      float milliseconds = 0;
      check(cudaEventElapsedTime(&milliseconds, watch.begin, watch.end), "cudaEventElapsedTime");
      times[i].push_back(refused ? std::numeric_limits<double>::infinity() : static_cast<double>(milliseconds) / calls);
    }
  }
  std::vector<double> medians;
  for (std::vector<double>& one : times) {
    std::nth_element(one.begin(), one.begin() + rounds / 2, one.end());
    medians.push_back(one[static_cast<std::size_t>(rounds / 2)]);
  }
  return medians;
}

/// Keeps the algorithms within `slower` of the fastest, fastest first; the library's own first choice stays before any that is not clearly faster.
void Products::Parts::keep_fastest(Plan& plan, const std::vector<double>& times, double slower) const {
  const double best = *std::min_element(times.begin(), times.end());
  std::vector<std::pair<double, std::size_t>> order;
  for (std::size_t i = 0; i < times.size(); ++i) {
    if (std::isfinite(times[i]) && (i == 0 || times[i] <= best * slower)) order.emplace_back(i == 0 ? times[i] / (1 + settings.margin) : times[i], i);
  }
  std::sort(order.begin(), order.end());
  std::vector<cublasLtMatmulAlgo_t> sorted;
  for (const auto& [milliseconds, i] : order) sorted.push_back(plan.algorithms[i]);
  plan.algorithms = std::move(sorted);
}

/// All candidates once or twice, then the few best for longer, hot.
void Products::Parts::sweep(cudaStream_t stream, Plan& plan, const Product& p, void* workspace, std::size_t bytes) const {
  std::unique_ptr<Temporary> instead;
  if (p.accumulate || p.c == p.d) instead = std::make_unique<Temporary>(static_cast<std::size_t>(p.rows * p.d_stride) * size_of(p.d_type));
  void* d = instead ? instead->data : p.d;
  const std::vector<double> quick = times_of(stream, plan, p, d, workspace, bytes, 3, 1);
  keep_fastest(plan, quick, 1.1);
  if (plan.algorithms.size() > settings.finalists) plan.algorithms.resize(settings.finalists);
  if (plan.algorithms.size() < 2) return;
  const double once = *std::min_element(quick.begin(), quick.end());
  const int calls = static_cast<int>(std::clamp(settings.milliseconds / once, 1.0, std::max(100.0, 10 * settings.milliseconds)));
  keep_fastest(plan, times_of(stream, plan, p, d, workspace, bytes, settings.rounds, calls), std::numeric_limits<double>::max());
}

/// Adding to what is there reads one matrix more and changes little else: the choice for the plain product serves if there is no other.
std::map<Key, cublasLtMatmulAlgo_t>::const_iterator Products::Parts::stored_for(Key key) const {
  const auto exact = adopted.find(key);
  if (exact != adopted.end()) return exact;
  key[key_accumulate] = key[key_residual] = 0;
  return adopted.find(key);
}

Plan& Products::Parts::plan_for(cudaStream_t stream, const Product& p, void* workspace, std::size_t bytes) {
  const Key key = key_of(p);
  const auto known = plans.find(key);
  if (known != plans.end()) return known->second;
  Plan plan = describe(p);
  set_scales(plan, p);
  if (const auto stored = stored_for(key); stored != adopted.end()) {
    plan.algorithms = {stored->second};
    plan.stored = true;
    return plans.emplace(key, std::move(plan)).first->second;
  }
  plan.algorithms = candidates(plan, p, bytes);
  if (settings.sweep && plan.algorithms.size() > 1) {
    sweep(stream, plan, p, workspace, bytes);
    ++swept;
  }
  return plans.emplace(key, std::move(plan)).first->second;
}

std::string Products::Parts::heading() const {
  int device = 0;
  cudaDeviceProp properties{};
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  return "cublasLt " + std::to_string(cublasLtGetVersion()) + ", " + properties.name;
}

Products::Products(const Settings& settings) : parts_(std::make_unique<Parts>()) {
  parts_->settings = settings;
  check_blas(cublasLtCreate(&parts_->handle), "cublasLtCreate");
  if (settings.known_choices) adopt(known_product_choices);
}

Products::~Products() {
  parts_->plans.clear();
  cublasLtDestroy(parts_->handle);
}

bool takes_float8(const Product& p) {
  const auto sixteen = [](std::int64_t n) { return n % 16 == 0; };
  const auto at = [](const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; };
  return compute_capability() >= 89 && !p.a.transposed && p.b.transposed && sixteen(p.rows) && sixteen(p.columns) && sixteen(p.depth) && sixteen(p.a.stride) &&
         sixteen(p.b.stride) && sixteen(p.d_stride) && at(p.a.data) && at(p.b.data) && at(p.d) && at(p.c) &&
         (p.a.type == Element::e4m3 || p.b.type == Element::e4m3);
}

void Products::run(cudaStream_t stream, const Product& p, void* workspace, std::size_t workspace_bytes) {
  require_shapes(p);
  if (p.rows == 0 || p.columns == 0) return;
  if (p.depth == 0 || (is_float8(p.a.type) && !takes_float8(p))) return plain_product(stream, p);
  Plan& plan = parts_->plan_for(stream, p, workspace, workspace_bytes);
  set_scales(plan, p);
  // The library names candidates that it then refuses; a refused call has done nothing.
  while (!plan.algorithms.empty()) {
    const cublasStatus_t status = parts_->multiply(stream, plan, plan.algorithms.front(), p, p.d, workspace, workspace_bytes);
    if (status == CUBLAS_STATUS_SUCCESS) return;
    if (status != CUBLAS_STATUS_NOT_SUPPORTED && status != CUBLAS_STATUS_INVALID_VALUE) check_blas(status, "cublasLtMatmul");
    plan.algorithms.erase(plan.algorithms.begin());
    if (plan.algorithms.empty() && std::exchange(plan.stored, false)) plan.algorithms = parts_->candidates(plan, p, workspace_bytes);
  }
  plain_product(stream, p);
}

std::string Products::refused() const {
  std::ostringstream text;
  for (const auto& [key, plan] : parts_->plans) {
    if (plan.algorithms.empty()) text << key[0] << " x " << key[1] << " x " << key[2] << " (types " << key[6] << ", " << key[7] << ", " << key[8] << ")\n";
  }
  return text.str();
}

std::size_t Products::swept() const noexcept { return parts_->swept; }

std::string Products::heading() const { return parts_->heading(); }

std::string Products::choices() const {
  std::ostringstream text;
  text << parts_->heading() << '\n';
  for (const auto& [key, plan] : parts_->plans) {
    if (plan.algorithms.empty()) continue;
    for (const std::int64_t part : key) text << part << ' ';
    text << std::hex;
    for (const std::uint64_t word : plan.algorithms.front().data) text << ' ' << word;
    text << std::dec << '\n';
  }
  return text.str();
}

bool Products::adopt(const std::string& choices) {
  std::istringstream text(choices);
  std::string line;
  if (!std::getline(text, line) || line != parts_->heading()) return false;
  while (std::getline(text, line)) {
    std::istringstream numbers(line);
    Key key{};
    cublasLtMatmulAlgo_t algorithm{};
    for (std::int64_t& part : key) numbers >> part;
    numbers >> std::hex;
    for (std::uint64_t& word : algorithm.data) numbers >> word;
    if (numbers) parts_->adopted[key] = algorithm;
  }
  return true;
}

}  // namespace troupe::cuda
