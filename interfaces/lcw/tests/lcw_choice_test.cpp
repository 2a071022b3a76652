// Which backend a program gets: Heddle's, or the one that LCW would give.
#include <gtest/gtest.h>

#include <cstdlib>

#include <lcwi.hpp>

namespace heddle::for_lcw::choice_test {
namespace {

class LcwChoice : public testing::Test {
 protected:
  LcwChoice() { forget(); }
  ~LcwChoice() override { forget(); }
  LcwChoice(const LcwChoice&) = delete;
  LcwChoice& operator=(const LcwChoice&) = delete;

  // Exactly one of the two is asked.
  static bool is_heddle(::lcw::backend_t wanted) {
    const int before = ::lcw::stand_in::asked;
    const auto backend = ::lcw::alloc_backend(wanted);
    const bool heddle = backend != nullptr && backend->get_name() == "heddle";
    EXPECT_EQ(::lcw::stand_in::asked - before, heddle ? 0 : 1);
    return heddle;
  }

 private:
  static void forget() {
    ::unsetenv("LCW_BACKEND_AUTO");
    ::unsetenv("LCW_HEDDLE_ALWAYS");
  }
};

TEST_F(LcwChoice, HeddleWhereTheProgramLeavesItOpen) {
  EXPECT_TRUE(is_heddle(::lcw::backend_t::AUTO));
  ::setenv("LCW_BACKEND_AUTO", "heddle", 1);
  EXPECT_TRUE(is_heddle(::lcw::backend_t::AUTO));
}

TEST_F(LcwChoice, WhatTheVariableNamesElse) {
  for (const char* name : {"mpi", "lci", "lci2", "gex"}) {
    ::setenv("LCW_BACKEND_AUTO", name, 1);
    EXPECT_FALSE(is_heddle(::lcw::backend_t::AUTO)) << name;
  }
}

TEST_F(LcwChoice, WhatTheProgramAsksForIfLcwHasIt) {
  ::setenv("LCW_BACKEND_AUTO", "heddle", 1);
  EXPECT_FALSE(is_heddle(::lcw::backend_t::MPI));
}

TEST_F(LcwChoice, HeddleInPlaceOfABackendThatLcwLacks) {
  for (const auto missing : {::lcw::backend_t::LCI, ::lcw::backend_t::LCI2, ::lcw::backend_t::GEX}) {
    testing::internal::CaptureStderr();
    EXPECT_TRUE(is_heddle(missing));
    EXPECT_NE(testing::internal::GetCapturedStderr().find("Heddle takes its place"), std::string::npos);
  }
}

TEST_F(LcwChoice, HeddleAlwaysIfAskedTo) {
  ::setenv("LCW_HEDDLE_ALWAYS", "1", 1);
  EXPECT_TRUE(is_heddle(::lcw::backend_t::MPI));
  ::setenv("LCW_BACKEND_AUTO", "mpi", 1);
  EXPECT_TRUE(is_heddle(::lcw::backend_t::AUTO));
  ::setenv("LCW_HEDDLE_ALWAYS", "0", 1);
  EXPECT_FALSE(is_heddle(::lcw::backend_t::MPI));
}

}  // namespace
}  // namespace heddle::for_lcw::choice_test
