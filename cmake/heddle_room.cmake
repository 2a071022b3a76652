# heddle_room(NAME SOURCES … DEPENDS …)   one room of src/ as a static library heddle_NAME
# heddle_test(SOURCE ROOM… [LABELS …])    one GoogleTest program beside its source, registered with ctest

add_library(heddle_flags INTERFACE)
target_compile_options(heddle_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
                       -fno-rtti)
target_include_directories(heddle_flags INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
target_link_libraries(heddle_flags INTERFACE Threads::Threads)
if(HEDDLE_WERROR)
  target_compile_options(heddle_flags INTERFACE -Werror)
endif()
if(HEDDLE_SANITIZE)
  # -O1 and line tables are what the sanitizers' reports need; more would double the time to compile the tests.
  add_compile_options(-O1 -g1 -fsanitize=${HEDDLE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${HEDDLE_SANITIZE})
endif()

# One parse of GoogleTest and the standard library for all tests, at half the time to compile a small one by clang; g++ gains nothing.
if(HEDDLE_PRECOMPILE AND HEDDLE_TESTS)
  add_executable(heddle_precompiled ${CMAKE_CURRENT_LIST_DIR}/precompiled.cpp)
  target_link_libraries(heddle_precompiled PRIVATE heddle_flags GTest::gtest)
  target_precompile_headers(heddle_precompiled PRIVATE ${CMAKE_CURRENT_LIST_DIR}/precompiled.hpp)
  # Without a time in it, the header is the same when it is made again, and ccache may know what was compiled with it.
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
    target_compile_options(heddle_precompiled PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
  endif()
endif()

function(heddle_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(heddle_${name} STATIC ${ROOM_SOURCES})
  target_link_libraries(heddle_${name} PUBLIC heddle_flags)
  foreach(other ${ROOM_DEPENDS})
    target_link_libraries(heddle_${name} PUBLIC heddle_${other})
  endforeach()
endfunction()

function(heddle_test source)
  if(NOT HEDDLE_TESTS)
    return()
  endif()
  cmake_parse_arguments(TEST "" "TIMEOUT" "LABELS;ROOMS" ${ARGN})
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} ${source})
  foreach(room ${TEST_ROOMS})
    target_link_libraries(${name} PRIVATE heddle_${room})
  endforeach()
  target_link_libraries(${name} PRIVATE heddle_flags GTest::gtest GTest::gtest_main)
  if(TARGET heddle_precompiled)
    target_precompile_headers(${name} REUSE_FROM heddle_precompiled)
  endif()
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 120)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${TEST_TIMEOUT} LABELS "${TEST_LABELS}"
                       SKIP_REGULAR_EXPRESSION "^skipped:")
endfunction()
