#pragma once
#include <memory>
#include <string>

#include "src/device/cuda/kernels/element.hpp"

namespace troupe::cuda {

/// A row-major operand of a product; `stride` elements between rows.
struct Operand {
  const void* data;
  Element type;
  std::int64_t stride;
  bool transposed = false;
  const float* inverse_scale = nullptr;  ///< fp8: device scalar that the codes are multiplied by, 16-byte aligned; null: 1
};

/// d [rows, columns] = a b (+ c); a [rows, depth], or [depth, rows] if transposed; b [depth, columns], or [columns, depth] if transposed.
/// Row-major, fp32 accumulation. What a linear layer needs: y = x wᵀ (b transposed), dx = dy w, dw = dyᵀ x (a transposed).
struct Product {
  std::int64_t rows, columns, depth;
  Operand a, b;
  void* d;
  Element d_type;  ///< fp32 or bf16
  std::int64_t d_stride;
  bool accumulate = false;         ///< adds to what d holds
  const void* c = nullptr;         ///< added as well, laid out as d (a residual); not together with accumulate
  bool fast_accumulation = false;  ///< fp8: about 14 bits of running sum, as torchao's forward
  int multiprocessors = 0;         ///< leave the others free; 0: use all
};

/// Any shape and any mixture of types, one element a thread in fp32: for shapes that tensor cores do not take, and as a reference.
void plain_product(cudaStream_t stream, const Product& product);

/// Whether cuBLASLt's fp8 products take it: b transposed and a not (both operands contiguous along the depth), sizes multiples of 16,
/// pointers 16-byte aligned, compute capability 8.9 or newer.
[[nodiscard]] bool takes_float8(const Product& product);

/// Matrix products through cuBLASLt, one instance a device; any one thread at a time. A plan (layouts and algorithm) is made at the first call
/// with its shape and kept. With `sweep`, that call also times the library's candidates on the operands themselves, on its stream, and keeps the
/// fastest: it then blocks the host, so the first step should not be the one that is timed. Without, the library's first choice is
/// taken, which is the same in each run: what repeats bit for bit needs that, or a choice that was stored.
class Products {
 public:
  struct Settings {
    bool sweep = true;
    bool known_choices = true;  ///< begin with those of product_choices.hpp, where library and device are theirs
    int candidates = 24;        ///< asked of the library; 16 to 32 hold all that differ
    int rounds = 3;             ///< in which the best few take turns
    double milliseconds = 10;   ///< of each in a round, back to back; at 50 the power cap has settled
    double margin = 0.02;       ///< by which another must beat the library's first choice: less is noise under a power cap
    std::size_t finalists = 5;  ///< that go into those rounds
    bool swizzled = false;      ///< also each candidate with its blocks in the other order over the result, which the library does not name
  };
  explicit Products(const Settings& settings);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  /// workspace: of this stream alone, 256-byte aligned; 64 MiB suffice for all algorithms. Operands of fp8 that cuBLASLt does not take, and
  /// shapes for which it has nothing, go to plain_product. Throws CudaError or std::invalid_argument.
  void run(cudaStream_t stream, const Product& product, void* workspace, std::size_t workspace_bytes);

  /// Products that went to plain_product although their sizes suit tensor cores, as "rows x columns x depth"; empty in a healthy run.
  [[nodiscard]] std::string refused() const;
  /// The chosen algorithms as text, one shape a line, headed by library version and device; for a file that a later run adopts.
  [[nodiscard]] std::string choices() const;
  /// How many shapes were timed, that is, had no stored choice.
  [[nodiscard]] std::size_t swept() const noexcept;
  /// The first line of `choices`.
  [[nodiscard]] std::string heading() const;
  /// Takes choices of an earlier run; false (and nothing taken) if they are of another library version or device.
  bool adopt(const std::string& choices);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace troupe::cuda
