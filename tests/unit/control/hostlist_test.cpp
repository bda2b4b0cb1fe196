#include "tools/worker/hostlist.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

using Hosts = std::vector<std::string>;

Hosts expanded(std::string_view list) {
  auto hosts = expand_hostlist(list);
  EXPECT_TRUE(hosts.ok()) << list << ": " << (hosts ? "" : hosts.error().message);
  return hosts ? *hosts : Hosts{};
}

TEST(Hostlist, ExpandsEveryFormThatSlurmWrites) {
  EXPECT_EQ(expanded("linux[1,2]"), (Hosts{"linux1", "linux2"}));
  EXPECT_EQ(expanded("alpha,beta"), (Hosts{"alpha", "beta"}));
  EXPECT_EQ(expanded("nodeA,nodeB[001,003]"), (Hosts{"nodeA", "nodeB001", "nodeB003"}));
  EXPECT_EQ(expanded("n[001-003,007]"), (Hosts{"n001", "n002", "n003", "n007"}));
  EXPECT_EQ(expanded("jean-zay-ia[810-811]"), (Hosts{"jean-zay-ia810", "jean-zay-ia811"}));
  EXPECT_EQ(expanded("a[1-2]b[3-4]"), (Hosts{"a1b3", "a1b4", "a2b3", "a2b4"}));
  EXPECT_EQ(expanded("x"), (Hosts{"x"}));
  EXPECT_EQ(expanded("rack[8-10]-gpu.cluster"), (Hosts{"rack8-gpu.cluster", "rack9-gpu.cluster", "rack10-gpu.cluster"}));
}

TEST(Hostlist, RefusesWhatIsNoListAndSaysWhere) {
  for (const char* wrong : {"", "a,,b", "a[1", "a]1", "a[1-", "a[3-1]", "a[x]", "a[[1]]", "a[]", "a,", "n[1-99999999999]"}) {
    const auto hosts = expand_hostlist(wrong);
    ASSERT_FALSE(hosts.ok()) << wrong;
    EXPECT_NE(hosts.error().message.find("node list"), std::string::npos) << hosts.error().message;
  }
}

}  // namespace
}  // namespace troupe
