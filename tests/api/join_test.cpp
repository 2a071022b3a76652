// A join that is refused because of its options.
#include <gtest/gtest.h>

#include <string>

#include "api/test_job.hpp"

namespace heddle::test::join_test {
namespace {

Status join(const Job& job, const char* transport, heddle_context* context) {
  const heddle_context_options options{sizeof options, "inproc", transport, job.handle(), 0, nullptr};
  return heddle_context_join(&options, context);
}

// A process joins its launcher's job once: errors in the options are found before that.
TEST(Join, IsLeftToBeTriedAgain) {
  const Job job(1, "shm");
  heddle_context context{};
  for (const char* wrong : {"shmm", "shm,", "shm,ucxx", "fault+", ""}) {
    EXPECT_EQ(join(job, wrong, &context), HEDDLE_ERR_CONFIG) << wrong;
    EXPECT_NE(std::string(heddle_last_error()).find("there is no transport"), std::string::npos) << heddle_last_error();
  }
  {
    const Variables variables{{{"HEDDLE_TRANSPORTS", "shm,nothing"}}};
    EXPECT_EQ(join(job, nullptr, &context), HEDDLE_ERR_CONFIG);
  }
  {
    const Variables variables{{{"HEDDLE_TRANSPORTS", "shm"}, {"HEDDLE_TRANSPORT", "ucx"}}};
    EXPECT_EQ(join(job, "auto", &context), HEDDLE_ERR_CONFIG);
  }
  ASSERT_EQ(join(job, "shm", &context), HEDDLE_DONE) << heddle_last_error();
  EXPECT_EQ(heddle_context_leave(context), HEDDLE_DONE);
}

}  // namespace
}  // namespace heddle::test::join_test
