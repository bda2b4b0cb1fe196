// Fuzz target: whatever a tokenizer's file says, reading it gives an error or a tokenizer that encodes and decodes. Built with -DTROUPE_LIBFUZZER=ON and
// clang it is a libFuzzer program; otherwise main() below mutates two files, always in the same way: fuzz_tokenizer_file [RUNS [SEED]].
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>

#include "src/tokenizer/tokenizer_file.hpp"

namespace {

using namespace troupe;

std::uint64_t accepted = 0;

void use(Result<TokenizerParts> parts) {
  if (!parts) {
    if (parts.error().message.empty()) throw std::runtime_error("refused without a word");
    return;
  }
  if (parts->texts.empty()) return;
  ++accepted;
  const auto tokenizer = std::make_shared<const Tokenizer>(std::move(*parts));
  TokenEncoder encoder(tokenizer);
  for (const bool special : {true, false}) {
    std::vector<std::int32_t> ids;
    encoder.encode("Ab  1234 don't\n\xff <s>\xe2\x82\xac", {.around = special, .special_in_text = special}, ids);
    for (const auto id : ids)
      if (id < 0 || id >= tokenizer->vocabulary()) throw std::runtime_error("id " + std::to_string(id) + " of " + std::to_string(tokenizer->vocabulary()));
    (void)tokenizer->decode(ids, special);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    use(text.starts_with('{') ? read_tokenizer_json(text, "fuzzed.json") : read_tiktoken(text, "fuzzed.model"));
  } catch (const std::runtime_error& error) {
    if (std::string_view(error.what()).find("splitting a text") == std::string_view::npos) throw;  // a pattern may be too slow: that is said
  }
  return 0;
}

#ifndef TROUPE_LIBFUZZER
namespace {

constexpr std::string_view json = R"({"added_tokens":[{"id":9,"content":"<s>","special":true,"lstrip":true,"normalized":false},{"id":10,"content":"<0x41>"}],
"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Prepend","prepend":"_"},{"type":"Replace","pattern":{"String":" "},"content":"_"},{"type":"Strip"}]},
"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"(?i:'s|'t)|[^\\r\\n\\p{L}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}]+|\\s+(?!\\S)|\\s+"},
"behavior":"Isolated","invert":false},{"type":"Digits","individual_digits":true},{"type":"Metaspace","replacement":"_","prepend_scheme":"first"}]},
"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}}],"special_tokens":{"<s>":{"id":"<s>","ids":[9]}}},
"decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"_"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]},
"model":{"type":"BPE","unk_token":"a","byte_fallback":true,"fuse_unk":true,"ignore_merges":false,
"vocab":{"a":0,"b":1,"ab":2,"_":3,"_a":4,"1":5,"<0xE2>":6,"<0x82>":7,"<0xAC>":8},"merges":["a b",["_","a"]]}})";

std::string tiktoken() {
  std::string text;
  static constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (unsigned byte = 0; byte < 256; ++byte) text += std::string{digits[byte >> 2U], digits[(byte & 3U) << 4U]} + "== " + std::to_string(byte) + "\n";
  return text + "YWI= 256\nYWJj 257\n";
}

}  // namespace

int main(int count, char** arguments) {
  const auto runs = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 3000;
  std::mt19937_64 random(count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 7);
  const std::string files[] = {std::string(json), tiktoken()};
  for (std::uint64_t run = 0; run < runs; ++run) {
    std::string text = files[run % 8 == 0 ? 1 : 0];
    for (auto changes = random() % 4; changes > 0; --changes) {
      const std::size_t at = random() % text.size(), length = 1 + random() % 12;
      switch (random() % 4) {
        case 0: text[at] = static_cast<char>(random()); break;
        case 1: text.erase(at, length); break;
        case 2: text.insert(at, text.substr(random() % text.size(), length)); break;
        default: text[at] = "{}[]\":,0123456789-\\ ()?*+|."[random() % 27]; break;
      }
      if (text.empty()) text = " ";
    }
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  }
  std::printf("%llu files, %llu of them read\n", static_cast<unsigned long long>(runs), static_cast<unsigned long long>(accepted));
  return accepted > runs / 20 ? 0 : 1;
}
#endif
