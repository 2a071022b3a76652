// The messages that a receive takes, in the engine's terms.
#pragma once

#include "mpi/messages/lanes.hpp"

namespace heddle::mpi {

// `source` is a rank or MPI_ANY_SOURCE, `tag` a tag or MPI_ANY_TAG.
[[gnu::always_inline]] inline heddle_wanted wanted_of(const Comm& comm, int source, int tag) {
  heddle_wanted wanted;
  wanted.source = source == MPI_ANY_SOURCE ? heddle_peer{HEDDLE_ANY, HEDDLE_ANY}
                                           : sending_peer(comm, comm.members[static_cast<std::size_t>(source)], tag);
  wanted.tag = wire_tag(comm.number, tag == MPI_ANY_TAG ? 0 : tag);
  wanted.mask = tag == MPI_ANY_TAG ? kNumberMask : UINT64_MAX;
  return wanted;
}

}  // namespace heddle::mpi
