// Fuzz target: whatever bytes stand in a folder of Hugging Face or of torch.distributed.checkpoint, it is read in full or refused with a
// message that names a file. The first byte says which folder of the corpus below it is, the second which of its files holds the bytes that follow. Built with
// -DTROUPE_LIBFUZZER=ON and clang it is a libFuzzer program; otherwise main() below mutates a file of each folder, always in the same way:
// fuzz_checkpoints [RUNS [SEED]].
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "src/checkpoint/foreign_tensors.hpp"
#include "src/checkpoint/hugging_face_config.hpp"
#include "src/checkpoint/torch_checkpoint.hpp"
#include "tests/unit/checkpoint/hugging_face_folder.hpp"

namespace {

using namespace troupe;
using Files = std::vector<std::pair<std::string, std::string>>;

constexpr std::uint64_t most_bytes = std::uint64_t{1} << 22U;
const std::filesystem::path folder = "/a";
std::uint64_t accepted = 0;

void expect_place(const std::string& message) {
  if (message.find('/') == std::string::npos) throw std::runtime_error("a refusal without a place: " + message);
}

void read_all(const Result<ForeignTensors>& found, Storage& storage) {
  if (!found) return expect_place(found.error().message);
  ForeignReads reads(*found, storage);
  for (const auto& [name, tensor] : found->tensors) {
    const auto bytes = bytes_of_shape(tensor.shape, tensor.dtype);
    if (!bytes || *bytes > most_bytes) return;
    std::vector<std::byte> values(*bytes);
    if (const auto read = reads.rows(tensor, 0, tensor.shape.empty() ? 1 : tensor.shape[0], values); !read) return expect_place(read.error().message);
  }
  ++accepted;
}

void try_folder(const Files& files) {
  testing::MemoryStorage storage;
  (void)storage.make_folders(folder);
  for (const auto& [name, content] : files) storage.put(folder / name, content);
  if (files.front().first == torch_metadata_file) return read_all(open_torch_checkpoint(storage, folder), storage);
  read_all(open_hugging_face(storage, folder), storage);
  (void)read_model_facts(files.back().second, "llama3", "/a/config.json");
}

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<Files> corpus() {
  testing::MemoryStorage storage;
  const std::vector<testing::FolderTensor> tensors{{"model.norm.weight", {4}}, {"lm_head.weight", {6, 2}, StoredType::bf16}, {"scalar", {}, StoredType::i64}};
  testing::put_two_files(storage, folder, tensors);
  Files hugging;
  for (const char* name : {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", hugging_face_index})
    hugging.emplace_back(name, storage.content(folder / name));
  hugging.emplace_back("config.json",
                       R"({"model_type":"llama","vocab_size":64,"hidden_size":32,"num_hidden_layers":2,"num_attention_heads":4,"intermediate_size":96,
"rope_scaling":{"rope_type":"llama3","factor":8,"original_max_position_embeddings":64},"eos_token_id":[1,2]})");
  Files torch{{torch_metadata_file, content_of(std::filesystem::path(TROUPE_TORCH_CHECKPOINT) / torch_metadata_file)}};
  for (const char* name : {"__0_0.distcp", "__1_0.distcp"}) torch.emplace_back(name, content_of(std::filesystem::path(TROUPE_TORCH_CHECKPOINT) / name));
  return {hugging, torch};
}

const std::vector<Files>& seeds() {
  static const std::vector<Files> made = corpus();
  return made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  Files files = seeds()[data[0] % seeds().size()];
  files[data[1] % files.size()].second.assign(reinterpret_cast<const char*>(data) + 2, size - 2);
  try_folder(files);
  return 0;
}

#ifndef TROUPE_LIBFUZZER
namespace {

void mutate(std::string& text, std::mt19937_64& random) {
  static const std::vector<std::string> words{"-1",    "9223372036854775808", "18446744073709551615", "[]", "{}", "null",
                                              "1e999", "\xff\xff\xff\xff",    std::string(8, '\0')};
  for (std::uint64_t i = 1 + random() % 3; i-- > 0 && !text.empty();) {
    const std::size_t at = random() % text.size();
    switch (random() % 5) {
      case 0: text[at] = static_cast<char>(random()); break;
      case 1: text[at] = static_cast<char>(text[at] ^ (1 << random() % 8)); break;
      case 2: text.erase(at, 1 + random() % 16); break;
      case 3: text.replace(at, std::min<std::size_t>(text.size() - at, 1 + random() % 8), words[random() % words.size()]); break;
      default: text.insert(at, text.substr(random() % text.size(), random() % 32)); break;
    }
  }
}

}  // namespace

int main(int count, char** arguments) {
  const std::uint64_t runs = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 10000;
  std::mt19937_64 random(count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 1);
  for (const Files& files : seeds()) try_folder(files);
  if (accepted != seeds().size()) {
    std::fprintf(stderr, "the corpus itself is refused\n");
    return 1;
  }
  for (std::uint64_t run = 0; run < runs; ++run) {
    std::string bytes{static_cast<char>(random() % seeds().size()), 0};
    const Files& files = seeds()[static_cast<std::size_t>(bytes[0])];
    bytes[1] = static_cast<char>(random() % files.size());
    std::string content = files[static_cast<std::size_t>(bytes[1])].second;
    mutate(content, random);
    bytes += content;
    try {
      LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
    } catch (const std::exception& problem) {
      std::fprintf(stderr, "run %llu: %s\n", static_cast<unsigned long long>(run), problem.what());
      return 1;
    }
  }
  std::printf("%llu runs, %llu read in full\n", static_cast<unsigned long long>(runs), static_cast<unsigned long long>(accepted));
  return 0;
}
#endif
