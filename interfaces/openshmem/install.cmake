# What `cmake --install` adds for OpenSHMEM: the library, its headers, oshcc, oshc++ and oshrun, heddle::shmem and heddle-shmem.pc.
set_target_properties(heddle_shmem PROPERTIES INSTALL_RPATH "$ORIGIN")
install(TARGETS heddle_shmem EXPORT heddle_shmem_targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT openshmem NAMELINK_COMPONENT openshmem-development)
# heddle-config.cmake includes it where it is.
install(EXPORT heddle_shmem_targets NAMESPACE heddle:: FILE heddle-shmem-targets.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/heddle COMPONENT openshmem-development)
add_dependencies(heddle_installables heddle_shmem)  # and with it the headers that are made
install(FILES ${made_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT openshmem-development)
install(FILES include/mpp/shmem.h include/mpp/shmemx.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/mpp COMPONENT openshmem-development)

# The wrappers find everything from where they lie. In another folder than bin, where a distribution has those of Open MPI, bin gets links
# that end in .heddle.
set(HEDDLE_OSH_BINDIR ${CMAKE_INSTALL_BINDIR} CACHE STRING "Where oshcc, oshc++ and oshrun are installed, in the prefix")
file(RELATIVE_PATH OSH_BIN_TO_INCLUDE ${CMAKE_INSTALL_PREFIX}/${HEDDLE_OSH_BINDIR} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
file(RELATIVE_PATH OSH_BIN_TO_LIB ${CMAKE_INSTALL_PREFIX}/${HEDDLE_OSH_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
file(RELATIVE_PATH OSH_BIN_TO_BIN ${CMAKE_INSTALL_PREFIX}/${HEDDLE_OSH_BINDIR} ${CMAKE_INSTALL_FULL_BINDIR}/.)
function(osh_install name component)
  install(PROGRAMS ${CMAKE_CURRENT_BINARY_DIR}/${name} DESTINATION ${HEDDLE_OSH_BINDIR} COMPONENT ${component})
  if(HEDDLE_OSH_BINDIR STREQUAL CMAKE_INSTALL_BINDIR)
    return()
  endif()
  file(RELATIVE_PATH target ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_PREFIX}/${HEDDLE_OSH_BINDIR}/${name})
  file(CREATE_LINK ${target} ${CMAKE_CURRENT_BINARY_DIR}/${name}.heddle SYMBOLIC)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}.heddle DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT ${component})
endfunction()
function(osh_wrapper name language variable default)
  set(OSH_NAME ${name})
  set(OSH_LANGUAGE ${language})
  set(OSH_VARIABLE ${variable})
  set(OSH_DEFAULT ${default})
  configure_file(${CMAKE_CURRENT_SOURCE_DIR}/wrappers/oshcc.in ${CMAKE_CURRENT_BINARY_DIR}/${name} @ONLY)
  osh_install(${name} openshmem-development)
endfunction()
osh_wrapper(oshcc C OSHCC_COMPILER cc)
osh_wrapper(oshc++ C++ OSHCXX_COMPILER c++)
osh_wrapper(oshCC C++ OSHCXX_COMPILER c++)
osh_wrapper(oshcxx C++ OSHCXX_COMPILER c++)
configure_file(${CMAKE_CURRENT_SOURCE_DIR}/wrappers/oshrun.in ${CMAKE_CURRENT_BINARY_DIR}/oshrun @ONLY)
osh_install(oshrun openshmem)

# As heddle.pc: it finds its prefix from where it lies.
file(RELATIVE_PATH pc_to_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" pc_to_prefix "${pc_to_prefix}")
set(heddle_pc_prefix "\${pcfiledir}/${pc_to_prefix}")
foreach(kind LIB INCLUDE)
  if(IS_ABSOLUTE "${CMAKE_INSTALL_${kind}DIR}")
    set(heddle_pc_${kind} "${CMAKE_INSTALL_${kind}DIR}")
  else()
    set(heddle_pc_${kind} "\${prefix}/${CMAKE_INSTALL_${kind}DIR}")
  endif()
endforeach()
configure_file(${CMAKE_CURRENT_SOURCE_DIR}/wrappers/heddle-shmem.pc.in ${CMAKE_CURRENT_BINARY_DIR}/heddle-shmem.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/heddle-shmem.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT openshmem-development)
