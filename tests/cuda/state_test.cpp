#include <array>
#include <initializer_list>

#include "src/device/fused_kernels.hpp"
#include "src/device/verdict.hpp"
#include "tests/cuda/twin.hpp"

// What happens between two steps on a GPU: the verdict, the optimizer, masters put where they are gathered.
namespace troupe::test {
namespace {

class CudaState : public OnBothDevices {};
INSTANTIATE_TEST_SUITE_P(Types, CudaState, ::testing::Values(DType::f32, DType::bf16), [](const auto& test) { return std::string(name_of(test.param)); });

/// In one launch where the addresses suit it, one by one where they do not: what quantize and cast make, and count.
TEST_P(CudaState, MastersOfAUnitAreCopiedAtOnce) {
  const Twin a = twin(DType::f32, {31, 65}, 30.0), b = twin(DType::f32, {64, 128}), c = twin(DType::f32, {128}), e = twin(DType::f32, {3, 5});
  const Twin codes_a = twin(DType::e4m3, {31, 65}), codes_b = twin(DType::e4m3, {64, 128}), half = twin(DType::bf16, {128}), whole = twin(DType::f32, {128});
  const Twin room = twin(DType::f32, {16});
  Twin scales = twin(DType::f32, {3}), counts = twin(DType::f64, {2});
  counts.set([](std::size_t) { return 0.0; });                     // whole numbers add up to the same in any order
  scales.set([](std::size_t i) { return i == 0 ? 20.0 : 64.0; });  // some of the first are beyond the format
  on_both([&](Device& d, Kernels& k, Stream& on) {
    const float* scale = scales.on(d).as<const float>();
    auto* const found = counts.on(d).as<Float8Counts>();
    const TensorView odd = TensorView::contiguous(room.on(d).data + 3, DType::e4m3, {3, 5}, d.info().id);
    const std::array<ShardCopy, 5> copies{ShardCopy{a.on(d), codes_a.on(d), scale}, ShardCopy{b.on(d), codes_b.on(d), scale + 1},
                                          ShardCopy{c.on(d), half.on(d)}, ShardCopy{c.on(d), whole.on(d)}, ShardCopy{e.on(d), odd, scale + 2}};
    if (auto* fused = dynamic_cast<FusedKernels*>(&k)) return fused->copy_shards(on, copies, found);
    for (const ShardCopy& copy : copies) {
      if (copy.scale != nullptr) {
        k.quantize(on, copy.from, copy.scale, copy.to, found);
      } else {
        k.cast(on, copy.from, copy.to);
      }
    }
  });
  for (const Twin* to : std::initializer_list<const Twin*>{&codes_a, &codes_b, &half, &whole, &room, &counts}) EXPECT_TRUE(to->same_bits());
  EXPECT_GT(counts.found()[0], 0.0) << "beyond the format";
}

/// Gradients that were rounded to bf16: the same step as of their values in fp32, the squares and a table's gradient as on the CPU.
TEST_P(CudaState, GradientsInBfloat16MakeTheStepsOfTheirValues) {
  for (const Shape& shape : {Shape{31, 65}, Shape{64, 128}}) {
    const Twin half = twin(DType::bf16, shape), p = twin(DType::f32, shape), m = twin(DType::f32, shape, 0.1), q = twin(DType::f32, shape);
    const Twin n = twin(DType::f32, shape, 0.1), whole = twin(DType::f32, shape);
    Twin v = twin(DType::f32, shape), u = twin(DType::f32, shape), counts = twin(DType::i64, {2}), sums = twin(DType::f64, {5});
    const Twin said = twin(DType::u8, {sizeof(Verdict)});
    for (Twin* second : {&v, &u}) second->set([](std::size_t i) { return 1e-3 * static_cast<double>(i % 17 + 1); });
    counts.set([](std::size_t) { return 4.0; });
    sums.set([](std::size_t i) { return std::array<double, 5>{0.0, 12.0, 30.0, 0.0, 2.0}[i]; });
    on_both([&](Device& d, Kernels& k, Stream& on) {
      auto* all = sums.on(d).as<VerdictSums>();
      auto* verdict = said.on(d).as<Verdict>();
      k.cast(on, p.on(d), q.on(d));
      k.cast(on, m.on(d), n.on(d));
      k.cast(on, half.on(d), whole.on(d));
      k.sum_squares(on, half.on(d), &all->grad_square);
      k.decide(on, all, 1.0, 2.0, 32.0, 1.0, nullptr, verdict);
      const AdamWStep step{.learning_rate = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
      auto* count = counts.on(d).as<std::int64_t>();
      k.adamw(on, p.on(d), half.on(d), m.on(d), v.on(d), count, step, verdict);
      k.adamw(on, q.on(d), whole.on(d), n.on(d), u.on(d), count + 1, step, verdict);
    });
    EXPECT_LT(sums.difference(), 1e-12);
    EXPECT_LT(p.difference(), 1e-6);
    EXPECT_EQ(p.gpu_bytes(), q.gpu_bytes());
    EXPECT_EQ(m.gpu_bytes(), n.gpu_bytes());
    EXPECT_EQ(v.gpu_bytes(), u.gpu_bytes());
  }
  const DType type = GetParam();
  for (const std::int64_t columns : {13, 64}) {
    Twin tokens = twin(DType::i32, {90});
    tokens.set([](std::size_t i) { return i % 3 == 0 ? 1.0 : static_cast<double>(i * 7 % 40); });
    const Twin dout = twin(type, {90, columns}), table = twin(type, {41, columns});
    on_both([&](Device& d, Kernels& k, Stream& on) { k.embedding_backward(on, tokens.on(d), dout.on(d), table.on(d), false); });
    EXPECT_LT(table.difference(), tolerance(type)) << columns << " columns";
  }
}

TEST_P(CudaState, TheVerdictAndTheOptimizerAreTheCpus) {
  const std::int64_t rows = 31, columns = 65;
  const Twin parameter = twin(DType::f32, {rows, columns}), gradient = twin(DType::f32, {rows, columns});
  const Twin first = twin(DType::f32, {rows, columns}, 0.1);
  Twin second = twin(DType::f32, {rows, columns}), count = twin(DType::i64, {1}), sums = twin(DType::f64, {5}), verdict = twin(DType::u8, {sizeof(Verdict)});
  second.set([](std::size_t i) { return 1e-3 * static_cast<double>(i % 17 + 1); });
  count.set([](std::size_t) { return 4.0; });
  for (const double bad : {0.0, 1.0}) {  // a step that commits, then one that is skipped
    sums.set([&](std::size_t i) { return std::array<double, 5>{0.0, 12.0, 30.0, bad, 2.0}[i]; });
    on_both([&](Device& d, Kernels& k, Stream& on) {
      auto* all = sums.on(d).as<VerdictSums>();
      auto* said = verdict.on(d).as<Verdict>();
      k.sum_squares(on, gradient.on(d), &all->grad_square);
      k.decide(on, all, 1.0, 2.0, 32.0, 1.0, nullptr, said);
      k.adamw(on, parameter.on(d), gradient.on(d), first.on(d), second.on(d), count.on(d).as<std::int64_t>(),
              {.learning_rate = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1}, said);
    });
    EXPECT_LT(sums.difference(), 1e-12);
    EXPECT_LT(parameter.difference(), 1e-6);
    EXPECT_LT(first.difference(), 1e-6);
    EXPECT_LT(second.difference(), 1e-6);
    EXPECT_EQ(count.found()[0], 5.0) << "only the committed step counts";
  }
}

TEST_P(CudaState, ManyParametersStepAtOnceAndTellTheirAmaxes) {
  const Twin a = twin(DType::f32, {31, 65}), b = twin(DType::f32, {128}), da = twin(DType::f32, {31, 65}), db = twin(DType::f32, {128});
  const Twin ma = twin(DType::f32, {31, 65}, 0.1), mb = twin(DType::f32, {128}, 0.1);
  Twin va = twin(DType::f32, {31, 65}), vb = twin(DType::f32, {128}), counts = twin(DType::i64, {2}), said = twin(DType::u8, {sizeof(Verdict)});
  va.set([](std::size_t) { return 1e-3; });
  vb.set([](std::size_t) { return 1e-3; });
  counts.set([](std::size_t i) { return static_cast<double>(i); });
  Twin amaxes = twin(DType::f32, {2}), scales = twin(DType::f32, {2}), sums = twin(DType::f64, {5});
  for (const double bad : {0.0, 1.0}) {  // a step that commits, then one that is skipped and leaves the amaxes alone
    sums.set([&](std::size_t i) { return std::array<double, 5>{4.0, 12.0, 30.0, bad, 2.0}[i]; });
    on_both([&](Device& d, Kernels& k, Stream& on) {
      auto* verdict = said.on(d).as<Verdict>();
      k.decide(on, sums.on(d).as<VerdictSums>(), 1.0, 2.0, 32.0, 1.0, nullptr, verdict);
      float *at = amaxes.on(d).as<float>(), *to = scales.on(d).as<float>();
      auto* count = counts.on(d).as<std::int64_t>();
      // Different steps: a group with other settings does not stop the rest.
      const std::array<AdamWShard, 2> shards{AdamWShard{a.on(d), da.on(d), ma.on(d), va.on(d), count, {1e-2, 0.9, 0.95, 1e-8, 0.1}, at},
                                             AdamWShard{b.on(d), db.on(d), mb.on(d), vb.on(d), count + 1, {1e-3, 0.9, 0.999, 1e-6, 0.0}, at + 1}};
      if (auto* fused = dynamic_cast<FusedKernels*>(&k)) {
        fused->adamw_all(on, shards, verdict);
        return fused->scales_from_amaxes(on, at, DType::e4m3, to, 2);
      }
      for (const AdamWShard& s : shards) k.adamw(on, s.parameter, s.gradient, s.first, s.second, s.count, s.step, verdict);
      for (std::size_t i = 0; i < 2; ++i) {
        k.amax(on, shards[i].parameter, at + i, false);
        k.scale_from_amax(on, at + i, DType::e4m3, to + i);
      }
    });
    EXPECT_LT(a.difference(), 1e-6);
    EXPECT_LT(b.difference(), 1e-6);
    EXPECT_LT(amaxes.difference(), 1e-6);
    EXPECT_LT(scales.difference(), 1e-6);
    EXPECT_EQ(counts.found(), (std::vector<double>{1.0, 2.0})) << "only the committed step counts";
  }
}

}  // namespace
}  // namespace troupe::test
