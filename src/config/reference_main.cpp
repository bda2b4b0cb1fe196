#include <iostream>

#include "src/config/job_config.hpp"

/// Writes docs/config.md to its standard output.
int main() { std::cout << troupe::JobConfig::reference_markdown(); }
