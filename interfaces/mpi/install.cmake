# What `cmake --install` adds for MPI: a folder that has what an MPI installation has, with the names that it has there (bin/mpicc, include/mpi.h,
# lib/libmpi_abi.so.1), apart from other MPIs' files of the same names; in bin the same commands as heddle-mpicc, heddle-mpicxx and heddle-mpirun;
# heddle::mpi and heddle-mpi.pc.
set(mpi_home ${CMAKE_INSTALL_LIBDIR}/heddle/mpi)
set(mpi_full_home ${CMAKE_INSTALL_FULL_LIBDIR}/heddle/mpi)
file(RELATIVE_PATH mpi_lib_to_lib ${mpi_full_home}/lib ${CMAKE_INSTALL_FULL_LIBDIR})
string(REGEX REPLACE "/$" "" mpi_lib_to_lib "${mpi_lib_to_lib}")
# So that LD_LIBRARY_PATH need not have the folder of libheddle.so.
set_target_properties(heddle_mpi PROPERTIES INSTALL_RPATH "$ORIGIN/${mpi_lib_to_lib}")
target_include_directories(heddle_mpi PUBLIC $<INSTALL_INTERFACE:${mpi_home}/include>)
install(TARGETS heddle_mpi EXPORT heddle_mpi_targets
        LIBRARY DESTINATION ${mpi_home}/lib COMPONENT mpi NAMELINK_COMPONENT mpi-development)
# heddle-config.cmake includes it where it is.
install(EXPORT heddle_mpi_targets NAMESPACE heddle:: FILE heddle-mpi-targets.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/heddle COMPONENT mpi-development)
add_dependencies(heddle_installables heddle_mpi)  # and with it the header, which is made
install(FILES ${made_header} DESTINATION ${mpi_home}/include COMPONENT mpi-development)

# The wrappers find everything from where they lie. Those with plain names are links.
file(RELATIVE_PATH MPI_TO_INCLUDE ${CMAKE_INSTALL_FULL_BINDIR} ${mpi_full_home}/include)
file(RELATIVE_PATH MPI_TO_LIB ${CMAKE_INSTALL_FULL_BINDIR} ${mpi_full_home}/lib)
set(MPI_TO_BIN .)
file(RELATIVE_PATH mpi_bin_to_bin ${mpi_full_home}/bin ${CMAKE_INSTALL_FULL_BINDIR})
string(REGEX REPLACE "/$" "" mpi_bin_to_bin "${mpi_bin_to_bin}")
# mpi_wrapper(NAME SOURCE COMPONENT PLAIN-NAMES…)
function(mpi_wrapper name source component)
  set(MPI_NAME ${name})
  configure_file(${CMAKE_CURRENT_SOURCE_DIR}/wrappers/${source}.in ${CMAKE_CURRENT_BINARY_DIR}/${name} @ONLY)
  install(PROGRAMS ${CMAKE_CURRENT_BINARY_DIR}/${name} DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT ${component})
  file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/plain)
  foreach(plain IN LISTS ARGN)
    file(CREATE_LINK ${mpi_bin_to_bin}/${name} ${CMAKE_CURRENT_BINARY_DIR}/plain/${plain} SYMBOLIC)
    install(FILES ${CMAKE_CURRENT_BINARY_DIR}/plain/${plain} DESTINATION ${mpi_home}/bin COMPONENT ${component})
  endforeach()
endfunction()
set(MPI_LANGUAGE C)
set(MPI_SUFFIX c)
set(MPI_VARIABLE MPICC_COMPILER)
set(MPI_DEFAULT cc)
mpi_wrapper(heddle-mpicc mpicc mpi-development mpicc)
set(MPI_LANGUAGE C++)
set(MPI_SUFFIX cpp)
set(MPI_VARIABLE MPICXX_COMPILER)
set(MPI_DEFAULT c++)
mpi_wrapper(heddle-mpicxx mpicc mpi-development mpicxx)
mpi_wrapper(heddle-mpic++ mpicc mpi-development mpic++)
mpi_wrapper(heddle-mpirun mpirun mpi mpirun mpiexec)

# As heddle.pc: it finds its prefix from where it lies.
file(RELATIVE_PATH pc_to_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" pc_to_prefix "${pc_to_prefix}")
set(heddle_pc_prefix "\${pcfiledir}/${pc_to_prefix}")
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  set(heddle_pc_LIB "${CMAKE_INSTALL_LIBDIR}")
else()
  set(heddle_pc_LIB "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
endif()
configure_file(${CMAKE_CURRENT_SOURCE_DIR}/wrappers/heddle-mpi.pc.in ${CMAKE_CURRENT_BINARY_DIR}/heddle-mpi.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/heddle-mpi.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT mpi-development)
