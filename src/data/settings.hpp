#pragma once
#include <cstdint>
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
};

inline void describe(Schema& schema, DataSettings& s) {
  schema.section("training");
  schema
      .key("dataset", &s.dataset, KeyClass::frozen,
           "form of the data: text (documents parted by lines of a single %, or one document a file) or jsonl ({\"text\": …} a line)")
      .one_of({"text", "jsonl"});
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
}

}  // namespace troupe
