# What the folders of the tree, and a wing that is built alone (heddle_alone), call: rooms, tests, wings. After the options, before the folders.

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
if(HEDDLE_HWLOC)
  pkg_check_modules(HEDDLE_HWLOC hwloc>=2 hwloc<3)
  if(NOT HEDDLE_HWLOC_FOUND)
    message(STATUS "hwloc 2 is not found: the machine's topology is what Linux tells (Debian: libhwloc-dev)")
  endif()
endif()

# A tree of tests in the least time to compile: tests, what measures and what is in no hurry are not optimised.
set(heddle_quick OFF)
set(heddle_in_no_hurry -O1)  # of sources that make much code for what is done once
if(HEDDLE_PRECOMPILE AND HEDDLE_TESTS)
  set(heddle_quick ON)
  set(heddle_in_no_hurry -O0)
endif()

if(HEDDLE_TESTS)
  enable_testing()
  include(heddle_gtest)
endif()
include(heddle_room)
include(heddle_wing)
include(heddle_test)
# Sources that are made at build time: what clang-tidy must have.
add_custom_target(heddle_made)
if(HEDDLE_INSTALL)
  # All that `cmake --install` copies; each install(TARGETS …) names its targets here too, which
  # tests/install checks.
  add_custom_target(heddle_installables)
endif()
