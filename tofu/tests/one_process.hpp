// For tests of the interface: a world of one process whose VCQs communicate with each other.
#pragma once

#include <gtest/gtest.h>
#include <utofu.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "base/test_support.hpp"

namespace tofu_emulator::test {

// A VCQ that is freed at the end of the test.
class Queue {
 public:
  explicit Queue(utofu_tni_id_t tni, unsigned long flags = UTOFU_VCQ_FLAG_EXCLUSIVE) {
    EXPECT_EQ(utofu_create_vcq(tni, flags, &handle_), UTOFU_SUCCESS);
    EXPECT_EQ(utofu_query_vcq_id(handle_, &id_), UTOFU_SUCCESS);
  }
  ~Queue() { EXPECT_EQ(utofu_free_vcq(handle_), UTOFU_SUCCESS); }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  [[nodiscard]] utofu_vcq_hdl_t handle() const { return handle_; }
  [[nodiscard]] utofu_vcq_id_t id() const { return id_; }

  utofu_stadd_t reg(void* address, std::size_t size, unsigned long flags = 0) {
    utofu_stadd_t stadd = 0;
    EXPECT_EQ(utofu_reg_mem(handle_, address, size, flags, &stadd), UTOFU_SUCCESS);
    return stadd;
  }
  void dereg(utofu_stadd_t stadd) { EXPECT_EQ(utofu_dereg_mem(handle_, stadd, 0), UTOFU_SUCCESS); }

  // Returns the result of the next poll that finds something.
  int tcq(void** cbdata) {
    int status = UTOFU_ERR_NOT_FOUND;
    EXPECT_TRUE(heddle::test::within_time(
        [&] { return (status = utofu_poll_tcq(handle_, 0, cbdata)) != UTOFU_ERR_NOT_FOUND; }));
    return status;
  }
  int mrq(utofu_mrq_notice* notice) {
    int status = UTOFU_ERR_NOT_FOUND;
    EXPECT_TRUE(heddle::test::within_time(
        [&] { return (status = utofu_poll_mrq(handle_, 0, notice)) != UTOFU_ERR_NOT_FOUND; }));
    return status;
  }

 private:
  utofu_vcq_hdl_t handle_ = 0;
  utofu_vcq_id_t id_ = 0;
};

inline constexpr unsigned long kBothNotices =
    UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE | UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE;

}  // namespace tofu_emulator::test
