// Writes what a run of `troupe train CONFIG` starts from, as a safetensors file for parity_training.py: the initial weights, and the token ids
// and labels of its first steps, whatever the number of ranks:
//   model_parity_inputs CONFIG ROWS STEPS FILE
#include <cstring>
#include <iostream>

#include "src/config/job_config.hpp"
#include "src/data/loader.hpp"
#include "tests/model/safetensors_writer.hpp"
#include "tools/launcher/training_job.hpp"

namespace troupe::test {
namespace {

template <class T>
T take(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(result.value());
}

void write_inputs(const std::string& file, const std::string& rows, std::uint64_t steps, const std::string& out_file) {
  const JobConfig config = take(JobConfig::load(file, {"--training.local_batch_size", rows, "--training.global_batch_size", "-1"}));
  const TrainingJob job = take(plan_training(config, 0, 1));
  const std::unique_ptr<Device> device = make_cpu_device(1);
  TrainingModel model(job.model, job.options, *device, nullptr);
  model.initialise(static_cast<std::uint64_t>(config.debug.seed));
  SafetensorsWriter out;
  for (const StateTensor& w : model.state()) {
    const std::vector<std::int64_t> shape(w.global_shape.size.begin(), w.global_shape.size.begin() + w.global_shape.rank);
    if (w.model) out.add("weight." + w.name, "F32", shape, w.view.data, w.view.bytes());
  }
  const std::unique_ptr<LoaderProgram> loader = make_loader(take(open_corpora(sources_of(config.data))), loader_options(config, 0, 1));
  std::vector<std::byte> batch(job.options.batch.bytes());
  Stream stream;
  for (Step step{1}; step.value() <= steps; ++step) {
    (void)loader->load(stream, step, Micro{0}, batch);
    const std::vector<std::int64_t> shape{job.options.batch.rows, job.options.batch.seq_len};
    out.add("tokens." + std::to_string(step.value()), "I32", shape, batch.data(), batch.size() / 2);
    out.add("labels." + std::to_string(step.value()), "I32", shape, batch.data() + batch.size() / 2, batch.size() / 2);
  }
  out.write(out_file);
}

}  // namespace
}  // namespace troupe::test

int main(int count, char** arguments) {
  if (count != 5) {
    std::cerr << "usage: model_parity_inputs CONFIG ROWS STEPS FILE\n";
    return 2;
  }
  try {
    troupe::test::write_inputs(arguments[1], arguments[2], std::stoull(arguments[3]), arguments[4]);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
