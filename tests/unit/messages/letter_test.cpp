#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <stdexcept>
#include <string>

#include "messages/open.hpp"
#include "messages/write.hpp"

namespace troupe {
namespace {

Heading heading() {
  return {.to = {Rank{3}, ActorKind::compute},
          .from = coordinator_address,
          .where = {EpochId{7}, Step{11}, Micro{2}, Unit{5}},
          .operation = OperationIndex{9},
          .sent = Nanos{1234},
          .flow = 77};
}

TEST(Letter, CarriesItsHeadingBodyAndLease) {
  std::array<std::byte, 64> memory{};
  int releases = 0;
  {
    const Letter<schema::BatchReady> letter{write<schema::BatchReady>(
        heading(),
        [](auto body) {
          body.setTokens(4096);
          body.setDigest(42);
        },
        Lease{SlotIndex{1}, memory, [&] { ++releases; }})};
    EXPECT_EQ(letter.body().getTokens(), 4096U);
    EXPECT_EQ(letter.body().getDigest(), 42U);
    EXPECT_EQ(letter.to(), (ActorAddress{Rank{3}, ActorKind::compute}));
    EXPECT_EQ(letter.from(), coordinator_address);
    EXPECT_EQ(letter.where(), heading().where);
    EXPECT_EQ(letter.operation(), OperationIndex{9});
    EXPECT_EQ(letter.parcel()->envelope().getWhere().getSlot(), 1U);
    EXPECT_EQ(letter.parcel()->envelope().getFlow(), 77U);
    EXPECT_EQ(letter.parcel()->envelope().getSentNanos(), 1234U);
    EXPECT_EQ(letter.lease().bytes().data(), memory.data());
    EXPECT_EQ(releases, 0);
  }
  EXPECT_EQ(releases, 1);
}

TEST(Letter, ReadsTheSameWhetherItsWordsFitIntoTheParcelOrNot) {
  for (std::size_t length = 0; length < 400; ++length) {
    const std::string text(length, 'x');
    const auto parcel = write<schema::EpochEnd>(heading(), [&](auto body) { body.setCause(text.c_str()); });
    auto words = kj::heapArray<capnp::word>(parcel->bytes().size() / sizeof(capnp::word));
    std::memcpy(words.asBytes().begin(), parcel->bytes().data(), parcel->bytes().size());
    const auto problem = check_letter(words);
    ASSERT_FALSE(problem) << length << ": " << problem->what;
    const Letter<schema::EpochEnd> letter{parcel}, sent{std::make_shared<const Parcel>(kj::mv(words), Lease{})};
    ASSERT_EQ(letter.body().getCause().cStr(), text);
    ASSERT_EQ(sent.body().getCause().cStr(), text);
    ASSERT_EQ(letter.where(), heading().where);
  }
}

TEST(Letter, IsDispatchedAsItsKind) {
  const auto parcel = write<schema::Horizon>(heading(), [](auto body) { body.initGrants(2)[1].setStep(5); });
  std::string seen;
  const bool known = dispatch(parcel, [&](auto letter) {
    if constexpr (std::is_same_v<decltype(letter), Letter<schema::Horizon>>) seen = "horizon " + std::to_string(letter.body().getGrants()[1].getStep());
  });
  EXPECT_TRUE(known);
  EXPECT_EQ(seen, "horizon 5");
}

TEST(Letter, OfAnUnknownKindIsNotDispatched) {
  capnp::MallocMessageBuilder builder;
  auto envelope = builder.initRoot<schema::Envelope>();
  envelope.getBody().initTick();
  auto words = capnp::messageToFlatArray(builder);
  // The union's tag is the only 16-bit value of the envelope that equals Tick's.
  const auto tick = static_cast<std::uint16_t>(LetterKind::TICK);
  auto* shorts = reinterpret_cast<std::uint16_t*>(words.begin());
  int found = 0;
  for (std::size_t i = 0; i < words.size() * 4; ++i) {
    if (shorts[i] == tick) {
      shorts[i] = 999;
      ++found;
    }
  }
  ASSERT_EQ(found, 1);
  const auto parcel = std::make_shared<const Parcel>(kj::mv(words), Lease{});
  EXPECT_FALSE(dispatch(parcel, [](auto) { FAIL() << "called for an unknown kind"; }));
  EXPECT_STREQ(name_of(parcel->envelope().getBody().which()), "unknown");
}

TEST(Letter, OfARetiredKindIsRefused) {
  capnp::MallocMessageBuilder builder;
  builder.initRoot<schema::Envelope>().getBody().initRetired14();
  const auto words = capnp::messageToFlatArray(builder);
  const auto problem = check_letter(words);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->problem, FrameProblem::kind);
}

TEST(Letter, LongerThanTheScratchIsStillOneSegment) {
  const std::string text(20000, 'x');
  const auto parcel = write<schema::FaultReport>(heading(), [&](auto body) {
    body.setCause(text.c_str());
    body.setRank(4);
  });
  std::uint32_t segments_minus_one = 1;
  std::memcpy(&segments_minus_one, parcel->bytes().data(), sizeof segments_minus_one);
  EXPECT_EQ(segments_minus_one, 0U);
  const Letter<schema::FaultReport> letter{parcel};
  EXPECT_EQ(std::string(letter.body().getCause().cStr()), text);
  EXPECT_EQ(letter.body().getRank(), 4U);
  EXPECT_EQ(letter.where(), heading().where);
}

TEST(Letter, ThatOutgrowsTheLimitIsRefusedByName) {
  try {
    (void)write<schema::FaultRules>(heading(), [](auto body) {
      auto rules = body.initRules(50000);
      for (unsigned i = 0; i < rules.size(); ++i) rules.set(i, "site=collective kind=reduce rank=1 step=70 action=stall");
    });
    FAIL() << "50,000 rules fit into " << max_letter_bytes << " bytes";
  } catch (const std::length_error& error) {
    EXPECT_NE(std::string(error.what()).find("FaultRules"), std::string::npos) << error.what();
  }
}

TEST(Letter, MayBeReadAMillionTimes) {
  const std::string text(2000, 'y');
  const Letter<schema::Inspection> letter{write<schema::Inspection>(heading(), [&](auto body) { body.setText(text.c_str()); })};
  std::size_t total = 0;
  for (int i = 0; i < 1'000'000; ++i) total += letter.body().getText().size();
  EXPECT_EQ(total, 2'000'000'000U);
}

}  // namespace
}  // namespace troupe
