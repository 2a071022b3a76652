/* Functions that may be called at any time: versions, names, the ABI, time; and the states of
 * MPI_Init and MPI_Finalize. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static long number_in(MPI_Info info, const char* key) {
  char value[64] = "";
  int length = sizeof value;
  int flag = 0;
  CHECK(MPI_Info_get_string(info, key, &length, value, &flag) == MPI_SUCCESS);
  CHECK(flag);
  return atol(value);
}

static void versions(void) {
  int major = 0;
  int minor = -1;
  CHECK(MPI_Get_version(&major, &minor) == MPI_SUCCESS && major == MPI_VERSION && minor == MPI_SUBVERSION);
  CHECK(MPI_Abi_get_version(&major, &minor) == MPI_SUCCESS && major == MPI_ABI_VERSION && minor == MPI_ABI_SUBVERSION);
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  CHECK(MPI_Get_library_version(text, &length) == MPI_SUCCESS && (size_t)length == strlen(text));
  CHECK(strncmp(text, "Heddle ", 7) == 0);
}

static void abi(void) {
  MPI_Info info = MPI_INFO_NULL;
  CHECK(MPI_Abi_get_info(&info) == MPI_SUCCESS);
  CHECK(number_in(info, "mpi_aint_size") == (long)sizeof(MPI_Aint));
  CHECK(number_in(info, "mpi_count_size") == (long)sizeof(MPI_Count));
  CHECK(number_in(info, "mpi_offset_size") == (long)sizeof(MPI_Offset));
  CHECK(MPI_Info_free(&info) == MPI_SUCCESS);
  CHECK(MPI_Abi_get_fortran_info(&info) == MPI_SUCCESS);
  CHECK(number_in(info, "mpi_integer_size") == 4 && number_in(info, "mpi_double_precision_size") == 8);
  CHECK(MPI_Info_free(&info) == MPI_SUCCESS);
  int yes = -1;
  int no = -1;
  int set = -1;
  CHECK(MPI_Abi_get_fortran_booleans(sizeof yes, &yes, &no, &set) == MPI_SUCCESS);
  CHECK(set == 1 && yes == 1 && no == 0);
}

/* The same number at any time: that of the job's processes. */
static void environment(void) {
  static long processes = 0;
  MPI_Info info = MPI_INFO_NULL;
  CHECK(MPI_Info_create_env(0, NULL, &info) == MPI_SUCCESS);
  const long told = number_in(info, "maxprocs");
  CHECK(MPI_Info_free(&info) == MPI_SUCCESS);
  int initialized = 0;
  int finalized = 0;
  CHECK(MPI_Initialized(&initialized) == MPI_SUCCESS && MPI_Finalized(&finalized) == MPI_SUCCESS);
  if (initialized && !finalized) {
    int size = 0;
    CHECK(MPI_Comm_size(MPI_COMM_WORLD, &size) == MPI_SUCCESS && size == told);
  }
  CHECK(processes == 0 || processes == told);
  processes = told;
}

static void states(int initialized, int finalized) {
  int flag = -1;
  CHECK(MPI_Initialized(&flag) == MPI_SUCCESS && flag == initialized);
  CHECK(MPI_Finalized(&flag) == MPI_SUCCESS && flag == finalized);
  versions();
  abi();
  environment();
  const double before = MPI_Wtime();
  CHECK(MPI_Wtick() > 0 && MPI_Wtick() < 1e-3);
  CHECK(MPI_Wtime() >= before);
  CHECK(MPI_Pcontrol(1) == MPI_SUCCESS);
}

static void mistakes(void) {
  CHECK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN) == MPI_SUCCESS);
  int yes = 1;
  int no = 0;
  int class = 0;
  CHECK(MPI_Error_class(MPI_Abi_set_fortran_booleans(sizeof yes, &yes, &no), &class) == MPI_SUCCESS &&
        class == MPI_ERR_ABI);
  CHECK(MPI_Error_class(MPI_Abi_set_fortran_booleans(3, &yes, &no), &class) == MPI_SUCCESS && class == MPI_ERR_ARG);
  MPI_Info info = MPI_INFO_NULL;
  CHECK(MPI_Info_create(&info) == MPI_SUCCESS);
  CHECK(MPI_Error_class(MPI_Abi_set_fortran_info(info), &class) == MPI_SUCCESS && class == MPI_ERR_ABI);
  CHECK(MPI_Info_free(&info) == MPI_SUCCESS);
  CHECK(MPI_Error_class(MPI_Get_version(NULL, &no), &class) == MPI_SUCCESS && class == MPI_ERR_ARG);
  CHECK(MPI_Error_class(MPI_Initialized(NULL), &class) == MPI_SUCCESS && class == MPI_ERR_ARG);
  CHECK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL) == MPI_SUCCESS);
}

int main(int argc, char** argv) {
  states(0, 0);
  int provided = -1;
  CHECK(MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided) == MPI_SUCCESS &&
        provided >= MPI_THREAD_FUNNELED);
  states(1, 0);
  mistakes();
  int level = -1;
  CHECK(MPI_Query_thread(&level) == MPI_SUCCESS && level == provided);
  int flag = -1;
  CHECK(MPI_Is_thread_main(&flag) == MPI_SUCCESS && flag == 1);
  char name[MPI_MAX_PROCESSOR_NAME];
  int length = 0;
  CHECK(MPI_Type_get_name(MPI_DATATYPE_NULL, name, &length) == MPI_SUCCESS);
  CHECK(strcmp(name, "MPI_DATATYPE_NULL") == 0 && length == 17);
  CHECK(MPI_Get_processor_name(name, &length) == MPI_SUCCESS && length > 0 && (size_t)length == strlen(name));
  CHECK(MPI_Finalize() == MPI_SUCCESS);
  states(1, 1);
  return 0;
}
