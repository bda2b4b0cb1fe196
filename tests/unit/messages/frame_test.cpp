#include "messages/frame.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "messages/open.hpp"
#include "messages/write.hpp"
#include "tests/unit/messages/any_letter.hpp"

namespace troupe::test {
namespace {

constexpr Party alice{Rank{0}, Incarnation{3}}, bob{Rank{1}, Incarnation{5}};

Session session(std::uint64_t job = 42, int key = 7) {
  Session s{.job = job, .key = {}};
  s.key.fill(static_cast<std::byte>(key));
  return s;
}

std::shared_ptr<const Parcel> letter(std::uint64_t step = 9, Lease lease = {}) {
  const Heading heading{
      .to = {bob.rank, ActorKind::supervisor}, .from = {alice.rank, ActorKind::checkpoint}, .where = {EpochId{2}, Step{step}, {}, {}}, .operation = {}};
  return write<schema::ShardSaved>(
      heading,
      [](auto body) {
        body.setFile("model-0.safetensors");
        body.setBytes((std::uint64_t{1} << 32) + 8);
        body.setOk(true);
      },
      std::move(lease));
}

class Frames : public testing::Test {
 protected:
  FrameCounts counts_;
  FrameSealer sealer_{session(), alice, bob};
  FrameOpener opener_{session(), bob, alice, counts_};

  std::vector<std::byte> frame(std::uint64_t step = 9) { return *sealer_.seal(*letter(step), 0); }
  /// Puts a right MAC on whatever the frame says.
  static void seal_again(std::vector<std::byte>& frame) {
    SessionMac mac(session().key);
    const auto covered = std::span(frame).first(frame.size() - frame_mac_bytes);
    mac.compute(covered, std::span(frame).last<frame_mac_bytes>());
  }
};

TEST_F(Frames, CarryTheLetterAndWhatIsSaidAboutIt) {
  std::vector<std::byte> payload(100, std::byte{3});
  const auto parcel = letter(9, Lease{SlotIndex{0}, payload, [] {}});
  const auto sealed = sealer_.seal(*parcel, payload_hash(payload));
  ASSERT_TRUE(sealed.ok());
  auto opened = opener_.open(*sealed);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ(opened->header.sender, alice);
  EXPECT_EQ(opened->header.receiver, bob);
  EXPECT_EQ(opened->header.sequence, 1U);
  EXPECT_EQ(opened->header.epoch, EpochId{2});
  EXPECT_EQ(opened->header.payload_bytes, 100U);
  EXPECT_EQ(opened->header.payload_hash, payload_hash(payload));
  const Letter<schema::ShardSaved> read{std::make_shared<const Parcel>(kj::mv(opened->words), Lease{})};
  EXPECT_STREQ(read.body().getFile().cStr(), "model-0.safetensors");
  EXPECT_EQ(read.body().getBytes(), (std::uint64_t{1} << 32) + 8);
}

// B169: no length is cut to 32 bits
TEST_F(Frames, SayTheLengthOfAPayloadBeyondFourGibibytes) {
  constexpr std::uint64_t length = (std::uint64_t{1} << 32U) + 8;
  const auto opened = opener_.open(sealer_.seal(FrameType::payload_hash, length, 42));
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ(opened->header.payload_bytes, length);
}

TEST_F(Frames, OfALetterAheadLeaveItsPayloadsHashToAFrameThatFollows) {
  std::vector<std::byte> payload(100, std::byte{3});
  const auto ahead = sealer_.seal_ahead(*letter(9, Lease{SlotIndex{0}, payload, [] {}}));
  ASSERT_TRUE(ahead.ok());
  const auto opened = opener_.open(*ahead);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ(opened->header.type, FrameType::letter_ahead);
  EXPECT_EQ(opened->header.payload_bytes, 100U);
  EXPECT_GT(opened->words.size(), 0U);
  const auto follows = opener_.open(sealer_.seal(FrameType::payload_hash, 100, payload_hash(payload)));
  ASSERT_TRUE(follows.ok()) << follows.error().message;
  EXPECT_EQ(follows->header.payload_bytes, 100U);
  EXPECT_EQ(follows->header.payload_hash, payload_hash(payload));
}

TEST_F(Frames, OfALetterAheadOfNothingAndNoticesWithAPayloadAreRefused) {
  EXPECT_FALSE(opener_.open(*sealer_.seal_ahead(*letter())).ok());
  EXPECT_EQ(counts_.of(FrameProblem::payload), 1U);
  EXPECT_FALSE(opener_.open(sealer_.seal(FrameType::payload_hash)).ok());
  EXPECT_FALSE(opener_.open(sealer_.seal(FrameType::doorbell, 8, 1)).ok());
  EXPECT_FALSE(opener_.open(sealer_.seal(FrameType::goodbye, 8, 1)).ok());
  EXPECT_EQ(counts_.of(FrameProblem::type), 3U);
}

TEST_F(Frames, AreReadAtAnyAlignment) {
  const auto sealed = frame();
  std::vector<std::byte> shifted(sealed.size() + 5);
  std::copy(sealed.begin(), sealed.end(), shifted.begin() + 5);
  EXPECT_TRUE(opener_.open(std::span(shifted).subspan(5)).ok());
}

TEST_F(Frames, WithAnyByteFlippedAreDropped) {
  const auto sealed = frame();
  for (std::size_t i = 0; i < sealed.size(); ++i) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      auto bad = sealed;
      bad[i] ^= static_cast<std::byte>(flip);
      ASSERT_FALSE(opener_.open(bad).ok()) << "byte " << i;
    }
  }
  EXPECT_GT(counts_.of(FrameProblem::mac), sealed.size());
  EXPECT_TRUE(opener_.open(sealed).ok()) << "none of them spoilt the real one";
}

