// What several parts of the transport over UCX use.
#pragma once

#include <cstddef>
#include <vector>

#include "transport/ucx/library.hpp"

namespace heddle::transport::ucx {

using Bytes = std::vector<std::byte>;

// A list that takes no memory until it has more than `count` items.
template <class T>
void make_room(std::vector<T>* list, std::size_t count) {
  if (list->capacity() < count) list->reserve(2 * count);
}

// DONE: UCX has said yes. Otherwise what its answer means here, without a message.
inline base::Status meaning_of(ucs_status_t status) {
  switch (status) {
    case UCS_OK:
      return HEDDLE_DONE;
    case UCS_ERR_NO_MEMORY:
      return HEDDLE_ERR_NO_MEMORY;
    case UCS_ERR_NO_RESOURCE:
      return HEDDLE_AGAIN;
    case UCS_ERR_INVALID_PARAM:
    case UCS_ERR_UNSUPPORTED:
    case UCS_ERR_INVALID_ADDR:
      return HEDDLE_ERR_SYSTEM;
    default:
      return HEDDLE_ERR_PEER_FAILED;  // what UCX says of a connection, in many words
  }
}

}  // namespace heddle::transport::ucx
