#include "tools/worker/loader_batches.hpp"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <future>
#include <thread>

#include "messages/kinds.hpp"
#include "messages/write.hpp"
#include "src/base/log.hpp"

namespace troupe {
namespace {

constexpr Rank trainer{0}, loader{2};

struct NoStream final : Stream {};

/// Takes the credits that the training side sends.
class Credits final : public PostOffice {
 public:
  void post(std::shared_ptr<const Parcel> parcel) override {
    const std::lock_guard lock(mutex_);
    parcels_.push_back(std::move(parcel));
    changed_.notify_all();
  }
  std::shared_ptr<const Parcel> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !parcels_.empty(); });
    auto parcel = std::move(parcels_.front());
    parcels_.pop_front();
    return parcel;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<const Parcel>> parcels_;
};

class LoaderBatchesTest : public testing::Test {
 protected:
  LoaderBatchesTest() {
    TransportHandlers others;
    others.letter = [](std::shared_ptr<const Parcel>) {};
    others.slot_for = [](schema::Envelope::Reader, std::uint64_t) { return Lease{}; };
    others.peer_lost = [](Rank, const std::string&) {};
    handlers_ = batches_.around(others);
    program_ = batches_.program(runtime_, EpochId{1}, trainer, loader);
  }

  std::future<BatchFacts> load(std::uint64_t step) {
    return std::async(std::launch::async, [this, step] {
      NoStream stream;
      return program_->load(stream, Step{step}, Micro{0}, slot_);
    });
  }
  static std::shared_ptr<const Parcel> batch(std::uint64_t step, Rank from, Lease lease = {}) {
    const Heading heading{{trainer, ActorKind::data_loader}, {from, ActorKind::data_loader}, Where{EpochId{1}, Step{step}, Micro{0}, {}}, {}, Nanos{0}, 0};
    return write<schema::BatchReady>(
        heading,
        [](auto body) {
          body.setTokens(7);
          body.setDigest(9);
        },
        std::move(lease));
  }
  static std::string problem_of(std::future<BatchFacts>& loading) {
    try {
      loading.get();
    } catch (const std::runtime_error& problem) {
      return problem.what();
    }
    return "none";
  }

  std::unique_ptr<Clock> clock_ = make_system_clock();
  std::unique_ptr<Log> log_ = make_null_log();
  Credits credits_;
  Runtime runtime_{*clock_, *log_, credits_, nullptr};
  LoaderBatches batches_;
  TransportHandlers handlers_;
  std::shared_ptr<LoaderProgram> program_;
  std::array<std::byte, 64> slot_{};
};

TEST_F(LoaderBatchesTest, TellsTheLoaderOfAFreeSlotAndReceivesStraightIntoIt) {
  auto loading = load(3);
  const auto credit = credits_.next();
  EXPECT_EQ(credit->envelope().getBody().which(), LetterKind::SLOT_HOME);
  EXPECT_EQ(address_of(credit->envelope().getTo()).rank, loader);
  EXPECT_EQ(where_of(credit->envelope()).step, Step{3});
  Lease lease = handlers_.slot_for(batch(3, loader)->envelope(), slot_.size());
  ASSERT_TRUE(lease);
  EXPECT_EQ(lease.bytes().data(), slot_.data());
  handlers_.letter(batch(3, loader, std::exchange(lease, Lease{})));
  const BatchFacts facts = loading.get();
  EXPECT_EQ(facts.valid_tokens, 7U);
  EXPECT_EQ(facts.digest, 9U);
}

TEST_F(LoaderBatchesTest, GivesNoSlotToAStrangerNorForAnotherStepNorTwice) {
  auto loading = load(3);
  (void)credits_.next();
  EXPECT_FALSE(handlers_.slot_for(batch(3, Rank{1})->envelope(), slot_.size()));
  EXPECT_FALSE(handlers_.slot_for(batch(4, loader)->envelope(), slot_.size()));
  Lease lease = handlers_.slot_for(batch(3, loader)->envelope(), slot_.size());
  EXPECT_FALSE(handlers_.slot_for(batch(3, loader)->envelope(), slot_.size()));
  handlers_.letter(batch(3, loader, std::exchange(lease, Lease{})));
  EXPECT_EQ(loading.get().valid_tokens, 7U);
}

TEST_F(LoaderBatchesTest, FailsWithTheCauseWhenTheLoaderIsLost) {
  auto loading = load(1);
  (void)credits_.next();
  handlers_.peer_lost(loader, "connection reset");
  EXPECT_EQ(problem_of(loading), "the batch of step 1, micro-batch 0 did not come from the loader process (rank 2): connection reset");
}

TEST_F(LoaderBatchesTest, FailsWhenThePayloadWasRefused) {
  auto loading = load(1);
  (void)credits_.next();
  handlers_.slot_for(batch(1, loader)->envelope(), slot_.size()).reset();
  EXPECT_NE(problem_of(loading).find("its payload was refused"), std::string::npos);
}

TEST_F(LoaderBatchesTest, AnAbortLeavesTheSlotOnlyWhenNothingWritesIntoItAnyMore) {
  auto loading = load(1);
  (void)credits_.next();
  Lease lease = handlers_.slot_for(batch(1, loader)->envelope(), slot_.size());
  batches_.abort(trainer, "the epoch ends");
  EXPECT_EQ(loading.wait_for(std::chrono::milliseconds{20}), std::future_status::timeout);
  lease.reset();
  EXPECT_NE(problem_of(loading).find("the epoch ends"), std::string::npos);
}

}  // namespace
}  // namespace troupe
