#pragma once
#include <capnp/common.h>
#include <kj/array.h>

#include <optional>
#include <string>

#include "messages/frame.hpp"

namespace troupe {

/// What is wrong with a letter's words.
struct LetterProblem {
  FrameProblem problem;
  std::string what;
};

/// Checks the words of a letter from outside: one segment of exactly this length, its pointers a tree inside it, one walk over
/// everything under a traversal limit of a few times that length and a nesting limit, every text, list and enumerator, every index
/// against its table. Nothing if they are sound: then a Parcel may read them without bounds or limit. Throws nothing.
[[nodiscard]] std::optional<LetterProblem> check_letter(kj::ArrayPtr<const capnp::word> words) noexcept;

}  // namespace troupe
