#include "actors/loss_window.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

TEST(LossWindow, HasNoMedianBeforeHalfOfItIsThere) {
  LossWindow window(4);
  window.add(3);
  EXPECT_FALSE(window.median());
  window.add(1);
  EXPECT_DOUBLE_EQ(window.median().value(), 2);
}

TEST(LossWindow, ForgetsWhatIsOlder) {
  LossWindow window(3);
  for (const double loss : {100.0, 100.0, 5.0, 4.0, 6.0}) window.add(loss);
  EXPECT_DOUBLE_EQ(window.median().value(), 5);
}

}  // namespace
}  // namespace troupe
