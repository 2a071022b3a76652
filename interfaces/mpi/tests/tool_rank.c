/* MPI_T: before MPI_Init, in between and after MPI_Finalize; what it says when it is used
 * wrongly. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static void texts(void) {
  char name[64];
  char shorter[5];
  int length = 0;
  CHECK(MPI_T_pvar_get_info(0, NULL, &length, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) ==
        MPI_SUCCESS);
  CHECK(length == (int)sizeof "heddle_sends");
  CHECK(MPI_T_pvar_get_info(0, name, &length, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) ==
        MPI_SUCCESS);
  CHECK(strcmp(name, "heddle_sends") == 0);
  length = sizeof shorter;
  CHECK(MPI_T_pvar_get_info(0, shorter, &length, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) ==
        MPI_SUCCESS);
  CHECK(strcmp(shorter, "hedd") == 0 && length == (int)sizeof "heddle_sends");
  strcpy(name, "same");
  CHECK(MPI_T_pvar_get_info(0, name, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) == MPI_SUCCESS);
  CHECK(strcmp(name, "same") == 0);
}

static void controls(void) {
  int number = 0;
  CHECK(MPI_T_cvar_get_num(&number) == MPI_SUCCESS && number > 0);
  int index = -1;
  CHECK(MPI_T_cvar_get_index("HEDDLE_PROGRESS", &index) == MPI_SUCCESS && index >= 0 && index < number);
  CHECK(MPI_T_cvar_get_index("NO_SUCH", &index) == MPI_T_ERR_INVALID_NAME);
  for (int i = 0; i < number; ++i) {
    char name[256];
    int name_length = sizeof name;
    MPI_Datatype type = MPI_DATATYPE_NULL;
    int scope = 0;
    int bind = 0;
    CHECK(MPI_T_cvar_get_info(i, name, &name_length, NULL, &type, NULL, NULL, NULL, &bind, &scope) == MPI_SUCCESS);
    CHECK(type == MPI_CHAR && scope == MPI_T_SCOPE_CONSTANT && bind == MPI_T_BIND_NO_OBJECT);
    int found = -1;
    CHECK(MPI_T_cvar_get_index(name, &found) == MPI_SUCCESS && found == i);
    MPI_T_cvar_handle handle;
    int count = 0;
    CHECK(MPI_T_cvar_handle_alloc(i, NULL, &handle, &count) == MPI_SUCCESS && count > 0);
    char* const value = malloc((size_t)count);
    CHECK(MPI_T_cvar_read(handle, value) == MPI_SUCCESS && strlen(value) + 1 == (size_t)count);
    const char* const set = getenv(name);
    CHECK(set == NULL || strcmp(value, set) == 0);
    CHECK(MPI_T_cvar_write(handle, value) == MPI_T_ERR_CVAR_SET_NEVER);
    free(value);
    const MPI_T_cvar_handle old = handle;
    CHECK(MPI_T_cvar_handle_free(&handle) == MPI_SUCCESS && handle == MPI_T_CVAR_HANDLE_NULL);
    CHECK(MPI_T_cvar_read(old, name) == MPI_T_ERR_INVALID_HANDLE);
  }
  CHECK(MPI_T_cvar_get_info(number, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) == MPI_T_ERR_INVALID_INDEX);
  CHECK(MPI_T_cvar_get_info(-1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) == MPI_T_ERR_INVALID_INDEX);
}

static unsigned long long counted(const char* name) {
  int index = -1;
  MPI_T_pvar_session session;
  MPI_T_pvar_handle handle;
  int count = 0;
  unsigned long long value = 0;
  CHECK(MPI_T_pvar_get_index(name, MPI_T_PVAR_CLASS_COUNTER, &index) == MPI_SUCCESS);
  CHECK(MPI_T_pvar_get_index(name, MPI_T_PVAR_CLASS_TIMER, &index) == MPI_T_ERR_INVALID_NAME);
  CHECK(MPI_T_pvar_session_create(&session) == MPI_SUCCESS);
  CHECK(MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &count) == MPI_SUCCESS && count == 1);
  CHECK(MPI_T_pvar_start(session, handle) == MPI_T_ERR_PVAR_NO_STARTSTOP);
  CHECK(MPI_T_pvar_start(session, MPI_T_PVAR_ALL_HANDLES) == MPI_SUCCESS);
  CHECK(MPI_T_pvar_read(session, handle, &value) == MPI_SUCCESS);
  CHECK(MPI_T_pvar_write(session, handle, &value) == MPI_T_ERR_PVAR_NO_WRITE);
  CHECK(MPI_T_pvar_reset(session, handle) == MPI_T_ERR_PVAR_NO_WRITE);
  MPI_T_pvar_session other;
  CHECK(MPI_T_pvar_session_create(&other) == MPI_SUCCESS);
  CHECK(MPI_T_pvar_read(other, handle, &value) == MPI_T_ERR_INVALID_SESSION);
  CHECK(MPI_T_pvar_session_free(&other) == MPI_SUCCESS && other == MPI_T_PVAR_SESSION_NULL);
  const MPI_T_pvar_handle old = handle;
  CHECK(MPI_T_pvar_handle_free(session, &handle) == MPI_SUCCESS && handle == MPI_T_PVAR_HANDLE_NULL);
  CHECK(MPI_T_pvar_read(session, old, &value) == MPI_T_ERR_INVALID_HANDLE);
  CHECK(MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &count) == MPI_SUCCESS);
  CHECK(MPI_T_pvar_session_free(&session) == MPI_SUCCESS); /* with its handle */
  CHECK(MPI_T_pvar_session_free(&session) == MPI_T_ERR_INVALID_SESSION);
  return value;
}

