#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <stdexcept>

#include "src/data/byte_tokenizer.hpp"
#include "src/data/loader.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe {
namespace {

using testing::TemporaryFolder;
using Tokens = std::vector<std::int32_t>;

class RowSamplerTest : public ::testing::Test {
 protected:
  std::shared_ptr<const Corpus> jsonl(const std::vector<std::string>& documents) {
    std::string text;
    for (const auto& document : documents) text += "{\"text\": \"" + document + "\"}\n";
    return open(
        {.format = DataFormat::jsonl, .paths = {folder_.write("docs" + std::to_string(files_++) + ".jsonl", text)}, .index_folder = "", .progress = {}});
  }
  static std::shared_ptr<const Corpus> open(const CorpusOptions& options) {
    auto corpus = Corpus::open(options);
    if (!corpus) throw std::runtime_error(corpus.error().message);
    return *corpus;
  }
  struct Row {
    Tokens tokens, labels;
    std::uint64_t valid = 0;
  };
  static Row row_of(RowSampler& sampler, std::uint64_t k, std::uint32_t length) {
    Row row{Tokens(length), Tokens(length)};
    row.valid = sampler.row(k, row.tokens, row.labels);
    return row;
  }
  static std::vector<std::string> many(std::size_t count) {
    std::vector<std::string> documents;
    for (std::size_t i = 0; i < count; ++i) documents.push_back("d" + std::to_string(1000 + i) + std::string(i % 17, 'x'));
    return documents;
  }
  TemporaryFolder folder_;
  int files_ = 0;
};

// B011: "ab", "c", "def" with eos, without bos: 3, 2 and 4 tokens, which begin at 0, 3 and 5 and end at 9.
TEST_F(RowSamplerTest, StoredLengthsCountExactlyTheTokensOfADocument) {
  const auto corpus = jsonl({"ab", "c", "def"});
  const SamplerOptions options{.shuffle = false, .add_bos = false, .mask_document_boundaries = false, .seq_len = 9};
  EXPECT_EQ(positions_of_pass(*byte_documents(corpus), options), 9U);
  RowSampler sampler(corpus, options);
  EXPECT_EQ(row_of(sampler, 0, 9).tokens, (Tokens{97, 98, 257, 99, 257, 100, 101, 102, 257}));
  std::vector<std::uint64_t> lengths;
  for (const RowPiece& piece : sampler.pieces(0)) lengths.push_back(piece.count);
  EXPECT_EQ(lengths, (std::vector<std::uint64_t>{3, 2, 4}));
}

// B022
TEST_F(RowSamplerTest, ARowTellsWhereTheDocumentOfEachTokenBegins) {
  RowSampler sampler(jsonl({"ab", "c"}), {.shuffle = false, .seq_len = 8});
  Tokens tokens(8), labels(8), starts(8);
  (void)sampler.row(0, tokens, labels, starts);
  EXPECT_EQ(tokens, (Tokens{256, 97, 98, 256, 99, 256, 97, 98}));
  EXPECT_EQ(starts, (Tokens{0, 0, 0, 3, 3, 5, 5, 5}));
  (void)sampler.row(1, tokens, labels, starts);
  EXPECT_EQ(tokens[0], 256);
  EXPECT_EQ(starts, (Tokens{0, 0, 2, 2, 2, 5, 5, 7})) << "in the row, not in the data";
}

TEST_F(RowSamplerTest, BlendedRowsAreThoseOfTheirSourcesInTurn) {
  const auto a = jsonl({"aaaa", "aaa"}), b = jsonl({"bbbb"});
  const SamplerOptions options{.shuffle = false, .seq_len = 5};
  BlendedRows rows({byte_documents(a), byte_documents(b)}, {2, 1}, options);
  RowSampler of_a(a, options), of_b(b, options);
  std::uint64_t next_a = 0, next_b = 0;
  for (std::uint64_t k = 0; k < 30; ++k) {
    Tokens tokens(5), labels(5);
    (void)rows.row(k, tokens, labels);
    const BlendedRows::Origin origin = rows.origin(k);
    EXPECT_EQ(tokens, origin.source == 0 ? row_of(of_a, next_a, 5).tokens : row_of(of_b, next_b, 5).tokens) << k;
    EXPECT_EQ(origin.row, origin.source == 0 ? next_a++ : next_b++) << "small sources begin again, none is left out";
  }
  EXPECT_EQ(next_a, 20U);
  EXPECT_THROW(BlendedRows({byte_documents(a), byte_documents(b)}, {1}, options), std::invalid_argument);
}

// B019
TEST_F(RowSamplerTest, EveryTokenOfALongDocumentButTheFirstIsATargetOnce) {
  std::string bytes;
  for (char c = 'A'; c < 'A' + 33; ++c) bytes += c == '\\' ? '!' : c;
  RowSampler sampler(jsonl({bytes}), {.shuffle = false, .add_bos = false, .add_eos = false, .seq_len = 16});
  const Row first = row_of(sampler, 0, 16), second = row_of(sampler, 1, 16);
  for (std::size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(first.tokens[i], bytes[i]);
    EXPECT_EQ(first.labels[i], bytes[i + 1]);
    EXPECT_EQ(second.tokens[i], bytes[i + 16]);
    EXPECT_EQ(second.labels[i], bytes[i + 17]);
  }
}

// B021
TEST_F(RowSamplerTest, NoDocumentPredictsTheBeginningOfTheNext) {
  RowSampler sampler(jsonl({"ab", "cd"}), {.shuffle = false, .seq_len = 6});
  const Row row = row_of(sampler, 0, 6);
  EXPECT_EQ(row.tokens, (Tokens{256, 97, 98, 256, 99, 100}));
  EXPECT_EQ(row.labels, (Tokens{97, 98, 257, 99, 100, 257}));
  EXPECT_EQ(row.valid, 6U);
}

// B021
TEST_F(RowSamplerTest, WithoutEosTheLastTokenOfADocumentHasNoTarget) {
  RowSampler sampler(jsonl({"ab", "cd"}), {.shuffle = false, .add_eos = false, .seq_len = 6});
  const Row row = row_of(sampler, 0, 6);
  EXPECT_EQ(row.tokens, (Tokens{256, 97, 98, 256, 99, 100}));
  EXPECT_EQ(row.labels, (Tokens{97, 98, ignored_label, 99, 100, ignored_label}));
  EXPECT_EQ(row.valid, 4U);
}

TEST_F(RowSamplerTest, UnmaskedRowsAreWindowsOfThePlainConcatenation) {
  RowSampler sampler(jsonl({"ab", "cd"}), {.shuffle = false, .mask_document_boundaries = false, .seq_len = 4});
  EXPECT_EQ(row_of(sampler, 0, 4).tokens, (Tokens{256, 97, 98, 257}));
  EXPECT_EQ(row_of(sampler, 0, 4).labels, (Tokens{97, 98, 257, 256}));
  EXPECT_EQ(row_of(sampler, 1, 4).labels, (Tokens{99, 100, 257, 256})) << "the epoch wraps";
}

// B001
TEST_F(RowSamplerTest, EachEpochIsAnOrderOfItsOwnThatRepeatsFromTheSeed) {
  const auto corpus = jsonl(many(12));
  const auto pass = [&](std::uint64_t seed, std::uint64_t epoch) {
    const DocumentOrder order(12, seed, epoch, true);
    std::vector<std::uint64_t> documents;
    for (std::uint64_t i = 0; i < 12; ++i) documents.push_back(order.at(i));
    return documents;
  };
  std::set<std::vector<std::uint64_t>> orders;
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    auto documents = pass(7, epoch);
    EXPECT_EQ(documents, pass(7, epoch));
    orders.insert(documents);
    std::sort(documents.begin(), documents.end());
    for (std::uint64_t i = 0; i < 12; ++i) EXPECT_EQ(documents[i], i);
  }
  EXPECT_EQ(orders.size(), 3U);
  EXPECT_NE(pass(7, 0), pass(8, 0));
  const DocumentOrder plain(12, 7, 5, false);
  for (std::uint64_t i = 0; i < 12; ++i) EXPECT_EQ(plain.at(i), i);
}

