# heddle_room(NAME [HOT] SOURCES … DEPENDS …)   one room of src/ as a static library heddle_NAME; HOT: each operation passes it
# heddle_unite(TARGET COUNT)              its sources are compiled COUNT at once, where HEDDLE_UNITY is ON

add_library(heddle_flags INTERFACE)
target_compile_options(heddle_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
                       -fno-rtti)
target_include_directories(heddle_flags INTERFACE ${HEDDLE_ROOT}/src ${HEDDLE_INCLUDE})
target_link_libraries(heddle_flags INTERFACE Threads::Threads)
# g++ 12 takes assignments of std::string for overlapping copies (GCC bug 105651).
target_compile_options(heddle_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
if(HEDDLE_WERROR)
  target_compile_options(heddle_flags INTERFACE -Werror)
endif()
if(HEDDLE_SANITIZE)
  # An enumeration of the C API holds whatever a C program put there, and is compared with what it may be: the compilers take no advantage
  # of its range (-fstrict-enums is not set), so that a load of another value is none of the sanitizer's business.
  # -O1 and line tables are what the sanitizers' reports need; more would double the time to compile the tests.
  add_compile_options(-O1 -g1 -fsanitize=${HEDDLE_SANITIZE} -fno-sanitize=enum -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${HEDDLE_SANITIZE})
  # Undefined behaviour is a trap, not a call that tells what it was: half of the code that the sanitizer makes. AddressSanitizer says where
  # (ASAN_OPTIONS=handle_sigill=1).
  if(HEDDLE_SANITIZE MATCHES undefined AND CMAKE_CXX_COMPILER_ID MATCHES Clang)
    add_compile_options(-fsanitize-trap=undefined)
  endif()
endif()

# The headers of the standard library parsed once for all rooms, and with GoogleTest for all tests: half of the time to compile a file.
# A compiler takes what was parsed only where its flags are the same, so sources with flags of their own set
# SKIP_PRECOMPILE_HEADERS, or their target DISABLE_PRECOMPILE_HEADERS.
# Tests are not optimised there, and what guides a fuzzer is not put into them: GoogleTest's comparisons make so much code that this is two
# thirds of the time to compile them with sanitizers. The libraries that they test are compiled as the tree says.
set(heddle_test_options)
if(heddle_quick)
  set(heddle_test_options -O0)
endif()
if(HEDDLE_FUZZ)
  list(APPEND heddle_test_options -fno-sanitize=fuzzer-no-link)
endif()
if(HEDDLE_PRECOMPILE)
  # g++ 12 forgets that what it has precompiled is the system's, and warns of what it wrongly suspects in std::string.
  target_compile_options(heddle_flags INTERFACE
                         $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds;-Wno-stringop-overflow;-Wno-stringop-overread>)
  add_library(heddle_precompiled_rooms STATIC ${CMAKE_CURRENT_LIST_DIR}/precompiled.cpp)
  target_link_libraries(heddle_precompiled_rooms PRIVATE heddle_flags)
  target_precompile_headers(heddle_precompiled_rooms PRIVATE ${CMAKE_CURRENT_LIST_DIR}/precompiled_rooms.hpp)
  if(HEDDLE_TESTS)
    add_executable(heddle_precompiled_tests ${CMAKE_CURRENT_LIST_DIR}/precompiled.cpp)
    target_link_libraries(heddle_precompiled_tests PRIVATE heddle_flags GTest::gtest)
    target_compile_options(heddle_precompiled_tests PRIVATE ${heddle_test_options})
    target_precompile_headers(heddle_precompiled_tests PRIVATE ${CMAKE_CURRENT_LIST_DIR}/precompiled_tests.hpp)
  endif()
  # Without a time in it, the header is the same when it is made again, and ccache may know what was compiled with it.
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
    foreach(kind rooms tests)
      if(TARGET heddle_precompiled_${kind})
        target_compile_options(heddle_precompiled_${kind} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
      endif()
    endforeach()
  endif()
endif()

# heddle_precompile(TARGET rooms|tests)    lets a library, or a test, that has heddle_flags take what was parsed once
function(heddle_precompile target kind)
  if(TARGET heddle_precompiled_${kind})
    target_precompile_headers(${target} REUSE_FROM heddle_precompiled_${kind})
    if("${kind}" STREQUAL "tests")
      target_compile_options(${target} PRIVATE ${heddle_test_options})
    endif()
  endif()
endfunction()

# Sources that are compiled together parse their headers once: half of the time to compile. Those with options of their own stay alone. An
# include that is missing stays hidden: clang-tidy and the nightly build see each file by itself.
function(heddle_unite target count)
  if(HEDDLE_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${count})
    # To g++ they are headers then, in which nothing may be built of what is private to a file.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

function(heddle_room name)
  cmake_parse_arguments(ROOM "HOT" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(heddle_${name} STATIC ${ROOM_SOURCES})
  target_link_libraries(heddle_${name} PUBLIC heddle_flags)
  foreach(other ${ROOM_DEPENDS})
    target_link_libraries(heddle_${name} PUBLIC heddle_${other})
  endforeach()
  heddle_precompile(heddle_${name} rooms)
  # Of a long source g++ inlines less: the limits of instructions (tests/instructions) hold for short ones.
  if(NOT ROOM_HOT OR HEDDLE_SANITIZE)
    heddle_unite(heddle_${name} 6)
  endif()
endfunction()

# heddle_abi(TARGET NAME MAP)    makes of a library what abidiff reads (docs/abi.md): compiled in no time, as nobody runs it, with the types of
#                                its functions, under the name of the library whose interface it has, and without what they call
function(heddle_abi target name map)
  target_compile_options(${target} PRIVATE -O0 -g -fdebug-prefix-map=${HEDDLE_ROOT}=. -fdebug-prefix-map=${PROJECT_BINARY_DIR}=made)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name} SOVERSION 0 LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/abi
                        LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${map})
  target_link_options(${target} PRIVATE -Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/${map})
endfunction()
