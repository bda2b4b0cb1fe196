#include "messages/open.hpp"

#include <capnp/dynamic.h>
#include <kj/exception.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>

#include "messages/edge_kind.hpp"
#include "messages/kinds.hpp"
#include "messages/segment_tree.hpp"
#include "src/base/outcome.hpp"
#include "src/device/lane.hpp"

namespace troupe {
namespace {

/// A value that has no meaning to us; becomes a LetterProblem.
struct Refused : std::runtime_error {
  Refused(FrameProblem p, const std::string& what) : std::runtime_error(what), problem(p) {}
  FrameProblem problem;
};

void walk(const capnp::DynamicValue::Reader& value);

void walk_fields(const capnp::DynamicStruct::Reader& object) {
  for (const auto field : object.getSchema().getNonUnionFields()) walk(object.get(field));
  if (object.getSchema().getUnionFields().size() == 0) return;
  KJ_IF_MAYBE (field, object.which()) {
    walk(object.get(*field));
  } else {
    throw Refused(FrameProblem::kind, "a kind that this build does not know");
  }
}

/// Reads everything once, so that what a pointer, a text or a list gets wrong is found here and not in a handler.
void walk(const capnp::DynamicValue::Reader& value) {
  switch (value.getType()) {
    case capnp::DynamicValue::STRUCT: walk_fields(value.as<capnp::DynamicStruct>()); break;
    case capnp::DynamicValue::LIST: {
      const auto list = value.as<capnp::DynamicList>();
      const auto type = list.getSchema().whichElementType();
      const bool plain = type != capnp::schema::Type::TEXT && type != capnp::schema::Type::STRUCT && type != capnp::schema::Type::LIST &&
                         type != capnp::schema::Type::ENUM && type != capnp::schema::Type::DATA;
      if (!plain)
        for (const auto element : list) walk(element);
      break;
    }
    case capnp::DynamicValue::ENUM: {
      const auto enumerator = value.as<capnp::DynamicEnum>();
      KJ_IF_MAYBE (known, enumerator.getEnumerant()) {
        (void)known;
      } else {
        throw Refused(FrameProblem::value, "enumerator " + std::to_string(enumerator.getRaw()) + " of " + enumerator.getSchema().getShortDisplayName().cStr());
      }
      break;
    }
    default: break;  // numbers cannot be malformed; text was checked by get()
  }
}

void require_below(std::uint64_t value, std::uint64_t limit, const char* what) {
  if (value >= limit) throw Refused(FrameProblem::value, std::string(what) + " " + std::to_string(value) + ", the table has " + std::to_string(limit));
}

constexpr std::uint64_t actor_count = static_cast<std::uint64_t>(ActorKind::metrics) + 1;
constexpr std::uint64_t communicator_count = 4;  // CommunicatorKind of src/runtime/plan.hpp, a layer above: none, dp_shard, dp_replicate, world

void check_indices(const schema::Envelope::Reader& envelope) {
  require_below(envelope.getTo().getActor(), actor_count, "addressee's actor");
  require_below(envelope.getFrom().getActor(), actor_count, "sender's actor");
  const auto body = envelope.getBody();
  switch (body.which()) {
    case LetterKind::SLOT_HOME: require_below(body.getSlotHome().getEdge(), edge_count, "edge"); break;
    case LetterKind::LANE_DONE:
      require_below(body.getLaneDone().getOutcome(), static_cast<std::uint64_t>(Outcome::Kind::halted) + 1, "outcome");
      require_below(body.getLaneDone().getLane(), lane_count, "lane");
      break;
    case LetterKind::JOIN:
      for (const auto plan : body.getJoin().getPlanHashes()) require_below(plan.getCommunicator(), communicator_count, "communicator");
      break;
    case LetterKind::EPOCH_READY:
      for (const auto plan : body.getEpochReady().getPlanHashes()) require_below(plan.getCommunicator(), communicator_count, "communicator");
      break;
    case LetterKind::RETIRED14: throw Refused(FrameProblem::kind, "a kind that no build sends");
    default: break;
  }
}

}  // namespace

std::optional<LetterProblem> check_letter(kj::ArrayPtr<const capnp::word> words) noexcept try {
  if (words.size() < 2) return LetterProblem{FrameProblem::structure, "shorter than a segment table and a root"};
  std::array<std::uint32_t, 2> table{};  // number of segments - 1, words of the first
  std::memcpy(table.data(), words.begin(), sizeof table);
  if (table[0] != 0) return LetterProblem{FrameProblem::structure, "more than one segment"};
  if (table[1] != words.size() - 1) return LetterProblem{FrameProblem::structure, "a segment of another length than the letter"};
  const std::span segment(reinterpret_cast<const std::uint64_t*>(words.begin()) + 1, words.size() - 1);
  if (const auto problem = segment_problem(segment)) return LetterProblem{FrameProblem::structure, *problem};
  capnp::ReaderOptions options;
  options.traversalLimitInWords = 6 * words.size() + 64;  // three visits of everything: sizes, walk, indices; more means pointers that overlap
  options.nestingLimit = 8;                               // envelope, body, list, entry, text
  capnp::FlatArrayMessageReader reader(words, options);
  const auto envelope = reader.getRoot<schema::Envelope>();
  (void)envelope.totalSize();  // also visits what newer fields point to
  walk_fields(capnp::DynamicStruct::Reader(envelope));
  check_indices(envelope);
  return std::nullopt;
} catch (const Refused& refused) {
  return LetterProblem{refused.problem, refused.what()};
} catch (const kj::Exception& exception) {
  return LetterProblem{FrameProblem::structure, exception.getDescription().cStr()};
} catch (const std::exception& exception) {
  return LetterProblem{FrameProblem::structure, exception.what()};
} catch (...) {
  return LetterProblem{FrameProblem::structure, "an unknown exception"};
}

}  // namespace troupe
