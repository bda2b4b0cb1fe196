#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/base/schema.hpp"

namespace troupe {

/// [training] dataset, dataset_path and [data]: what is read and who reads it.
struct DataSettings {
  std::string dataset = "text";           ///< text | jsonl
  std::vector<std::string> dataset_path;  ///< files or globs; the set of files is sorted, so their order does not depend on the file system
  std::int64_t loader_hosts = 0;          ///< extra processes that load data; 0: each rank loads its own
  bool mask_document_boundaries = true;   ///< the target after a document's last token is ignored
  bool shuffle = true;
  bool allow_binary = false;
  bool add_bos = true, add_eos = true;  ///< around each document
  std::int64_t unpack_limit_gib = 100;  ///< of plain copies of compressed files
  double slow_read_seconds = 5;         ///< a read that takes longer is told with its file
};

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
           "form of the data: text (documents parted by lines of a single %, or one document a file) or jsonl ({\"text\": …} a line)")
      .built_only({"text", "jsonl"}, "data sets by name; `training.dataset_path` names files");
  schema.key("dataset_path", &s.dataset_path, KeyClass::frozen, "file, glob or list of them; one that begins with ! leaves out what it matches")
      .or_single()
      .apart();
  schema.section("data", "How data is read.");
  schema.key("loader_hosts", &s.loader_hosts, KeyClass::epoch, "processes that only load data; 0: each rank loads its own").at_least(0).at_most(1024);
  schema.key("mask_document_boundaries", &s.mask_document_boundaries, KeyClass::frozen,
             "do not train on the first token of a document as the target of the one before");
  schema.key("shuffle", &s.shuffle, KeyClass::frozen, "each pass over the data has its own order of documents, from debug.seed; false: the order of the files");
  schema.key("allow_binary", &s.allow_binary, KeyClass::frozen, "accept files that hold NUL bytes");
  schema.key("add_bos", &s.add_bos, KeyClass::frozen, "each document begins with token 256");
  schema.key("add_eos", &s.add_eos, KeyClass::frozen, "each document ends with token 257");
  schema.key("unpack_limit_gib", &s.unpack_limit_gib, KeyClass::frozen, "GiB that plain copies of gzip and zstd files may take in job.dump_folder/index")
      .at_least(0);
  schema.key("slow_read_seconds", &s.slow_read_seconds, KeyClass::frozen, "a read of data that takes longer is a warning with file and time").above(0);
  describe_dataloader(schema, "training");
}

/// [validation]
inline void describe_validation(Schema& schema) {
  schema.section("validation", "Loss on data of its own, between steps.");
  const std::string missing = "validation";
  schema.not_built("enable", false, "validate", missing);
  schema.not_built("dataset", "text", "form of the data", missing).part_of("validation.enable");
  schema.not_built("dataset_path", std::vector<std::string>{}, "file, glob or list of them", missing).or_single().part_of("validation.enable");
  schema.not_built("local_batch_size", 8, "rows of one micro-batch on one rank", missing).at_least(1).part_of("validation.enable");
  schema.not_built("seq_len", 2048, "tokens of a row", missing).at_least(1).part_of("validation.enable");
  schema.not_built("freq", 10, "steps between validations", missing).at_least(1).part_of("validation.enable");
  schema.not_built("steps", -1, "batches of one validation; -1: all", missing).at_least(-1).not_zero().part_of("validation.enable");
  describe_dataloader(schema, "validation");
}

}  // namespace troupe
