#include "mpi/check/leaks.hpp"

#include <array>
#include <cstdio>
#include <string>

#include "mpi/core/job.hpp"

namespace heddle::mpi {

void tell_leaks() {
  struct Kind {
    std::size_t live;
    const char* one;
    const char* more;
    const char* free;
  };
  const std::array kinds = {
      Kind{live_requests(), "request", "requests", "MPI_Wait, MPI_Request_free"},
      Kind{live_comms(), "communicator", "communicators", "MPI_Comm_free"},
      Kind{live_windows(), "window", "windows", "MPI_Win_free"},
      Kind{live_types(), "datatype", "datatypes", "MPI_Type_free"},
      Kind{live_groups(), "group", "groups", "MPI_Group_free"},
      Kind{live_ops(), "operator", "operators", "MPI_Op_free"},
      Kind{live_infos(), "info", "infos", "MPI_Info_free"},
  };
  std::string told;
  for (const Kind& kind : kinds) {
    if (kind.live == 0) continue;
    told += (told.empty() ? "" : ", ") + std::to_string(kind.live) + ' ' + (kind.live == 1 ? kind.one : kind.more) +
            " (" + kind.free + ')';
  }
  if (told.empty()) return;
  std::fprintf(stderr, "heddle: rank %u: MPI_Finalize: the program has not freed %s\n", g_job.rank, told.c_str());
}

}  // namespace heddle::mpi
