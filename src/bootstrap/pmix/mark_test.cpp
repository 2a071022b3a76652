#include "bootstrap/pmix/pmix.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>

namespace heddle::bootstrap::pmix::mark_test {
namespace {

// A name of this process alone, since all processes of the machine share the names.
std::string space(const char* name) {
  return std::string(name) + std::to_string(::getpid());
}

// No thread accepts the connections to the mark: any number of callers must get the error, and none
// may wait.
TEST(mark, is_told_to_everybody_who_asks) {
  const std::string job = space("job");
  ASSERT_EQ(mark_process(job, "3"), HEDDLE_DONE) << base::last_message();
  for (int i = 0; i < 50; ++i) ASSERT_EQ(mark_process(job, "3"), HEDDLE_ERR_STATE) << i;
  EXPECT_NE(std::strstr(base::last_message(), std::to_string(::getpid()).c_str()), nullptr) << base::last_message();
}

TEST(mark, long_names_stay_apart) {
  const std::string job = space("job") + std::string(255, 'x');
  EXPECT_EQ(mark_process(job + "1", "0"), HEDDLE_DONE) << base::last_message();
  EXPECT_EQ(mark_process(job + "1", "1"), HEDDLE_DONE) << base::last_message();
  EXPECT_EQ(mark_process(job + "2", "0"), HEDDLE_DONE) << base::last_message();
  EXPECT_EQ(mark_process(job + "1", "0"), HEDDLE_ERR_STATE);
}

TEST(mark, no_descriptor_is_said) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 0;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_EQ(mark_process(space("late"), "0"), HEDDLE_ERR_SYSTEM);
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

}  // namespace
}  // namespace heddle::bootstrap::pmix::mark_test
