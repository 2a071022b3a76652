# A wing as a project of its own, which its CMakeLists.txt includes after project() where it is the top:
#   cmake -S interfaces/mpi -B BUILD -D CMAKE_PREFIX_PATH=PREFIX && cmake --build BUILD && cmake --install BUILD
# It stands on the Heddle that find_package finds, of this version (heddle_alone_uses says how much of it), is compiled with its headers, and is
# installed into its folders unless CMAKE_INSTALL_PREFIX says otherwise: there `heddle` looks for the programs of wings. The rooms of src/ that
# wings may use are compiled with it. HEDDLE_ALONE is ON.
#
# Its tests (HEDDLE_TESTS) run jobs by the installed `heddle`. That would start an installed wing's programs, not these: tests of commands are
# left out, and said to be.
include(${CMAKE_CURRENT_LIST_DIR}/heddle_settings.cmake)
set(HEDDLE_ALONE ON)
option(HEDDLE_TESTS "Build the wing's tests" OFF)
set(HEDDLE_INSTALL ON)

# The version is the tree's.
file(STRINGS ${HEDDLE_ROOT}/CMakeLists.txt project_line REGEX "^project\\(heddle VERSION ")
string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" PROJECT_VERSION "${project_line}")

# With `heddle` a library, heddle_mpi and heddle_shmem if they are installed, heddle_tool if tests can start it.
find_package(heddle ${PROJECT_VERSION} QUIET)
if(heddle_FOUND)
  message(STATUS "Heddle ${heddle_VERSION} in ${heddle_PREFIX}")
  # The core's headers alone: the folder around them has a shmem.h, or another library's headers.
  get_target_property(installed_headers heddle::heddle INTERFACE_INCLUDE_DIRECTORIES)
  set(HEDDLE_INCLUDE ${PROJECT_BINARY_DIR}/core)
  file(MAKE_DIRECTORY ${HEDDLE_INCLUDE})
  file(CREATE_LINK ${installed_headers}/heddle ${HEDDLE_INCLUDE}/heddle SYMBOLIC)
  add_library(heddle ALIAS heddle::heddle)
  if(CMAKE_INSTALL_PREFIX_INITIALIZED_TO_DEFAULT)
    set(CMAKE_INSTALL_PREFIX ${heddle_PREFIX} CACHE PATH "Where the wing is installed" FORCE)
  endif()
  foreach(folder BINDIR LIBDIR INCLUDEDIR)
    if(NOT DEFINED CMAKE_INSTALL_${folder})
      set(CMAKE_INSTALL_${folder} ${heddle_${folder}} CACHE PATH "As the library's")
    endif()
  endforeach()
  foreach(network UCX OFI)
    set(HEDDLE_HAS_${network} ${heddle_HAS_${network}})
  endforeach()
endif()
include(GNUInstallDirs)

# heddle_alone_uses([CORE] [INTERFACES] [TOOL] [ROOMS …])    what of Heddle the wing that is the top project uses
#   CORE        the library, without which there is no such wing
#   INTERFACES  MPI and OpenSHMEM, where they are installed: HEDDLE_MPI and HEDDLE_SHMEM say whether
#   TOOL        its tests start jobs of their own programs: HEDDLE_TOOL says whether they can
#   ROOMS       rooms of src/, without their tests
macro(heddle_alone_uses)
  cmake_parse_arguments(ALONE "CORE;INTERFACES;TOOL" "" "ROOMS" ${ARGN})
  if(ALONE_CORE AND NOT heddle_FOUND)
    set(others "")
    if(heddle_CONSIDERED_VERSIONS)
      set(others " (found: ${heddle_CONSIDERED_VERSIONS})")
    endif()
    message(FATAL_ERROR "This wing stands on an installed Heddle ${PROJECT_VERSION}, which is not found${others}: set CMAKE_PREFIX_PATH to its prefix")
  endif()
  if(ALONE_INTERFACES)
    foreach(interface mpi shmem)
      string(TOUPPER ${interface} upper)
      set(HEDDLE_${upper} OFF)
      if(TARGET heddle::${interface})
        set(HEDDLE_${upper} ON)
        add_library(heddle_${interface} ALIAS heddle::${interface})
      else()
        message(STATUS "heddle::${interface} is not installed: without what is about it")
      endif()
    endforeach()
  endif()
  set(HEDDLE_TOOL OFF)
  if(ALONE_TOOL AND HEDDLE_TESTS AND heddle_FOUND)
    find_program(HEDDLE_TOOL_PROGRAM heddle HINTS ${heddle_PREFIX}/${heddle_BINDIR} NO_DEFAULT_PATH)
    if(HEDDLE_TOOL_PROGRAM)
      set(HEDDLE_TOOL ON)
      add_executable(heddle_tool IMPORTED GLOBAL)
      set_target_properties(heddle_tool PROPERTIES IMPORTED_LOCATION ${HEDDLE_TOOL_PROGRAM})
    endif()
  endif()
  if(HEDDLE_TESTS AND NOT HEDDLE_TOOL)
    message(STATUS "Tests that need the heddle command are left out")
  endif()
  include(heddle_frame)
  foreach(room ${ALONE_ROOMS})
    heddle_alone_room(${room})
  endforeach()
endmacro()

function(heddle_alone_room name)
  set(HEDDLE_TESTS OFF)
  set(HEDDLE_USDT OFF)  # static probes are of programs that are traced
  add_subdirectory(${HEDDLE_ROOT}/src/${name} ${PROJECT_BINARY_DIR}/src/${name} EXCLUDE_FROM_ALL)
endfunction()
