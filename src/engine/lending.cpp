#include "engine/lending.hpp"

#include <cstring>
#include <new>

#include "engine/job.hpp"

namespace heddle::engine {

base::Status reach_lent(Objects& objects, const LentName& name, RemoteRegion* remote) noexcept {
  transport::MemoryKey key;
  static_assert(sizeof key.bytes == decltype(name.key)::extent);
  std::memcpy(key.bytes.data(), name.key.data(), sizeof key.bytes);
  try {
    const auto memory = objects.job().transport().try_import(name.owner.rank, key);
    if (!memory) return memory.status();
    remote->memory = *memory;
  } catch (const std::bad_alloc&) {
    return HEDDLE_ERR_NO_MEMORY;
  }
  if (remote->memory.bytes < name.bytes) {
    objects.job().transport().release(remote->memory);
    return HEDDLE_ERR_PROTOCOL;
  }
  remote->bytes = name.bytes;
  remote->open_direct(name.bytes);
  remote->rank = name.owner.rank;
  remote->server = name.owner.worker;
  remote->owner = &objects;
  remote->number = name.region;
  return HEDDLE_DONE;
}

void let_go(const RemoteRegion& remote) {
  remote.owner->job().transport().release(remote.memory);
}

}  // namespace heddle::engine
