#pragma once
#include "src/base/schema.hpp"

namespace troupe {

/// Sections of torchtitan that no layer here has a use for yet: other low precisions, its fault tolerance, its memory estimate, other families.
void describe_unbuilt_sections(Schema& schema);

}  // namespace troupe
