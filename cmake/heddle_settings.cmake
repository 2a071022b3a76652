# What the tree, and a wing that is built alone (heddle_alone), are compiled with: languages, kinds of build, options. After project().

# The repository, and the headers of the core: those in the tree, or those that are installed.
get_filename_component(HEDDLE_ROOT ${CMAKE_CURRENT_LIST_DIR} DIRECTORY)
set(HEDDLE_INCLUDE ${HEDDLE_ROOT}/include)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
  endif()
endif()

option(HEDDLE_HWLOC "Read the machine's topology by hwloc 2, where its header is found; the library is loaded at run time" ON)
option(HEDDLE_WERROR "Treat warnings as errors" OFF)
option(HEDDLE_PRECOMPILE "Least time to compile: the standard library's headers parsed once (hides an include that is missing); a tree with tests has these and what measures not optimised" OFF)
option(HEDDLE_UNITY "Compile several sources at once: half of the time (hides an include that is missing)" ON)
set(HEDDLE_TEST_LABELS "" CACHE STRING "Only tests with one of these labels are built; empty: all")
set(HEDDLE_SANITIZE "" CACHE STRING "Sanitizers for the whole build, as for -fsanitize=")

list(APPEND CMAKE_MODULE_PATH ${CMAKE_CURRENT_LIST_DIR})