static void categories(void) {
  int number = 0;
  int cvars = 0;
  int pvars = 0;
  CHECK(MPI_T_category_get_num(&number) == MPI_SUCCESS && number > 0);
  for (int i = 0; i < number; ++i) {
    int n_cvars = 0;
    int n_pvars = 0;
    int n_categories = -1;
    CHECK(MPI_T_category_get_info(i, NULL, NULL, NULL, NULL, &n_cvars, &n_pvars, &n_categories) == MPI_SUCCESS);
    CHECK(n_categories == 0);
    cvars += n_cvars;
    pvars += n_pvars;
    int indices[256];
    for (int k = 0; k < 256; ++k) indices[k] = -1;
    CHECK(MPI_T_category_get_cvars(i, 256, indices) == MPI_SUCCESS);
    CHECK(n_cvars == 0 || (indices[n_cvars - 1] == n_cvars - 1 && indices[n_cvars] == -1));
  }
  int all = 0;
  CHECK(MPI_T_cvar_get_num(&all) == MPI_SUCCESS && all == cvars);
  CHECK(MPI_T_pvar_get_num(&all) == MPI_SUCCESS && all == pvars);
  CHECK(MPI_T_category_get_info(number, NULL, NULL, NULL, NULL, NULL, NULL, NULL) == MPI_T_ERR_INVALID_INDEX);
}

static void events(void) {
  int number = -1;
  CHECK(MPI_T_event_get_num(&number) == MPI_SUCCESS && number == 0);
  CHECK(MPI_T_event_get_index("any", &number) == MPI_T_ERR_INVALID_NAME);
  CHECK(MPI_T_source_get_num(&number) == MPI_SUCCESS && number == 1);
  MPI_Count before = 0;
  MPI_Count after = 0;
  CHECK(MPI_T_source_get_timestamp(0, &before) == MPI_SUCCESS);
  CHECK(MPI_T_source_get_timestamp(0, &after) == MPI_SUCCESS && after >= before);
  CHECK(MPI_T_source_get_timestamp(1, &after) == MPI_T_ERR_INVALID_INDEX);
}

static void everything(void) {
  texts();
  controls();
  categories();
  events();
}

int main(int argc, char** argv) {
  int provided = -1;
  int number = 0;
  CHECK(MPI_T_cvar_get_num(&number) == MPI_T_ERR_NOT_INITIALIZED);
  CHECK(MPI_T_finalize() == MPI_T_ERR_NOT_INITIALIZED);
  CHECK(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) == MPI_SUCCESS);
  CHECK(MPI_T_init_thread(MPI_THREAD_MULTIPLE, &provided) == MPI_SUCCESS && provided == MPI_THREAD_MULTIPLE);
  CHECK(MPI_T_finalize() == MPI_SUCCESS); /* of two */
  everything();
  CHECK(counted("heddle_sends") == 0);

  CHECK(MPI_Init(&argc, &argv) == MPI_SUCCESS);
  everything();
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const unsigned long long sends = counted("heddle_sends");
  if (size > 1) {
    int from = -1;
    MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 0, &from, 1, MPI_INT, (rank + size - 1) % size, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(from == (rank + size - 1) % size);
    CHECK(counted("heddle_sends") > sends);
  }
  CHECK(MPI_Finalize() == MPI_SUCCESS);
  everything();
  CHECK(counted("heddle_sends") >= sends);
  CHECK(MPI_T_finalize() == MPI_SUCCESS);
  CHECK(MPI_T_finalize() == MPI_T_ERR_NOT_INITIALIZED);
  return 0;
}
