#pragma once
#include <memory>
#include <mutex>
#include <string>

namespace troupe {

class Tokenizer;

/// The tokenizer that was opened last: those who share this share it while its files stay. Filled by open_tokenizer; any thread.
struct KeptTokenizer {
  std::mutex mutex;
  std::string state;  ///< its files, with sizes and times
  std::shared_ptr<const Tokenizer> tokenizer;
};

}  // namespace troupe
