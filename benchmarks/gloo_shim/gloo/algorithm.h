#pragma once  // ProcessGroupGloo.hpp includes it and uses nothing of it
