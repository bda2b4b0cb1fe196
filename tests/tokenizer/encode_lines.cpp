#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include "src/tokenizer/tokenizer.hpp"

// Encodes texts for the comparison with the `tokenizers` package (parity.py).
//   tokenizer_encode TOKENIZER TEXTS IDS [around] [special]
// TEXTS: for each text its number of bytes (4, little endian) and the bytes; IDS likewise: the number of ids and the ids of 4 bytes each, then the number of
// bytes and the bytes of the text that they decode to.
namespace {

void put(std::ofstream& out, std::uint32_t value) { out.write(reinterpret_cast<const char*>(&value), sizeof value); }

}  // namespace

int main(int count, char** arguments) {
  if (count < 4) return 2;
  const auto tokenizer = troupe::Tokenizer::load(arguments[1]);
  if (!tokenizer) {
    std::cerr << tokenizer.error().message << '\n';
    return 1;
  }
  troupe::EncodeOptions options;
  for (int i = 4; i < count; ++i) {
    if (arguments[i] == std::string("around")) options.around = true;
    if (arguments[i] == std::string("special")) options.special_in_text = true;
  }
  std::ifstream in(arguments[2], std::ios::binary);
  const std::string texts{std::istreambuf_iterator<char>(in), {}};
  std::ofstream out(arguments[3], std::ios::binary);
  troupe::TokenEncoder encoder(*tokenizer);
  std::vector<std::int32_t> ids;
  for (std::size_t at = 0; at + 4 <= texts.size();) {
    std::uint32_t bytes = 0;
    texts.copy(reinterpret_cast<char*>(&bytes), 4, at);
    ids.clear();
    encoder.encode(std::string_view(texts).substr(at + 4, bytes), options, ids);
    at += 4 + bytes;
    put(out, static_cast<std::uint32_t>(ids.size()));
    out.write(reinterpret_cast<const char*>(ids.data()), static_cast<std::streamsize>(ids.size() * sizeof ids[0]));
    const std::string text = (*tokenizer)->decode(ids, false);
    put(out, static_cast<std::uint32_t>(text.size()));
    out.write(text.data(), static_cast<std::streamsize>(text.size()));
  }
  return out ? 0 : 1;
}
