#include "transport/ucx/keys.hpp"

#include <new>
#include <utility>

#include "transport/ucx/device.hpp"

namespace heddle::transport::ucx {

const Key* Keys::unpack(const Command& command, PeerState& peer, base::Status* why) try {
  const std::uint64_t number = command.remote->handle[0];
  const std::uint64_t generation = command.remote->handle[1];
  const auto packed = device_.regions().key(number, generation);
  if (!packed) {
    *why = packed.status();
    return nullptr;
  }
  if (number >= keys_.size()) keys_.resize(number + 1);
  count_ = keys_.size();
  Key& entry = keys_[number];
  if (entry.key != nullptr) drop(&entry);
  const ucs_status_t status = call_.ep_rkey_unpack(peer.endpoint, packed->data(), &entry.key);
  if (status == UCS_OK) {
    entry.generation = generation;
    entry.peer = &peer;
    return &entry;
  }
  entry.key = nullptr;
  *why = base::fail(status == UCS_ERR_NO_MEMORY ? HEDDLE_ERR_NO_MEMORY : HEDDLE_ERR_SYSTEM,
                    "UCX cannot use the key of a region of rank %u: %s", command.rank, call_.status_string(status));
  return nullptr;
} catch (const std::bad_alloc&) {
  *why = HEDDLE_AGAIN;
  return nullptr;
}

void Keys::forget_releases(bool used) {
  const std::uint64_t releases = device_.regions().releases();
  if (releases != releases_seen_) drop_released(releases);
  if (!used && !dropped_.empty()) destroy_dropped();
}

// The next time, if another thread has the mutex.
void Keys::drop_released(std::uint64_t releases) {
  const std::unique_lock lock(device_.mutex(), std::try_to_lock);
  if (!lock) return;
  releases_seen_ = releases;
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    if (keys_[i].key != nullptr && !device_.regions().import_is(i, keys_[i].generation)) drop(&keys_[i]);
  }
}

// UCX needs the key until the commands that use it have ended.
void Keys::drop(Key* entry) {
  try {
    dropped_.push_back(entry->key);
  } catch (const std::bad_alloc&) {
    entry->key = nullptr;  // UCX keeps it until the worker ends
  }
  *entry = Key{};
}

void Keys::destroy_dropped() {
  for (ucp_rkey_h key : dropped_) call_.rkey_destroy(key);
  dropped_.clear();
}

void Keys::destroy() {
  for (const Key& entry : keys_) {
    if (entry.key != nullptr) call_.rkey_destroy(entry.key);
  }
  destroy_dropped();
}

}  // namespace heddle::transport::ucx
