// Embedding and cross entropy, against fp64 on the host.
#include "src/device/cuda/kernels/cross_entropy.hpp"
#include "src/device/cuda/kernels/embedding.hpp"
#include "tests/cuda_kernels/device_array.hpp"

namespace troupe::cuda {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

template <class T>
void expect_cross_entropy(std::int64_t rows, std::int64_t columns, double deviation) {
  Random random(static_cast<std::uint64_t>(columns + rows));
  const auto logits = random.values<T>(at(rows * columns), deviation);
  std::vector<std::int32_t> labels(at(rows));
  for (auto& label : labels) label = static_cast<std::int32_t>(random.bits() % static_cast<std::uint32_t>(columns));
  if (rows > 2) labels[1] = -100;
  labels[0] = static_cast<std::int32_t>(columns - 1);
  const double grad_scale = 0.25;
  std::vector<double> wanted(logits.size());
  double loss = 0, tokens = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    if (labels[at(r)] < 0) continue;
    double top = -1e300, sum = 0;
    for (std::int64_t c = 0; c < columns; ++c) top = std::max(top, wide(logits[at(r * columns + c)]));
    for (std::int64_t c = 0; c < columns; ++c) sum += std::exp(wide(logits[at(r * columns + c)]) - top);
    for (std::int64_t c = 0; c < columns; ++c) {
      const double p = std::exp(wide(logits[at(r * columns + c)]) - top) / sum;
      wanted[at(r * columns + c)] = (p - (c == labels[at(r)] ? 1 : 0)) * grad_scale;
    }
    loss += std::log(sum) + top - wide(logits[at(r * columns + labels[at(r)])]);
    tokens += 1;
  }
  const DeviceArray<T> device_logits(logits);
  const DeviceArray<std::int32_t> device_labels(labels);
  const DeviceArray<VerdictSums> sums(std::vector<VerdictSums>{{1, 2, 3, 4, 5}});
  const DeviceArray<float> losses(at(rows));
  cross_entropy(stream, {device_logits.get(), element_of<T>, device_labels.get(), rows, columns, grad_scale, sums.get(), losses.get()});
  const VerdictSums found = sums.host()[0];
  EXPECT_NEAR(found.loss - 2, loss, 2e-6 * loss + 1e-6 * tokens);
  EXPECT_EQ(found.tokens, 3 + tokens);
  EXPECT_EQ(found.bad, 4);
  EXPECT_EQ(found.grad_square, 1);
  EXPECT_EQ(found.tag, 5);
  expect_close(device_logits.host(), wanted, "gradient", std::is_same_v<T, float> ? 1e-5 : rounding<T>);
}

TEST(CrossEntropy, AgreesWithFp64AndAddsToTheSums) {
  for (const auto& [rows, columns] :
       {std::pair<std::int64_t, std::int64_t>{40, 128256}, {9, 32000}, {5, 151936}, {7, 50257}, {300, 257}, {3, 8}, {2, 270000}}) {
    SCOPED_TRACE(testing::Message() << rows << " x " << columns);
    expect_cross_entropy<BFloat16>(rows, columns, 2);
    expect_cross_entropy<float>(rows, columns, 10);
  }
}

TEST(CrossEntropy, CountsBadRowsAndZeroesRowsWithoutALabel) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::int64_t rows = 6, columns = 128256;
  std::vector<float> logits(at(rows * columns), 0.5F);
  logits[at(0 * columns + 100)] = std::numeric_limits<float>::quiet_NaN();
  logits[at(1 * columns + 128255)] = inf;
  for (std::int64_t c = 0; c < columns; ++c) {
    if (c != 7) logits[at(2 * columns + c)] = -inf;  // one possible class: loss zero
    logits[at(3 * columns + c)] = -inf;
  }
  const DeviceArray<float> device_logits(logits), losses(at(rows));
  const DeviceArray<std::int32_t> labels(std::vector<std::int32_t>{5, 5, 7, 0, -1, 128256});
  const DeviceArray<VerdictSums> sums(std::vector<VerdictSums>{VerdictSums{}});
  cross_entropy(stream, {device_logits.get(), Element::f32, labels.get(), rows, columns, 1.0, sums.get(), losses.get()});
  const VerdictSums found = sums.host()[0];
  EXPECT_EQ(found.tokens, 5);
  EXPECT_EQ(found.bad, 4);  // NaN, infinity, nothing possible, a label outside the vocabulary
  EXPECT_EQ(losses.host()[2], 0.0F);
  const auto gradient = device_logits.host();
  for (std::int64_t c = 0; c < columns; ++c) {
    ASSERT_EQ(gradient[at(2 * columns + c)], 0.0F) << c;
    ASSERT_EQ(gradient[at(4 * columns + c)], 0.0F) << c;
    ASSERT_EQ(gradient[at(5 * columns + c)], 0.0F) << c;
  }
}