TEST_F(Frames, OfAnyOtherLengthAreDropped) {
  auto sealed = frame();
  for (std::size_t length = 0; length < sealed.size(); ++length) ASSERT_FALSE(opener_.open(std::span(sealed).first(length)).ok()) << length;
  std::vector<std::byte> long_frame(max_frame_bytes + 8);
  EXPECT_FALSE(opener_.open(long_frame).ok());
  EXPECT_GT(counts_.of(FrameProblem::length), 0U);
}

TEST_F(Frames, AreTakenOnceAndInOrder) {
  const auto first = frame(1), second = frame(2), third = frame(3);
  EXPECT_TRUE(opener_.open(first).ok());
  EXPECT_FALSE(opener_.open(first).ok());
  EXPECT_TRUE(opener_.open(third).ok());
  const auto late = opener_.open(second);
  ASSERT_FALSE(late.ok());
  EXPECT_NE(late.error().message.find("number 2 after 3"), std::string::npos) << late.error().message;
  EXPECT_EQ(counts_.of(FrameProblem::sequence), 2U);
}

TEST_F(Frames, OfAnotherJobKeyLifeOrAddresseeAreDropped) {
  const struct {
    Session session;
    Party from, to;
    FrameProblem problem;
  } cases[] = {
      {session(43), alice, bob, FrameProblem::job},
      {session(42, 8), alice, bob, FrameProblem::mac},
      {session(), {alice.rank, Incarnation{2}}, bob, FrameProblem::incarnation},
      {session(), {Rank{9}, alice.incarnation}, bob, FrameProblem::sender},
      {session(), alice, {Rank{2}, bob.incarnation}, FrameProblem::receiver},
      {session(), alice, {bob.rank, Incarnation{4}}, FrameProblem::receiver},
  };
  for (const auto& one : cases) {
    FrameSealer other(one.session, one.from, one.to);
    const auto before = counts_.of(one.problem);
    EXPECT_FALSE(opener_.open(*other.seal(*letter(), 0)).ok());
    EXPECT_EQ(counts_.of(one.problem), before + 1) << name_of(one.problem);
  }
}

TEST_F(Frames, WhoseLetterIsTooLongAreNotMade) {
  const std::string text(max_frame_bytes, 'x');
  const auto parcel = write<schema::EpochEnd>({}, [&](auto body) { body.setCause(text.c_str()); });
  const auto sealed = sealer_.seal(*parcel, 0);
  ASSERT_FALSE(sealed.ok());
  EXPECT_NE(sealed.error().message.find("EpochEnd"), std::string::npos) << sealed.error().message;
}

TEST_F(Frames, WithARightMacButFalseStatementsAreDropped) {
  const auto change = [&](std::size_t offset, std::uint64_t add, FrameProblem expected) {
    auto bad = frame();
    std::uint64_t value = 0;
    std::memcpy(&value, bad.data() + offset, sizeof value);
    value += add;
    std::memcpy(bad.data() + offset, &value, sizeof value);
    seal_again(bad);
    const auto before = counts_.of(expected);
    EXPECT_FALSE(opener_.open(bad).ok());
    EXPECT_EQ(counts_.of(expected), before + 1) << name_of(expected) << " at " << offset;
  };
  change(6, 7, FrameProblem::type);                                             // an unknown type
  change(40, 1, FrameProblem::epoch);                                           // another epoch than the letter's
  change(48, 1, FrameProblem::length);                                          // one word more than there is
  change(48, std::uint64_t{1} << 61, FrameProblem::length);                     // words · 8 wraps to the true length
  change(frame_header_bytes, 1, FrameProblem::structure);                       // two segments
  change(frame_header_bytes, std::uint64_t{1} << 32, FrameProblem::structure);  // a longer segment
}

TEST(CheckLetter, RefusesBytesThatAreNoLetter) {
  for (const int value : {0x00, 0xff}) {
    auto words = kj::heapArray<capnp::word>(16);
    std::memset(words.asBytes().begin(), value, words.asBytes().size());
    EXPECT_TRUE(check_letter(words)) << value;
  }
  EXPECT_TRUE(check_letter(nullptr));
}

