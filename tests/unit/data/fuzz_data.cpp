// Fuzz target: whatever a file of data holds, reading it gives an error that names the file, or documents whose tokens can all be read. The first byte says
// of what kind it is. Built with -DTROUPE_LIBFUZZER=ON and clang it is a libFuzzer program; otherwise main() below mutates a file of each kind, always in
// the same way: fuzz_data [RUNS [SEED]].
#include <zlib.h>
#include <zstd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/megatron_documents.hpp"
#include "src/data/open_documents.hpp"
#include "src/data/token_shards.hpp"
#include "tests/support/temporary_folder.hpp"

namespace {

using namespace troupe;

enum Kind : std::uint8_t { text, jsonl, messages, prompts, packed, shard, manifest, index, kinds };
constexpr std::uint64_t most_text = std::uint64_t{1} << 20U;
std::uint64_t accepted = 0;

const testing::TemporaryFolder& folder() {
  static const testing::TemporaryFolder made;
  return made;
}

/// ids of two bytes: one document of three ids, one of two.
std::string megatron_index() {
  std::string out("MMIDIDX\0\0", 9);
  const auto put = [&out](auto value) { out.append(reinterpret_cast<const char*>(&value), sizeof value); };
  put(std::uint64_t{1});
  put(std::uint8_t{8});
  put(std::uint64_t{2});
  put(std::uint64_t{3});
  for (const std::int32_t size : {3, 2}) put(size);
  for (const std::int64_t pointer : {0, 6}) put(pointer);
  for (const std::int64_t document : {0, 1, 2}) put(document);
  return out;
}

std::shared_ptr<const Tokenizer> tokenizer() {
  static const auto loaded = Tokenizer::load(
      folder().write("tokenizer.json", R"({"added_tokens":[{"id":3,"content":"<|im_start|>","special":true},{"id":4,"content":"<|im_end|>","special":true}],
    "model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}})"));
  return loaded.value();
}

/// Shards and their manifest, made once.
const std::filesystem::path& shards() {
  static const std::filesystem::path made = [] {
    const auto corpus = Corpus::open({.format = DataFormat::jsonl, .paths = {folder().write("t.jsonl", "{\"text\":\"ab\"}\n{\"text\":\"bab\"}\n")}});
    (void)tokenize_corpus(*corpus, tokenizer(), {.folder = folder().path() / "t"}).value();
    return folder().path() / "t";
  }();
  return made;
}

void use(const Result<std::shared_ptr<const TokenDocuments>>& opened) {
  if (!opened) {
    if (opened.error().message.find(folder().path().string()) == std::string::npos && opened.error().message.find("dataset_path") == std::string::npos)
      throw std::logic_error("a refusal without a place: " + opened.error().message);
    return;
  }
  const TokenDocuments& documents = **opened;
  try {
    const auto reader = documents.reader({});
    std::vector<std::int32_t> tokens;
    for (std::uint64_t i = 0; i < documents.documents(); ++i) {
      (void)documents.place(i);
      tokens.resize(documents.tokens(i));
      reader->read(i, 0, tokens);
      for (const std::int32_t token : tokens)
        if (id_of_token(token) >= documents.vocabulary()) throw std::logic_error("a token outside the vocabulary");
    }
    ++accepted;
  } catch (const std::runtime_error&) {  // said when it is read
  }
}

void use_text(DataFormat format, std::string_view bytes, RecordForm form, const char* name) {
  std::filesystem::remove_all(folder().path() / "index");
  CorpusOptions source{.format = format, .paths = {folder().write(name, bytes)}, .skip_broken = bytes.size() % 2 == 1, .record = {form, "text"}};
  source.index_folder = (folder().path() / "index").string();
  source.unpack_limit_bytes = most_text;
  use(open_documents(source, form == RecordForm::text ? DocumentOptions{} : DocumentOptions{.tokenizer = tokenizer(), .threads = 1}));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % kinds) {
    case text: use_text(DataFormat::text, bytes, RecordForm::text, "a.txt"); break;
    case jsonl: use_text(DataFormat::jsonl, bytes, RecordForm::text, "a.jsonl"); break;
    case messages: use_text(DataFormat::jsonl, bytes, RecordForm::messages, "b.jsonl"); break;
    case prompts: use_text(DataFormat::jsonl, bytes, RecordForm::prompt_completion, "c.jsonl"); break;
    case packed: use_text(DataFormat::jsonl, bytes, RecordForm::text, "a.packed"); break;
    case index:
      folder().write("m.bin", std::string("\1\0\2\0\3\0\4\0\5\0", 10));
      folder().write("m.idx", bytes);
      use(open_megatron((folder().path() / "m").string(), {.vocabulary = 100}));
      break;
    default: {
      const auto file = shards() / (data[0] % kinds == shard ? "shard-00000.tokens" : "manifest.json");
      const std::string whole = testing::read_file(file);
      folder().write("t/" + file.filename().string(), bytes);
      use(open_token_shards(shards(), 0));
      folder().write("t/" + file.filename().string(), whole);
    }
  }
  return 0;
}

