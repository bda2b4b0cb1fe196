#include "actors/supervisor.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <caf/actor_control_block.hpp>
#include <caf/actor_system.hpp>
#include <caf/send.hpp>
#include <deque>

#include "tests/support/actor_fixture.hpp"

namespace troupe {
namespace {

/// A lane whose operations are worked and ended apart, so that a test can look in between.
class StagedLane final : public Lane {
 public:
  std::function<void(const std::string& name)> on_post;
  void post(LaneOperation operation) override {
    if (on_post) on_post(operation.name);
    queue_.push_back(std::move(operation));
  }
  void halt(std::string) override {}
  [[nodiscard]] LaneProgress progress() const override { return {}; }
  [[nodiscard]] bool drain(Nanos) override { return queue_.empty(); }
  void work() { queue_.front().work(stream_); }
  void end() {
    LaneOperation operation = std::move(queue_.front());
    queue_.pop_front();
    operation.work = nullptr;
    operation.done({});
  }
  [[nodiscard]] bool busy() const noexcept { return !queue_.empty(); }

 private:
  Stream stream_;
  std::deque<LaneOperation> queue_;
};

class SupervisorTest : public ActorFixture, public RankFactory, public RankEvents {
 protected:
  class Body final : public RankBody {
   public:
    explicit Body(RankParts parts) : parts_(std::move(parts)) {}
    [[nodiscard]] RankParts parts() override { return parts_; }
    [[nodiscard]] PlanHashes plan_hashes() const override { return {}; }
    [[nodiscard]] std::uint64_t arena_bytes() const override { return 1; }
    void abort(const std::string&) noexcept override {}

   private:
    RankParts parts_;
  };
  [[nodiscard]] std::unique_ptr<RankBody> build(const EpochStart&) override {
    RankParts given = parts(two_units());
    loader_ = given.loader;
    return std::make_unique<Body>(std::move(given));
  }
  void cancel(EpochId, const std::string&) noexcept override {}
  void ended(Rank, const std::string& cause) override { ended_ = cause; }
  void stuck(Rank, const std::string&) override {}

  SupervisorTest() {
    SupervisorOptions options;
    options.factory = this;
    options.builder = &builder_;
    options.events = this;
    const RankParts given = parts(two_units());
    supervisor_ = given.system->spawn<Supervisor>(ActorSeat{runtime, {rank, ActorKind::supervisor}, EpochId{0}}, options);
    directory.add({rank, ActorKind::supervisor}, supervisor_);
    start_supervisor(runtime, rank);
    deliver<schema::EpochBegin>(ActorKind::supervisor, Step{1}, {}, [](schema::EpochBegin::Builder body) {
      body.initMembers(1);
      body.setFirstStep(1);
    });
    run();
  }
  ~SupervisorTest() override {
    post.forget();
    caf::anon_send_exit(supervisor_, caf::exit_reason::user_shutdown);
    supervisor_ = nullptr;
    run();
  }
  void end_epoch(const std::string& cause) {
    deliver<schema::EpochEnd>(ActorKind::supervisor, Step{0}, {}, [&](schema::EpochEnd::Builder body) {
      body.setCause(cause);
      body.setFinal(true);
    });
    run();
  }

  StagedLane builder_;
  caf::actor supervisor_;
  std::weak_ptr<LoaderProgram> loader_;
  std::optional<std::string> ended_;
};

TEST_F(SupervisorTest, LooksAtNothingThatTheBuilderMayBeWritingAlsoWhenTheEpochEndsMeanwhile) {
  ASSERT_TRUE(builder_.busy());
  builder_.work();  // the body stands, but its builder has not said so
  end_epoch("rank 1 died");
  clock.advance(std::chrono::seconds{2});
  run();
  const auto beats = post.kept<schema::Heartbeat>();
  ASSERT_FALSE(beats.empty());
  EXPECT_STREQ(beats.back().body().getOldest().cStr(), "its state and communicators");
  EXPECT_EQ(post.count(LetterKind::INSPECT), 0U);
  builder_.end();
  run();
  ASSERT_TRUE(builder_.busy()) << "now it is aborted and cleared";
  builder_.work();
  builder_.end();
  run();
  EXPECT_EQ(ended_, "rank 1 died");
}

TEST_F(SupervisorTest, DestroysTheBodyOnlyWhenTheFiveAreGone) {
  builder_.work();
  builder_.end();
  run();
  std::vector<caf::weak_actor_ptr> five;
  for (const ActorKind kind : RankActors::kinds) five.push_back(caf::actor_cast<caf::weak_actor_ptr>(directory.find({rank, kind})));
  std::ptrdiff_t alive = -1;
  builder_.on_post = [&](const std::string&) { alive = std::ranges::count_if(five, [](const caf::weak_actor_ptr& actor) { return actor.lock() != nullptr; }); };
  end_epoch("rank 1 died");
  ASSERT_TRUE(builder_.busy());
  EXPECT_LE(alive, 1) << "when the builder is told to destroy what they stand on; the message of the last one's end still names it";
  builder_.work();
  EXPECT_TRUE(loader_.expired());
  builder_.end();
  run();
  EXPECT_EQ(ended_, "rank 1 died");
}

}  // namespace
}  // namespace troupe