TEST(CheckLetter, RefusesIndicesOutsideTheirTables) {
  const auto problem_of = [](auto&& change) {
    capnp::MallocMessageBuilder builder;
    auto envelope = builder.initRoot<schema::Envelope>();
    envelope.initTo().setActor(1);
    envelope.initFrom().setActor(1);
    change(envelope);
    const auto words = capnp::messageToFlatArray(builder);
    return check_letter(words);
  };
  EXPECT_FALSE(problem_of([](auto e) { e.getBody().initTick(); }));
  const auto is_value = [](const auto& problem) { return problem && problem->problem == FrameProblem::value; };
  EXPECT_TRUE(is_value(problem_of([](auto e) {
    e.getBody().initTick();
    e.getTo().setActor(8);
  })));
  EXPECT_TRUE(is_value(problem_of([](auto e) {
    e.getBody().initTick();
    e.getFrom().setActor(65535);
  })));
  EXPECT_TRUE(is_value(problem_of([](auto e) { e.getBody().initSlotHome().setEdge(4); })));
  EXPECT_TRUE(is_value(problem_of([](auto e) { e.getBody().initLaneDone().setLane(6); })));
  EXPECT_TRUE(is_value(problem_of([](auto e) { e.getBody().initLaneDone().setOutcome(3); })));
  EXPECT_TRUE(is_value(problem_of([](auto e) { e.getBody().initJoin().initPlanHashes(1)[0].setCommunicator(4); })));
  EXPECT_TRUE(is_value(problem_of([](auto e) { e.getBody().initStepBegin().setKind(static_cast<schema::StepKind>(4)); })));
  EXPECT_TRUE(is_value(problem_of([](auto e) { e.getBody().initHorizon().initGrants(2)[1].setKind(static_cast<schema::StepKind>(9)); })));
}

TEST(CheckLetter, RefusesPointersThatMultiplyTheMessage) {
  // Many rules that all point at one long text: small on the wire, huge to walk.
  capnp::MallocMessageBuilder builder(std::uint32_t{4096});
  auto envelope = builder.initRoot<schema::Envelope>();
  auto entries = envelope.getBody().initFaultRules().initRules(300);
  const std::string text(800, 'x');
  entries.set(0, text.c_str());
  auto words = capnp::messageToFlatArray(builder);
  auto* all = reinterpret_cast<std::uint64_t*>(words.begin());
  // Find entry 0's text pointer: a byte list of 801 elements.
  std::size_t at = 0;
  for (std::size_t i = 1; i < words.size(); ++i) {
    if ((all[i] & 3) == 1 && (all[i] >> 32) == ((std::uint64_t{801} << 3) | 2)) at = i;
  }
  ASSERT_NE(at, 0U);
  const auto target = static_cast<std::int64_t>(at) + 1 + (static_cast<std::int32_t>(static_cast<std::uint32_t>(all[at])) >> 2);
  for (std::size_t entry = 1; entry < 300; ++entry) {
    const std::size_t i = at + entry;
    const auto offset = static_cast<std::uint32_t>(static_cast<std::int32_t>(target - static_cast<std::int64_t>(i) - 1) * 4) | 1U;
    all[i] = (all[at] & 0xffffffff00000000ULL) | offset;
  }
  const auto problem = check_letter(words);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->problem, FrameProblem::structure) << problem->what;
}

TEST(CheckLetter, RefusesPointersThatOnlyACheckedReaderFollows) {
  // A far pointer of one segment leads to a landing pad in the same segment: a reader with bounds follows it, a Parcel's has none.
  capnp::MallocMessageBuilder builder(std::uint32_t{4096});
  auto envelope = builder.initRoot<schema::Envelope>();
  envelope.initTo().setActor(1);
  envelope.initFrom().setActor(1);
  envelope.getBody().initBatchReady().setTokens(77);
  const auto words = capnp::messageToFlatArray(builder);
  ASSERT_FALSE(check_letter(words));
  auto far = kj::heapArray<capnp::word>(words.size() + 1);
  std::memcpy(far.begin(), words.begin(), words.asBytes().size());
  auto* all = reinterpret_cast<std::uint64_t*>(far.begin());
  all[0] += std::uint64_t{1} << 32;            // one more word in the segment:
  const std::uint64_t pad = words.size() - 1;  // the landing pad,
  all[words.size()] =
      (all[1] & 0xffffffff00000000ULL) | (static_cast<std::uint32_t>(-static_cast<std::int32_t>(pad)) << 2);  // which points back to the envelope
  all[1] = pad << 3 | 2;
  capnp::FlatArrayMessageReader checked(far);
  ASSERT_EQ(checked.getRoot<schema::Envelope>().getBody().getBatchReady().getTokens(), 77U);
  const auto problem = check_letter(far);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->what, "a pointer into another segment, at word 0");
  EXPECT_EQ(problem->problem, FrameProblem::structure);
}

}  // namespace
}  // namespace troupe::test
