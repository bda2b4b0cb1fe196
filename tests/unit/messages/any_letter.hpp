#pragma once
#include <map>
#include <string>
#include <vector>

#include "messages/kinds.hpp"

namespace troupe::test {

/// Every field of an envelope by its path ("body.join.planHashes[1].hash") with its value as text: all that the present schema knows.
[[nodiscard]] std::map<std::string, std::string> fields_of(schema::Envelope::Reader envelope);

/// The words of a letter of that kind in which every field, lists and texts too, has a value that differs from its default and follows from its name.
[[nodiscard]] kj::Array<capnp::word> filled_letter(LetterKind kind);

/// In the order of letters.capnp.
[[nodiscard]] const std::vector<LetterKind>& all_kinds();

}  // namespace troupe::test
