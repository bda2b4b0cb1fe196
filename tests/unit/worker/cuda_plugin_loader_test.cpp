#include "tools/worker/cuda_plugin_loader.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "src/collectives/nccl/cuda_plugin.hpp"
#include "tests/support/temporary_folder.hpp"

// What a user without a GPU, or with the wrong libraries, is told.
namespace troupe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal(const std::string& file, const std::string& driver) {
  const auto loaded = load_cuda_plugin(file, driver);
  return loaded ? "loaded" : loaded.error().message;
}

TEST(CudaPluginLoader, NamesAMissingDriverAndTheWayWithoutOne) {
  EXPECT_THAT(refusal("plugin.so", "libnodriver.so.1"),
              AllOf(HasSubstr("no NVIDIA driver on this machine"), HasSubstr("libnodriver.so.1"), HasSubstr("driver 580 or newer"), HasSubstr("--device cpu")));
}

TEST(CudaPluginLoader, NamesADriverThatIsTooOld) {
  EXPECT_THAT(refusal("plugin.so", OLD_DRIVER), AllOf(HasSubstr("too old"), HasSubstr("offers CUDA 12.4"), HasSubstr("needs 13.0"), HasSubstr("580")));
}

TEST(CudaPluginLoader, RefusesALibraryThatIsNoDriver) { EXPECT_THAT(refusal("plugin.so", "libm.so.6"), HasSubstr("does not tell its version")); }

TEST(CudaPluginLoader, NamesTheLibraryThatThePluginMisses) {
  EXPECT_THAT(refusal("/nowhere/libtroupe_cuda.so", NEW_DRIVER), AllOf(HasSubstr("needs a library that is not there"), HasSubstr("/nowhere/libtroupe_cuda.so"),
                                                                       HasSubstr("torch==2.11.0"), HasSubstr("LIBTORCH")));
}

TEST(CudaPluginLoader, RefusesALibraryThatIsNoPlugin) {
  EXPECT_THAT(refusal("libm.so.6", NEW_DRIVER), AllOf(HasSubstr("no plug-in of Troupe"), HasSubstr(CudaPlugin::symbol)));
}

TEST(CudaPluginLoader, LooksBesideTheProgramThenInTheLibraryFolder) {
  ::unsetenv("TROUPE_CUDA_PLUGIN");
  const testing::TemporaryFolder folder;
  const auto program = folder.path() / "bin" / "troupe-worker";
  const auto none = find_cuda_plugin(program);
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.error().message, AllOf(HasSubstr("has no CUDA plug-in"), HasSubstr(program.string()), HasSubstr("--device cpu")));
  std::filesystem::create_directories(folder.path() / "lib");
  (void)folder.write("lib/libtroupe_cuda.so", "");
  ASSERT_TRUE(find_cuda_plugin(program).ok());
  EXPECT_EQ(*find_cuda_plugin(program), folder.path() / "lib" / "libtroupe_cuda.so");
}

TEST(CudaPluginLoader, CountsTheGpusThatAProcessWillSee) {
  EXPECT_EQ(gpus_shown("0,2", "/nowhere"), 2U);
  EXPECT_EQ(gpus_shown("GPU-8932f937", "/nowhere"), 1U);
  EXPECT_EQ(gpus_shown("", "/nowhere"), 0U) << "all are hidden";
  EXPECT_EQ(gpus_shown(nullptr, "/nowhere"), std::nullopt) << "nobody can tell";
  const testing::TemporaryFolder folder;
  for (const char* name : {"nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "null"}) (void)folder.write(name, "");
  EXPECT_EQ(gpus_shown(nullptr, folder.path()), 3U);
}

}  // namespace
}  // namespace troupe
