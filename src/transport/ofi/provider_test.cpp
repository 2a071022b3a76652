// Which machines have an adapter that only libfabric drives.
#include "transport/ofi/fabric.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace heddle::transport::ofi::provider_test {
namespace {

namespace fs = std::filesystem;

// A folder as the kernel's of classes.
class OwnAdapter : public testing::Test {
 protected:
  OwnAdapter() : classes_(fs::temp_directory_path() / ("heddle_classes_" + std::to_string(::getpid()))) {
    fs::create_directories(classes_ / "infiniband");
  }
  ~OwnAdapter() override { fs::remove_all(classes_); }
  void add(const std::string& name, const std::string& driver) {
    const fs::path device = classes_ / "infiniband" / name / "device";
    fs::create_directories(device);
    fs::create_symlink("/sys/bus/pci/drivers/" + driver, device / "driver");
  }
  const fs::path classes_;
};

TEST_F(OwnAdapter, IsToldByItsDriver) {
  EXPECT_FALSE(has_own_adapter(classes_));
  add("mlx5_0", "mlx5_core");
  add("rdmap0s5", "irdma");
  EXPECT_FALSE(has_own_adapter(classes_));
  add("rdmap0s6", "efa");
  EXPECT_TRUE(has_own_adapter(classes_));
}

TEST_F(OwnAdapter, OmniPathAndSlingshotAreOwn) {
  add("opap24s0", "hfi1");
  EXPECT_TRUE(has_own_adapter(classes_));
  fs::remove_all(classes_ / "infiniband");
  EXPECT_FALSE(has_own_adapter(classes_));
  fs::create_directories(classes_ / "cxi");
  EXPECT_TRUE(has_own_adapter(classes_));
}

TEST(OwnProvider, IsNoneThatRunsOverTcp) {
  for (const char* provider : {"cxi", "efa", "opx", "psm2", "psm3"}) EXPECT_TRUE(drives_own_adapter(provider));
  for (const char* provider : {"tcp", "tcp;ofi_rxm", "verbs;ofi_rxm", "shm"})
    EXPECT_FALSE(drives_own_adapter(provider));
}

}  // namespace
}  // namespace heddle::transport::ofi::provider_test
