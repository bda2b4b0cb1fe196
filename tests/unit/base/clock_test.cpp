#include "src/base/clock.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>
#include <vector>

namespace troupe {
namespace {

using std::chrono::milliseconds;

TEST(SystemClock, NeverGoesBack) {
  const auto clock = make_system_clock();
  const Nanos first = clock->now();
  EXPECT_GE(clock->now(), first);
}

TEST(SystemClock, FiresTimersInTheOrderOfTheirTimesNotOfTheirSetting) {
  const auto clock = make_system_clock();
  std::vector<int> order;  // written by the clock's thread alone until the last timer says so
  std::promise<void> last;
  clock->after(milliseconds(30), [&] {
    order.push_back(3);
    last.set_value();
  });
  clock->after(milliseconds(10), [&] { order.push_back(1); });
  clock->after(milliseconds(20), [&] { order.push_back(2); });
  last.get_future().wait();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

TEST(SystemClock, FiresNoTimerBeforeItsTime) {
  const auto clock = make_system_clock();
  const Nanos start = clock->now();
  std::promise<Nanos> fired;
  clock->after(milliseconds(15), [&] { fired.set_value(clock->now()); });
  EXPECT_GE(fired.get_future().get() - start, milliseconds(15));
}

TEST(SystemClock, ATimerMaySetTheNext) {
  const auto clock = make_system_clock();
  std::promise<void> third;
  clock->after(Nanos{0}, [&] { clock->after(Nanos{0}, [&] { clock->after(Nanos{0}, [&] { third.set_value(); }); }); });
  third.get_future().wait();
}

TEST(SystemClock, RunsTimersOnItsOwnThread) {
  const auto clock = make_system_clock();
  std::promise<std::thread::id> thread;
  clock->after(Nanos{0}, [&] { thread.set_value(std::this_thread::get_id()); });
  EXPECT_NE(thread.get_future().get(), std::this_thread::get_id());
}

TEST(SystemClock, DropsWhatIsPendingWhenItGoes) {
  std::atomic<bool> fired = false;
  make_system_clock()->after(std::chrono::hours(1), [&] { fired = true; });
  EXPECT_FALSE(fired);
}

}  // namespace
}  // namespace troupe
