// Encodes documents (parted by NUL bytes) three times; prints the seconds of the best pass and the number of ids. Called by benchmarks/tokenizer.py:
//   bench_tokenizer TOKENIZER FILE THREADS
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "src/tokenizer/tokenizer.hpp"

int main(int count, char** arguments) {
  if (count != 4) return 2;
  const auto tokenizer = troupe::Tokenizer::load(arguments[1]);
  if (!tokenizer) {
    std::fprintf(stderr, "%s\n", tokenizer.error().message.c_str());
    return 1;
  }
  std::ifstream in(arguments[2], std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  std::vector<std::string_view> documents;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('\0', at), text.size());
    documents.push_back(std::string_view(text).substr(at, end - at));
    at = end + 1;
  }
  double best = 1e9;
  std::atomic<std::size_t> ids{0};
  for (int pass = 0; pass < 3; ++pass) {
    ids = 0;
    std::atomic<std::size_t> next{0};
    const auto begin = std::chrono::steady_clock::now();
    const auto work = [&] {
      troupe::TokenEncoder encoder(*tokenizer);
      std::vector<std::int32_t> out;
      for (std::size_t i = next++; i < documents.size(); i = next++) {
        out.clear();
        encoder.encode(documents[i], {.around = false, .special_in_text = true}, out);
        ids += out.size();
      }
    };
    {
      std::vector<std::jthread> threads;
      for (int i = 1; i < std::atoi(arguments[3]); ++i) threads.emplace_back(work);
      work();
    }
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::printf("%.6f %zu\n", best, ids.load());
}