TEST_F(RowSamplerTest, TheOrderIsAPermutationForEveryCount) {
  for (std::uint64_t count = 1; count <= 300; ++count) {
    const DocumentOrder order(count, count * 31, 4, true);
    std::vector<bool> seen(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto document = order.at(i);
      ASSERT_LT(document, count);
      ASSERT_FALSE(seen[document]) << "count " << count;
      seen[document] = true;
    }
  }
}

// B003: nothing is repeated or lost at epoch ends or by starting anywhere: every row stands on its own.
TEST_F(RowSamplerTest, RowsReadInAnyOrderGiveTheStreamOfThreeEpochs) {
  const auto documents = many(2500);  // more than two strides of the sparse table
  const auto corpus = jsonl(documents);
  const SamplerOptions options{.seed = 3, .seq_len = 16};
  Tokens expected;
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    const DocumentOrder order(documents.size(), 3, epoch, true);
    for (std::uint64_t i = 0; i < documents.size(); ++i) {
      expected.push_back(256);
      for (const char c : documents[order.at(i)]) expected.push_back(c);
    }
  }
  RowSampler sampler(corpus, options);
  EXPECT_EQ(sampler.positions_per_epoch() * 3, expected.size());
  const std::uint64_t rows = expected.size() / 16;
  for (std::uint64_t n = 0; n < rows; n += 7) {
    const std::uint64_t k = n * 5 % rows;  // jumps back and forth over epochs
    const Row row = row_of(sampler, k, 16);
    ASSERT_TRUE(std::equal(row.tokens.begin(), row.tokens.end(), expected.begin() + static_cast<std::ptrdiff_t>(k * 16))) << "row " << k;
  }
}

