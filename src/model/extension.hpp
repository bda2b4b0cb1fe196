#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "src/device/kernels.hpp"
#include "src/model/model_description.hpp"
#include "src/model/settings.hpp"

/// What a shared library named in `job.custom_import` may add. Such a library is built against these headers, with the compiler and standard
/// library of the program that loads it (docs/extensions.md), and ends with
///   TROUPE_EXTENSION(add_mine)      // void add_mine(troupe::Extensions& to)
/// at namespace scope. It is loaded by the launcher and by every worker before anything is planned, and never unloaded.
namespace troupe {

/// [model] as a table of units: what describe_model gives for `model.name`. Any thread; pure. The error says which key cannot be.
using FamilyFunction = std::function<Result<ModelDescription>(const ModelSettings& settings, std::optional<std::int64_t> tokenizer_vocab)>;

/// What `training.loss` runs in place of Kernels::cross_entropy, with its contract: adds Σ loss, the count of valid labels and of non-finite
/// losses to `sums`, and overwrites logits [T,V] with the loss's gradient × grad_scale, zero in ignored rows (label < 0). On the compute
/// lane's thread; memory is the device's, work goes on `stream`.
using LossFunction = std::function<void(Stream& stream, TensorView logits, TensorView labels, double grad_scale, VerdictSums* sums)>;

/// What `training.dataset` stands for: form and files, as training.dataset and training.dataset_path say them.
struct DataSet {
  std::string form = "text";       ///< text | jsonl
  std::vector<std::string> paths;  ///< where training.dataset_path names none
};

/// By the name that the configuration gives them. A name of Troupe's own cannot be taken.
struct Extensions {
  std::map<std::string, FamilyFunction, std::less<>> families;
  std::map<std::string, LossFunction, std::less<>> losses;
  std::map<std::string, DataSet, std::less<>> data_sets;
};

/// What both sides must agree in, or the library is refused: version of this header, compiler, sizes of what passes between them.
struct ExtensionAbi {
  static constexpr std::uint32_t current = 1;
  std::uint32_t version = current;
  const char* compiler = __VERSION__;
  std::uint32_t sizes[6] = {sizeof(Extensions),      sizeof(ModelSettings), sizeof(ModelDescription),
                            sizeof(UnitDescription), sizeof(TensorView),    sizeof(VerdictSums)};
};

}  // namespace troupe

// NOLINTNEXTLINE(cppcoreguidelines-macro-usage): two symbols of C, which dlsym finds
#define TROUPE_EXTENSION(function)                                                                                           \
  extern "C" __attribute__((visibility("default"))) const troupe::ExtensionAbi troupe_extension_abi{};                       \
  extern "C" __attribute__((visibility("default"))) void troupe_extension_register(troupe::Extensions& to) { function(to); } \
  static_assert(true)
