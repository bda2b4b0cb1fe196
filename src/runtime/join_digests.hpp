#pragma once
#include <cstdint>
#include <span>

namespace troupe {

/// The digest of several batches together: their sum. Each row counts with its number in the data (BatchFacts), so the digest of a step does
/// not depend on how its rows were dealt to ranks and micro-batches, and a row that is missing, repeated or another shows in it. Pure.
[[nodiscard]] std::uint64_t join_digests(std::span<const std::uint64_t> digests) noexcept;

}  // namespace troupe