TEST_F(RowSamplerTest, ARowLongerThanTheDataWrapsOverSeveralEpochs) {  // B017
  RowSampler sampler(jsonl({"a"}), {.shuffle = true, .seq_len = 9});
  const Row row = row_of(sampler, 1000, 9);
  EXPECT_EQ(row.tokens, (Tokens{256, 97, 256, 97, 256, 97, 256, 97, 256}));
  EXPECT_EQ(row.labels, (Tokens{97, 257, 97, 257, 97, 257, 97, 257, 97}));
}

class Still final : public Stream {};

BatchFacts load(LoaderProgram& loader, std::uint64_t step, std::uint32_t micro, Tokens& batch) {
  Still stream;
  return loader.load(stream, Step{step}, Micro{micro}, std::as_writable_bytes(std::span(batch)));
}

// B005, B007: the rows of a step are the same set for every world, each row on one rank.
TEST_F(RowSamplerTest, TheRowsOfAStepDoNotDependOnTheNumberOfRanks) {
  const auto corpus = jsonl(many(40));
  const auto rows_of_step = [&](std::uint32_t ranks, std::uint32_t rows, std::uint32_t micros, std::uint64_t step) {
    std::multiset<Tokens> all;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const auto loader = make_loader(corpus, {.layout = {rows, 8}, .sampler = {.seed = 1}, .rank = rank, .ranks = ranks, .micro_batches = micros});
      for (std::uint32_t micro = 0; micro < micros; ++micro) {
        Tokens batch(rows * 8 * 2);
        load(*loader, step, micro, batch);
        for (std::uint32_t i = 0; i < rows; ++i) all.insert(Tokens(batch.begin() + i * 8, batch.begin() + (i + 1) * 8));
      }
    }
    return all;
  };
  for (std::uint64_t step = 1; step <= 9; ++step) {
    const auto one = rows_of_step(1, 8, 1, step);
    EXPECT_EQ(one.size(), 8U);
    EXPECT_EQ(rows_of_step(2, 2, 2, step), one) << "step " << step;
    EXPECT_EQ(rows_of_step(4, 1, 2, step), one) << "step " << step;
    EXPECT_EQ(rows_of_step(8, 1, 1, step), one) << "step " << step;
  }
}

// B178, B180: a loader made anew at any step continues as the old one would have.
TEST_F(RowSamplerTest, ARestartedLoaderRepeatsItself) {
  const auto corpus = jsonl(many(30));
  const LoaderOptions options{.layout = {2, 8}, .sampler = {.seed = 5}, .rank = 1, .ranks = 2, .micro_batches = 2};
  const auto steady = make_loader(corpus, options);
  for (std::uint64_t step = 1; step <= 20; ++step) {
    for (std::uint32_t micro = 0; micro < 2; ++micro) {
      Tokens a(32), b(32);
      const auto facts = load(*steady, step, micro, a);
      const auto again = load(*make_loader(corpus, options), step, micro, b);
      EXPECT_EQ(a, b);
      EXPECT_EQ(facts.digest, again.digest);
      EXPECT_EQ(facts.valid_tokens, again.valid_tokens);
    }
  }
}

TEST_F(RowSamplerTest, AChangedGlobalBatchGoesOnAtTheNextRow) {
  const auto corpus = jsonl(many(30));
  const LoaderOptions before{.layout = {2, 8}, .sampler = {.seed = 5}};
  LoaderOptions after{.layout = {3, 8}, .sampler = {.seed = 5}};
  after.first_step = Step{11};
  after.first_row = before.row_of(Step{11});
  EXPECT_EQ(after.row_of(Step{11}), 20U);
  EXPECT_EQ(after.row_of(Step{12}), 23U);
}

// B026
TEST_F(RowSamplerTest, ARankOutsideItsWorldIsRefused) {
  const auto corpus = jsonl({"ab"});
  EXPECT_THROW((void)make_loader(corpus, {.layout = {1, 4}, .sampler = {}, .rank = 2, .ranks = 2}), std::invalid_argument);
  EXPECT_THROW((void)make_loader(corpus, {.layout = {1, 4}, .sampler = {}, .rank = 0, .ranks = 0}), std::invalid_argument);
}

TEST_F(RowSamplerTest, ABatchSlotTooSmallIsRefused) {
  const auto loader = make_loader(jsonl({"ab"}), {.layout = {1, 4}, .sampler = {}});
  Tokens small(7);
  EXPECT_THROW(load(*loader, 1, 0, small), std::invalid_argument);
}

TEST_F(RowSamplerTest, AFileThatShrankAfterIndexingIsNamed) {
  const auto path = folder_.write("plain.txt", "some words that stand here");
  const auto corpus = open({.format = DataFormat::text, .paths = {path}, .index_folder = "", .progress = {}});
  folder_.write("plain.txt", "some");
  RowSampler sampler(corpus, {.seq_len = 16});
  try {
    row_of(sampler, 0, 16);
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(std::string(error.what()), path + ": cannot read at byte 4: the file is shorter than when it was indexed");
  }
}

}  // namespace
}  // namespace troupe