#ifndef TROUPE_LIBFUZZER
namespace {

std::vector<std::string> corpus() {
  const std::string lines = "{\"text\": \"ab \\u00e9\", \"id\": [1, {\"text\": 2}]}\r\n\n{\"text\": \"\"}\n{\"text\": \"b\"}";
  std::string frame(ZSTD_compressBound(lines.size()), '\0'), member(compressBound(static_cast<uLong>(lines.size())) + 32, '\0');
  frame.resize(ZSTD_compress(frame.data(), frame.size(), lines.data(), lines.size(), 3));
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string in = lines;
  stream.next_in = reinterpret_cast<Bytef*>(in.data());
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(member.data());
  stream.avail_out = static_cast<uInt>(member.size());
  deflate(&stream, Z_FINISH);
  member.resize(stream.total_out);
  deflateEnd(&stream);
  const auto of = [](Kind kind, const std::string& bytes) { return std::string(1, static_cast<char>(kind)) + bytes; };
  return {of(text, "one\n%\ntwo\n%\n \n"),
          of(jsonl, lines),
          of(messages, "{\"messages\": [{\"role\": \"user\", \"content\": \"ab\"}, {\"role\": \"assistant\", \"content\": \"b\\n\"}]}\n"),
          of(prompts, "{\"prompt\": \"a\", \"completion\": \"bab\"}\n"),
          of(packed, frame),
          of(packed, member),
          of(shard, testing::read_file(shards() / "shard-00000.tokens")),
          of(manifest, testing::read_file(shards() / "manifest.json")),
          of(index, megatron_index())};
}

void mutate(std::string& bytes, std::mt19937_64& random) {
  static const std::vector<std::string> words{
      "-1", "18446744073709551616", "1e999", "[]", "{}", "null", "\xff\xff\xff\xff\xff\xff\xff\x7f", std::string(8, '\0'), "\n"};
  for (std::uint64_t changes = 1 + random() % 3; changes > 0 && bytes.size() > 1; --changes) {
    const std::size_t at = 1 + random() % (bytes.size() - 1);
    switch (random() % 5) {
      case 0: bytes[at] = static_cast<char>(random()); break;
      case 1: bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8)); break;
      case 2: bytes.erase(at, 1 + random() % 16); break;
      case 3: bytes.replace(at, std::min<std::size_t>(bytes.size() - at, 1 + random() % 8), words[random() % words.size()]); break;
      default: bytes.insert(at, bytes.substr(1 + random() % (bytes.size() - 1), random() % 32)); break;
    }
  }
}

}  // namespace

int main(int count, char** arguments) {
  const auto runs = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 3000;
  std::mt19937_64 random(count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 1);
  const auto seeds = corpus();
  const auto run = [](const std::string& bytes) { LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()); };
  for (const std::string& seed : seeds) run(seed);
  if (accepted != seeds.size()) {
    std::fprintf(stderr, "only %llu of the corpus's %zu files are read\n", static_cast<unsigned long long>(accepted), seeds.size());
    return 1;
  }
  for (std::uint64_t i = 0; i < runs; ++i) {
    std::string bytes = seeds[random() % seeds.size()];
    mutate(bytes, random);
    run(bytes);
  }
  std::printf("%llu files, %llu of them read\n", static_cast<unsigned long long>(runs), static_cast<unsigned long long>(accepted));
  return 0;
}
#endif
