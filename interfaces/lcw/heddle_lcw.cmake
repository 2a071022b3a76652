# Adds Heddle as a backend to LCW (github.com/JiakunYan/lcw) while LCW is configured, also if another project fetches it:
#
#   cmake -D CMAKE_PROJECT_LCW_INCLUDE=<prefix>/share/heddle/lcw/heddle_lcw.cmake …
#
# CMake reads this file in LCW's project(). LCW's target exists at the end of that folder only, so the rest is deferred to there. Nothing
# of LCW is changed: its alloc_backend() is compiled under another name, and the one here calls it for all other backends.
if(CMAKE_VERSION VERSION_LESS 3.19)
  message(FATAL_ERROR "Heddle's backend for LCW needs CMake 3.19 or later (cmake_language(DEFER)); this is ${CMAKE_VERSION}.")
endif()
set(heddle_lcw_folder ${CMAKE_CURRENT_LIST_DIR})
# Installed, this file lies in <prefix>/share/heddle/lcw.
find_package(heddle CONFIG HINTS ${CMAKE_CURRENT_LIST_DIR}/../../..)
if(NOT heddle_FOUND)
  message(FATAL_ERROR "Heddle's backend for LCW: no installed Heddle was found; CMAKE_PREFIX_PATH or heddle_DIR tells where it is.")
endif()
# Neither of them is linked as a target: heddle::heddle asks for C++20, which not all of LCW's own sources are, and where LCW is static
# other folders, which do not know that target, link its libraries.
get_target_property(heddle_lcw_library heddle::heddle LOCATION)
get_target_property(heddle_lcw_headers heddle::heddle INTERFACE_INCLUDE_DIRECTORIES)

cmake_policy(PUSH)
cmake_policy(SET CMP0079 NEW)  # links to a target of another folder
function(heddle_lcw_add_backend folder)
  if(NOT TARGET lcw)
    message(FATAL_ERROR "Heddle's backend for LCW: the project ${PROJECT_NAME} has no target lcw; this version of LCW is not known.")
  endif()
  get_target_property(source_folder lcw SOURCE_DIR)
  get_target_property(sources lcw SOURCES)
  if(NOT "backend/backend.cpp" IN_LIST sources AND NOT "${source_folder}/backend/backend.cpp" IN_LIST sources)
    message(FATAL_ERROR "Heddle's backend for LCW: LCW's backend/backend.cpp, which chooses the backend, is not where it was; this version "
                        "of LCW is not known.")
  endif()
  set_property(SOURCE ${source_folder}/backend/backend.cpp TARGET_DIRECTORY lcw
               APPEND PROPERTY COMPILE_DEFINITIONS alloc_backend=alloc_backend_of_lcw)
  set(files backend.cpp completion.cpp device.cpp process.cpp record.cpp)
  list(TRANSFORM files PREPEND ${folder}/)
  target_sources(lcw PRIVATE ${files})
  # Its own folder as lcw/: <prefix>/share/heddle, or interfaces/ in Heddle's sources. After LCW's own.
  target_include_directories(lcw PRIVATE ${folder}/..)
  target_include_directories(lcw SYSTEM PRIVATE ${heddle_lcw_headers})
  target_link_libraries(lcw PRIVATE ${heddle_lcw_library})
  message(STATUS "LCW: Heddle ${heddle_VERSION} is a backend (LCW_BACKEND_AUTO=heddle, the default)")
endfunction()
cmake_policy(POP)
cmake_language(DEFER CALL heddle_lcw_add_backend ${heddle_lcw_folder})
