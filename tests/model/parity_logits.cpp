// Writes the logits that follow each prefix of some tokens, computed with the weights of a sealed checkpoint or of a folder of Hugging Face,
// as a safetensors file for parity_checkpoints.py:
//   model_parity_logits FOLDER FILE ID [ID …]
#include <iostream>

#include "src/model/generate.hpp"
#include "tests/model/safetensors_writer.hpp"
#include "tools/worker/loaded_model.hpp"

namespace troupe::test {
namespace {

void dump(const std::string& folder, const std::string& file, const std::vector<std::int32_t>& tokens) {
  const auto storage = make_posix_storage();
  const auto loaded = load_model(folder, {"--training.mixed_precision_param", "float32"}, *storage);
  if (!loaded) throw std::runtime_error(loaded.error().message);
  std::vector<double> logits;
  for (std::size_t count = 1; count <= tokens.size(); ++count) {
    const auto row = next_logits(*(*loaded)->model, *(*loaded)->device, *(*loaded)->attention, std::span(tokens).first(count));
    logits.insert(logits.end(), row.begin(), row.end());
  }
  SafetensorsWriter out;
  const auto rows = static_cast<std::int64_t>(tokens.size());
  out.add("logits", "F64", {rows, static_cast<std::int64_t>(logits.size()) / rows}, logits.data(), logits.size() * sizeof(double));
  out.write(file);
}

}  // namespace
}  // namespace troupe::test

int main(int count, char** arguments) {
  if (count < 4) {
    std::cerr << "usage: model_parity_logits FOLDER FILE ID [ID …]\n";
    return 2;
  }
  try {
    std::vector<std::int32_t> tokens;
    for (int i = 3; i < count; ++i) tokens.push_back(std::stoi(arguments[i]));
    troupe::test::dump(arguments[1], arguments[2], tokens);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
