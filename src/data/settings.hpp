#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/base/schema.hpp"
#include "src/data/blend_weights.hpp"
#include "src/data/kept_tokenizer.hpp"

namespace troupe {

/// [training] dataset, dataset_path and [data]: what is read and who reads it.
struct DataSettings {
  std::string dataset = "text";            ///< text | jsonl | parquet | arrow | tokens | megatron
  std::vector<std::string> dataset_path;   ///< files or globs; the set of files is sorted, so their order does not depend on the file system
  std::int64_t loader_hosts = 0;           ///< extra processes that load data; 0: each rank loads its own
  bool mask_document_boundaries = true;    ///< the target after a document's last token is ignored
  bool isolate_documents = false;          ///< attention stays within a token's document
  std::vector<double> blend_weights = {};  ///< one for each entry of dataset_path; empty: all of them are one source
  double blend_temperature = 1;            ///< weights are raised to 1 / this
  std::string records = "text";            ///< text | messages | prompt_completion: what a record of jsonl, parquet or arrow holds
  std::string text_key = "text";           ///< key or column of a text
  bool train_on_input = false;             ///< of messages and prompt_completion: what is no answer is a target too
  std::optional<std::string> chat_template = {};
  bool shuffle = true;
  bool allow_binary = false;
  bool add_bos = true, add_eos = true;  ///< around each document
  std::int64_t unpack_limit_gib = 100;  ///< of plain copies of compressed files
  double slow_read_seconds = 5;         ///< a read that takes longer is told with its file
  std::string on_error = "stop";        ///< stop | skip: what a broken record does
  bool special_tokens_in_text = false;  ///< text that spells a special token becomes it
  /// Not a key: the run's tokenizer, once it is open; copies share it.
  std::shared_ptr<KeptTokenizer> tokenizer = std::make_shared<KeptTokenizer>();
};

/// What is wrong with data.blend_weights; empty: nothing.
[[nodiscard]] inline std::string blend_problem(const DataSettings& s) {
  if (s.blend_weights.empty()) return {};
  const auto entries = std::ranges::count_if(s.dataset_path, [](const std::string& entry) { return !entry.starts_with('!'); });
  if (static_cast<std::ptrdiff_t>(s.blend_weights.size()) != entries)
    return std::to_string(s.blend_weights.size()) + " weights for the " + std::to_string(entries) + " entries of training.dataset_path; each entry is a source";
  return weights_problem(s.blend_weights);
}

/// The weights of the blend's sources: w^(1/T). Empty: one source.
[[nodiscard]] inline std::vector<double> blend_of(const DataSettings& s) {
  std::vector<double> weights = s.blend_weights;
  for (double& weight : weights) weight = weight > 0 ? std::pow(weight, 1 / s.blend_temperature) : 0;
  return weights;
}

/// The entries of dataset_path that are sources of their own where there is a blend.
[[nodiscard]] inline std::vector<std::string> source_entries(const DataSettings& s) {
  std::vector<std::string> entries;
  if (s.blend_weights.empty()) return entries;
  std::ranges::copy_if(s.dataset_path, std::back_inserter(entries), [](const std::string& entry) { return !entry.starts_with('!'); });
  return entries;
}

/// [training.dataloader], [validation.dataloader]: settings of PyTorch's loader processes.
inline void describe_dataloader(Schema& schema, const std::string& of) {
  const std::string loader = "an actor reads ahead, see [slots] batches and data.loader_hosts";
  schema.section(of + ".dataloader", "PyTorch's loader processes.");
  schema.ignored("num_workers", 0, loader);
  schema.ignored("persistent_workers", false, loader);
  schema.ignored("pin_memory", false, loader);
  schema.ignored("prefetch_factor", std::optional<std::int64_t>{}, loader);
}

inline void describe(Schema& schema, DataSettings& s) {
  schema.section("training");
  schema
      .key("dataset", &s.dataset, KeyClass::frozen,
           "form of the data: text (documents parted by lines of a single %, or one document a file), jsonl ({\"text\": …} a line), parquet or arrow (a row of "
           "a table; "
           "tools/setup.sh --parquet), tokens (a folder that `troupe tokenize` made) or megatron (PREFIX.idx and PREFIX.bin)")
      .built_only({"text", "jsonl", "parquet", "arrow", "tokens", "megatron"}, "data sets by name; `training.dataset_path` names files");
  schema.key("dataset_path", &s.dataset_path, KeyClass::frozen, "file, glob or list of them; one that begins with ! leaves out what it matches")
      .or_single()
      .apart();
  schema.section("data", "How data is read.");
  schema.key("loader_hosts", &s.loader_hosts, KeyClass::epoch, "processes that only load data; 0: each rank loads its own").at_least(0).at_most(1024);
  schema.key("mask_document_boundaries", &s.mask_document_boundaries, KeyClass::frozen,
             "do not train on the first token of a document as the target of the one before");
  schema.key("isolate_documents", &s.isolate_documents, KeyClass::frozen,
             "attention sees the tokens of its own document alone (torchtitan's block_causal mask); false: the whole row");
  schema.key("blend_weights", &s.blend_weights, KeyClass::frozen,
             "how often rows of each entry of training.dataset_path are taken, in that order, each entry a source that begins anew when it is used up; they "
             "need not add up to 1. Empty: all files are one source");
  schema
      .key("blend_temperature", &s.blend_temperature, KeyClass::frozen,
           "weights of the blend are raised to 1/this: 1 leaves them, a higher one makes them more alike (with sizes as weights, small sources are taken more "
           "often)")
      .above(0);
  schema
      .key("records", &s.records, KeyClass::frozen,
           "what a record of jsonl, parquet or arrow holds: text, messages (a list of {role, content}) or prompt_completion; of the last two the answers are "
           "trained on")
      .one_of({"text", "messages", "prompt_completion"});
  schema.key("text_key", &s.text_key, KeyClass::frozen, "key of a JSONL object, or column of a table, that holds the text");
  schema.key("train_on_input", &s.train_on_input, KeyClass::frozen, "messages and prompt_completion: train on what is no answer, too");
  schema
      .key("chat_template", &s.chat_template, KeyClass::frozen,
           "messages: how turns are marked, llama3 or chatml; unset: the one whose marks the tokenizer has")
      .one_of({"llama3", "chatml"});
  schema.key("shuffle", &s.shuffle, KeyClass::frozen, "each pass over the data has its own order of documents, from debug.seed; false: the order of the files");
  schema.key("allow_binary", &s.allow_binary, KeyClass::frozen, "accept files that hold NUL bytes");
  schema.key("add_bos", &s.add_bos, KeyClass::frozen,
             "each document begins with the tokenizer's beginning-of-sequence token, if it has one; 256 where tokens are bytes");
  schema.key("add_eos", &s.add_eos, KeyClass::frozen,
             "each document ends with the tokenizer's end-of-sequence token, if it has one; 257 where tokens are bytes");
  schema.key("unpack_limit_gib", &s.unpack_limit_gib, KeyClass::frozen, "GiB that plain copies of gzip and zstd files may take in job.dump_folder/index")
      .at_least(0);
  schema.key("slow_read_seconds", &s.slow_read_seconds, KeyClass::frozen, "a read of data that takes longer is a warning with file and time").above(0);
  schema.key("on_error", &s.on_error, KeyClass::frozen, "a broken JSONL record: stop (refused with file and line) or skip (left out and counted)")
      .one_of({"stop", "skip"});
  schema.key("special_tokens_in_text", &s.special_tokens_in_text, KeyClass::frozen,
             "text that spells a special token (<|eot_id|>, …) becomes that token; false: it is text like any other");
  describe_dataloader(schema, "training");
}

/// [validation]: what is evaluated, and when. How the data is read ([data]) is that of the training.
struct ValidationSettings {
  bool enable = false;
  std::string dataset = "text";
  std::vector<std::string> dataset_path;
  std::int64_t local_batch_size = 8, seq_len = 2048, freq = 10, steps = -1;
};

inline void describe(Schema& schema, ValidationSettings& s) {
  schema.section("validation", "Loss on data of its own, between steps; training is the same bit for bit with and without.");
  schema.key("enable", &s.enable, KeyClass::epoch, "validate after step 1 and every `freq` steps");
  schema.key("dataset", &s.dataset, KeyClass::frozen, "form of the data, as training.dataset")
      .built_only({"text", "jsonl", "parquet", "arrow", "tokens", "megatron"}, "data sets by name; `validation.dataset_path` names files")
      .part_of("validation.enable");
  schema.key("dataset_path", &s.dataset_path, KeyClass::frozen, "file, glob or list of them, as training.dataset_path").or_single().apart();
  schema.key("local_batch_size", &s.local_batch_size, KeyClass::epoch, "rows of one micro-batch on one rank").at_least(1);
  schema.key("seq_len", &s.seq_len, KeyClass::epoch, "tokens of a row").at_least(1);
  schema.key("freq", &s.freq, KeyClass::live, "steps between validations").at_least(1);
  schema.key("steps", &s.steps, KeyClass::epoch, "batches of one validation on each rank; -1: as many as all rows of the data take").at_least(-1).not_zero();
  describe_dataloader(schema, "validation");
}

}  // namespace troupe
