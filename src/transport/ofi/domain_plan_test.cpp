// Which domains follow from a provider's modes.
#include "transport/ofi/fabric.hpp"

#include <gtest/gtest.h>

namespace heddle::transport::ofi::domain_plan_test {
namespace {

constexpr int kVerbs = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
constexpr int kCxi = FI_MR_ENDPOINT | FI_MR_ALLOCATED | FI_MR_PROV_KEY;

TEST(DomainPlan, WorkersHaveDomainsWhereKeysAreOurs) {
  for (const int mode : {0, FI_MR_LOCAL, FI_MR_VIRT_ADDR | FI_MR_ALLOCATED}) {
    EXPECT_FALSE(plan_domains(mode, "auto")->shared);
    EXPECT_FALSE(plan_domains(mode, "worker")->shared);
    EXPECT_TRUE(plan_domains(mode, "shared")->shared);
  }
  for (const int mode : {kVerbs, kCxi}) EXPECT_TRUE(plan_domains(mode, "auto")->shared);
}

TEST(DomainPlan, AKeyOfTheProviderIsOfOneDomain) {
  EXPECT_EQ(plan_domains(kVerbs, "worker").status(), HEDDLE_ERR_CONFIG);
  // regions are the device's alone
  ASSERT_TRUE(plan_domains(kCxi, "worker").ok());
  EXPECT_FALSE(plan_domains(kCxi, "worker")->shared);
  EXPECT_EQ(plan_domains(0, "each").status(), HEDDLE_ERR_CONFIG);
}

TEST(DomainPlan, SaysWhatTheProviderWants) {
  const auto verbs = plan_domains(kVerbs, "auto");
  EXPECT_TRUE(verbs->local && verbs->provider_keys && verbs->by_address && !verbs->by_endpoint);
  const auto cxi = plan_domains(kCxi, "auto");
  EXPECT_TRUE(!cxi->local && cxi->provider_keys && !cxi->by_address && cxi->by_endpoint);
}

}  // namespace
}  // namespace heddle::transport::ofi::domain_plan_test
