# What `cmake --install` puts where: the library, the headers, the tool, and what find_package and pkg-config need. The components are those
# that distributions make packages of (heddle_packages): library, development, tools, documentation; with openshmem,
# openshmem-development, emulator.
# Nothing in it names the prefix, so that an installed tree may be moved, staged with DESTDIR or installed with --prefix.
include(CMakePackageConfigHelpers)

install(TARGETS heddle EXPORT heddle_targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development)
add_dependencies(heddle_installables heddle)
install(DIRECTORY include/heddle DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
        FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")

if(TARGET heddle_tool)
  file(RELATIVE_PATH heddle_bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(heddle_tool PROPERTIES INSTALL_RPATH "$ORIGIN/${heddle_bin_to_lib}")
  install(TARGETS heddle_tool RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
  add_dependencies(heddle_installables heddle_tool)
endif()

# For debuggers and valgrind (docs/debugging.md). gdb loads the script by itself from under its own auto-load folder, by the full name of the
# library; the other is for whoever has another prefix.
install(FILES observe/gdb/heddle-gdb.py observe/valgrind/heddle.supp DESTINATION ${CMAKE_INSTALL_DATADIR}/heddle COMPONENT library)
install(FILES observe/gdb/heddle-gdb.py DESTINATION ${CMAKE_INSTALL_DATADIR}/gdb/auto-load${CMAKE_INSTALL_FULL_LIBDIR}
        RENAME $<TARGET_FILE_NAME:heddle>-gdb.py COMPONENT library)

set(heddle_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/heddle)
install(EXPORT heddle_targets NAMESPACE heddle:: FILE heddle-targets.cmake DESTINATION ${heddle_cmake_dir} COMPONENT development)
configure_package_config_file(cmake/heddle-config.cmake.in ${PROJECT_BINARY_DIR}/heddle-config.cmake
                              INSTALL_DESTINATION ${heddle_cmake_dir} NO_CHECK_REQUIRED_COMPONENTS_MACRO)
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/heddle-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/heddle-config.cmake ${PROJECT_BINARY_DIR}/heddle-config-version.cmake
        DESTINATION ${heddle_cmake_dir} COMPONENT development)

# heddle.pc finds its prefix from where it lies. With absolute directories (some distributions) it names them.
file(RELATIVE_PATH heddle_pc_to_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" heddle_pc_to_prefix "${heddle_pc_to_prefix}")
set(heddle_pc_prefix "\${pcfiledir}/${heddle_pc_to_prefix}")
foreach(kind LIB INCLUDE)
  if(IS_ABSOLUTE "${CMAKE_INSTALL_${kind}DIR}")
    set(heddle_pc_${kind} "${CMAKE_INSTALL_${kind}DIR}")
  else()
    set(heddle_pc_${kind} "\${prefix}/${CMAKE_INSTALL_${kind}DIR}")
  endif()
endforeach()
configure_file(cmake/heddle.pc.in ${PROJECT_BINARY_DIR}/heddle.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/heddle.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

# The documents lie to each other as in the source, so that the links between them hold; those to the headers are changed
# to lead to where the headers are installed.
install(FILES LICENSE CHANGELOG.md CODE_OF_CONDUCT.md CONTRIBUTING.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT documentation)
install(FILES docs/abi.md docs/architecture.md docs/clusters.md docs/debugging.md docs/explain.md docs/hangs.md docs/lcw.md docs/live.md docs/mpi.md docs/openshmem.md docs/performance.md docs/python.md docs/tofu.md docs/tofu-mpi.md docs/tracing.md
        DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs COMPONENT documentation)
install(DIRECTORY docs/decisions docs/journal DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs COMPONENT documentation FILES_MATCHING PATTERN "*.md")
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT documentation
        FILES_MATCHING PATTERN "*.c" PATTERN "*.cpp" PATTERN "*.py" PATTERN "README.md")
foreach(document README.md docs/guide.md)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${document})
  get_filename_component(folder ${document} DIRECTORY)
  file(RELATIVE_PATH heddle_to_include ${CMAKE_INSTALL_FULL_DOCDIR}/${folder} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
  file(RELATIVE_PATH heddle_to_source ${PROJECT_SOURCE_DIR}/${folder} ${PROJECT_SOURCE_DIR}/include)
  file(READ ${document} heddle_text)
  string(REPLACE "](${heddle_to_source}/" "](${heddle_to_include}/" heddle_text "${heddle_text}")
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/installed/${document} CONTENT "@heddle_text@" @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/installed/${document} DESTINATION ${CMAKE_INSTALL_DOCDIR}/${folder} COMPONENT documentation)
endforeach()
