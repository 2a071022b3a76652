# GoogleTest: what is installed, or, where that is for another processor than the one built for, its sources, which Debian's
# libgtest-dev brings too.
if(CMAKE_CROSSCOMPILING)
  set(HEDDLE_GTEST_SOURCE /usr/src/googletest CACHE PATH "Sources of GoogleTest, to be built with the tests")
  if(NOT EXISTS ${HEDDLE_GTEST_SOURCE}/CMakeLists.txt)
    message(FATAL_ERROR "There is no GoogleTest in ${HEDDLE_GTEST_SOURCE}; install googletest, set HEDDLE_GTEST_SOURCE or "
                        "HEDDLE_TESTS=OFF")
  endif()
  set(BUILD_GMOCK OFF CACHE INTERNAL "")
  set(INSTALL_GTEST OFF CACHE INTERNAL "")
  add_subdirectory(${HEDDLE_GTEST_SOURCE} googletest EXCLUDE_FROM_ALL SYSTEM)
else()
  find_package(GTest REQUIRED)
endif()