TEST(CrossEntropy, ReachesTheLastRowOfTwoBillionLogits) {
  const std::int64_t rows = 16384, columns = 128256;
  void* logits = nullptr;
  check(cudaMalloc(&logits, at(rows * columns) * sizeof(BFloat16)), "logits");
  check(cudaMemset(logits, 0, at(rows * columns) * sizeof(BFloat16)), "logits");
  const DeviceArray<std::int32_t> labels(std::vector<std::int32_t>(at(rows), 128255));
  const DeviceArray<VerdictSums> sums(std::vector<VerdictSums>{VerdictSums{}});
  const DeviceArray<float> losses(at(rows));
  cross_entropy(stream, {logits, Element::bf16, labels.get(), rows, columns, 1.0, sums.get(), losses.get()});
  const VerdictSums found = sums.host()[0];
  EXPECT_NEAR(found.loss, static_cast<double>(rows) * std::log(128256.0), 1e-2);
  EXPECT_EQ(found.tokens, 16384);
  EXPECT_EQ(found.bad, 0);
  std::vector<BFloat16> last(at(columns));
  check(cudaMemcpy(last.data(), static_cast<BFloat16*>(logits) + (rows - 1) * columns, last.size() * sizeof(BFloat16), cudaMemcpyDeviceToHost), "logits");
  check(cudaFree(logits), "logits");
  for (std::size_t c = 0; c + 1 < last.size(); ++c) ASSERT_EQ(wide(last[c]), wide(to<BFloat16>(1 / 128256.0))) << c;
  EXPECT_EQ(wide(last.back()), wide(to<BFloat16>(1 / 128256.0 - 1)));
}

template <class T>
void expect_embedding(std::int64_t count, std::int64_t vocabulary, std::int64_t columns, bool accumulate) {
  Random random(static_cast<std::uint64_t>(count));
  const auto table = random.values<T>(at(vocabulary * columns)), dout = random.values<T>(at(count * columns));
  const auto old = random.values<float>(at(vocabulary * columns));
  std::vector<std::int32_t> tokens(at(count));
  for (auto& token : tokens) token = random.bits() % 3 == 0 ? 1 : static_cast<std::int32_t>(random.bits() % static_cast<std::uint32_t>(vocabulary));
  std::vector<double> wanted(old.size());
  if (accumulate) wanted.assign(old.begin(), old.end());
  const DeviceArray<std::int32_t> device_tokens(tokens);
  const DeviceArray<T> device_table(table), out(dout.size()), device_dout(dout);
  const DeviceArray<float> dtable(old);
  const DeviceArray<std::uint8_t> scratch(embedding_backward_scratch(count, columns));
  embedding(stream, device_tokens.get(), count, device_table.get(), vocabulary, columns, element_of<T>, out.get());
  embedding_backward(stream, {device_tokens.get(), device_dout.get(), element_of<T>, dtable.get(), accumulate, count, vocabulary, columns, scratch.get()});
  const auto looked_up = out.host();
  for (std::int64_t t = 0; t < count; ++t) {
    for (std::int64_t c = 0; c < columns; ++c) {
      ASSERT_EQ(wide(looked_up[at(t * columns + c)]), wide(table[at(tokens[at(t)] * columns + c)]));
      wanted[at(tokens[at(t)] * columns + c)] += wide(dout[at(t * columns + c)]);
    }
  }
  const auto first = dtable.host();
  expect_close(first, wanted, "dtable", 1e-6);
  const DeviceArray<float> again(old);
  embedding_backward(stream, {device_tokens.get(), device_dout.get(), element_of<T>, again.get(), accumulate, count, vocabulary, columns, scratch.get()});
  EXPECT_EQ(again.host(), first) << "does not repeat bit for bit";
}

TEST(Embedding, LooksUpAndAddsUpWhatOccursOnceAndWhatOccursAThousandTimes) {
  for (const bool accumulate : {false, true}) {
    expect_embedding<BFloat16>(1000, 500, 4096, accumulate);
    expect_embedding<float>(3000, 1024, 64, accumulate);
    expect_embedding<BFloat16>(37, 11, 13, accumulate);
    expect_embedding<float>(1, 2, 8, accumulate);
    expect_embedding<BFloat16>(4096, 2, 264, accumulate);
    expect_embedding<BFloat16>(95, 2, 8, accumulate);
  }
}

TEST(Embedding, MarksIdsOutsideTheTableAndAddsNothingForThem) {
  const DeviceArray<std::int32_t> tokens(std::vector<std::int32_t>{1, -1, 4, 2});
  const DeviceArray<float> table(std::vector<float>(32, 3.0F)), out(32), dout(std::vector<float>(32, 1.0F)), dtable(32);
  const DeviceArray<std::uint8_t> scratch(embedding_backward_scratch(4, 8));
  embedding(stream, tokens.get(), 4, table.get(), 4, 8, Element::f32, out.get());
  embedding_backward(stream, {tokens.get(), dout.get(), Element::f32, dtable.get(), false, 4, 4, 8, scratch.get()});
  const auto rows = out.host(), sums = dtable.host();
  for (std::size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(std::isnan(rows[i]), i / 8 == 1 || i / 8 == 2);
    EXPECT_EQ(sums[i], i / 8 == 1 || i / 8 == 2 ? 1.0F : 0.0F);
  }
}

}  // namespace
}  // namespace troupe::cuda
