#include "mpi/messages/message.hpp"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "mpi/core/progress.hpp"
#include "mpi/messages/request.hpp"

namespace heddle::mpi {

int read_data(const void* buffer, MPI_Count count, MPI_Datatype datatype, Data* data) {
  if (count < 0) return error(MPI_ERR_COUNT, "count %lld is negative", static_cast<long long>(count));
  Type* type = nullptr;
  if (const int code = committed_type(datatype, "datatype", &type); code != MPI_SUCCESS) return code;
  MPI_Count bytes = 0;
  if (__builtin_mul_overflow(count, type->size, &bytes)) {
    return error(MPI_ERR_COUNT, "count %lld of a type of %lld bytes exceeds 63 bits", static_cast<long long>(count),
                 static_cast<long long>(type->size));
  }
  // MPI_BOTTOM goes with a type of absolute addresses
  if (buffer == nullptr && bytes > 0 && type->true_lb == 0 && type->predefined)
    return error(MPI_ERR_BUFFER, "the buffer is null, and count is %lld", static_cast<long long>(count));
  *data = {const_cast<void*>(buffer), count, type};
  return MPI_SUCCESS;
}

int check_target(const Comm& comm, int rank, const char* argument) {
  if ((rank >= 0 && rank < comm.remote_size()) || rank == MPI_PROC_NULL) return MPI_SUCCESS;
  return error(MPI_ERR_RANK, "%s %d: the communicator has ranks 0-%d", argument, rank, comm.remote_size() - 1);
}

int check_source(const Comm& comm, int rank) {
  return rank == MPI_ANY_SOURCE ? MPI_SUCCESS : check_target(comm, rank, "source");
}

int check_tag(int tag) {
  if (tag >= 0 && tag <= kTagUb) return MPI_SUCCESS;
  return error(MPI_ERR_TAG, "tag %d: tags are 0-%d (MPI_TAG_UB)", tag, kTagUb);
}

int check_wanted_tag(int tag) {
  return tag == MPI_ANY_TAG ? MPI_SUCCESS : check_tag(tag);
}

namespace {

void sent(void* ended, heddle_status status) {
  static_cast<std::atomic<int>*>(ended)->store(code_of(status), std::memory_order_release);
}

// AGAIN: the engine does not take it now. Otherwise the send has ended, or its completion will end
// it.
heddle_status try_post(Lane& lane, const WaitingSend& send) {
  const heddle_completion completion{sent, send.ended, {}, send.when};
  const heddle_status status = heddle_try_send(lane.worker, send.target, send.tag, send.data, send.bytes, &completion);
  if (status != HEDDLE_POSTED && status != HEDDLE_AGAIN) send.ended->store(code_of(status), std::memory_order_release);
  return status;
}

bool is_same_worker(heddle_peer a, heddle_peer b) {
  return a.rank == b.rank && a.worker == b.worker;
}

}  // namespace

bool must_wait(Lane& lane, heddle_peer target) {
  if (lane.waiting.load(std::memory_order_relaxed) == 0) return false;
  const std::scoped_lock lock(lane.mutex);
  for (const WaitingSend& send : lane.sends)
    if (is_same_worker(send.target, target)) return true;
  return false;
}

int post_send(Lane& lane, const WaitingSend& send) {
  if (lane.waiting.load(std::memory_order_relaxed) == 0) [[likely]] {
    const heddle_status status = try_post(lane, send);
    if (status >= 0 && status != HEDDLE_AGAIN) return MPI_SUCCESS;
    if (status < 0) return send.ended->load(std::memory_order_relaxed);
  }
  const std::scoped_lock lock(lane.mutex);
  lane.sends.push_back(send);
  lane.waiting.fetch_add(1, std::memory_order_relaxed);
  g_waiting_sends.fetch_add(1, std::memory_order_relaxed);
  return MPI_SUCCESS;
}

bool post_waiting(Lane& lane) {
  const std::unique_lock lock(lane.mutex, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  bool moved = false;
  std::vector<heddle_peer> stuck;
  for (auto at = lane.sends.begin(); at != lane.sends.end();) {
    bool behind = false;
    for (const heddle_peer peer : stuck) behind = behind || is_same_worker(peer, at->target);
    if (behind || try_post(lane, *at) == HEDDLE_AGAIN) {
      if (!behind) stuck.push_back(at->target);
      ++at;
      continue;
    }
    at = lane.sends.erase(at);
    lane.waiting.fetch_sub(1, std::memory_order_relaxed);
    g_waiting_sends.fetch_sub(1, std::memory_order_relaxed);
    moved = true;
  }
  return moved;
}

bool post_all_waiting() {
  if (g_waiting_sends.load(std::memory_order_relaxed) == 0) return false;
  bool moved = false;
  for (Lane* lane : g_job.lanes)
    if (lane->waiting.load(std::memory_order_relaxed) != 0) moved |= post_waiting(*lane);
  return moved;
}

bool has_dead_member(const Comm& comm) {
  for (const MemberAddress& member : comm.members)
    if (heddle_context_peer_status(g_job.context, member.peer.rank) < 0) return true;
  return false;
}

bool sees_dead_member(const Comm& comm, std::uint32_t looks) {
  static std::atomic<bool> one_died{false};  // relaxed: a thread that misses it looks again
  if (one_died.load(std::memory_order_relaxed)) return has_dead_member(comm);
  // Chooses the members to look at next. Regular steps could divide the looks unevenly among
  // several communicators.
  static thread_local std::uint32_t turn = 0;
  const auto members = static_cast<std::uint32_t>(comm.members.size());
  const std::uint32_t from = (++turn * 0x9E3779B1U) >> 16;
  for (std::uint32_t i = 0; i < std::min(looks, members); ++i) {
    if (heddle_context_peer_status(g_job.context, comm.members[(from + i) % members].peer.rank) >= 0) continue;
    one_died.store(true, std::memory_order_relaxed);
    return true;
  }
  return false;
}

// For people, as the program wrote it.
void tell_sought(heddle_wait_facts& facts, const Sought& sought) {
  if (sought.comm == nullptr) return;
  facts.cause = HEDDLE_WAIT_MESSAGE;
  const Comm& comm = *sought.comm;
  if (sought.peer >= 0 && static_cast<std::size_t>(sought.peer) < comm.members.size()) {
    facts.rank = comm.members[static_cast<std::size_t>(sought.peer)].peer.rank;
  }
  const bool any = sought.tag == MPI_ANY_TAG;
  const std::uint64_t mask = any ? ~kTagMask : ~std::uint64_t{0};
  name_tag(wire_tag(comm.number, any ? 0 : sought.tag), mask, facts.tag, sizeof facts.tag);
  if (sought.peer >= 0) {
    std::snprintf(facts.text, sizeof facts.text, "a message with %s from its rank %d", facts.tag, sought.peer);
  } else {
    std::snprintf(facts.text, sizeof facts.text, "a message with %s from any source", facts.tag);
  }
}

void name_tag(std::uint64_t tag, std::uint64_t mask, char* text, std::size_t bytes) {
  const auto number = static_cast<std::uint32_t>(tag >> kNumberShift);
  const bool world = g_world != nullptr && (number & ~kInternal) == g_world->number;
  char where[40] = "MPI_COMM_WORLD";
  if (!world) std::snprintf(where, sizeof where, "communicator %u", number & ~kInternal);
  if ((number & kInternal) != 0) {
    std::snprintf(text, bytes, "internal tag %d of %s", tag_of(tag), where);
  } else if ((mask & kTagMask) == 0) {
    std::snprintf(text, bytes, "any tag of %s", where);
  } else {
    std::snprintf(text, bytes, "tag %d of %s", tag_of(tag), where);
  }
}

namespace {

struct ReceiveWait {
  static constexpr std::uint32_t kMembers = 8;  // that a look asks for

  Lane& lane;
  heddle_receive& receive;
  const Sought& sought;
  const Comm* any_of;  // null: one sender is waited for, whose death ends the receive
  std::uint32_t looks = 0;
  bool died = false;

  static heddle_status look(void* self) {
    constexpr std::uint32_t kFirst = 64;  // a short wait does not look for deaths
    auto& wait = *static_cast<ReceiveWait*>(self);
    if (has_ended(wait.receive)) return HEDDLE_DONE;
    if (wait.any_of == nullptr || ++wait.looks < kFirst || !sees_dead_member(*wait.any_of, kMembers))
      return HEDDLE_AGAIN;
    wait.died = true;
    return HEDDLE_DONE;
  }
  static void tell(void* self, heddle_wait_facts* facts) {
    tell_sought(*facts, static_cast<const ReceiveWait*>(self)->sought);
  }
};

}  // namespace

heddle_status wait_receive(Lane& lane, heddle_receive& receive, const Sought& sought) {
  // While the wait would spin, the engine's own is the fastest.
  constexpr std::int64_t kSpinNs = 20'000;
  if (!has_steps()) {
    const heddle_status status = heddle_recv_wait(lane.worker, &receive, kSpinNs);
    if (status != HEDDLE_ERR_TIMEOUT) [[likely]]
      return status;
  }
  const bool any = sought.peer == MPI_ANY_SOURCE && !sought.matched;
  ReceiveWait wait{lane, receive, sought, any ? sought.comm : nullptr};
  // A look sees the deaths of a few members only.
  const bool rings = !any || sought.comm->members.size() <= ReceiveWait::kMembers;
  const heddle_status waited = wait_in(lane, sought.call, &ReceiveWait::look, &ReceiveWait::tell, &wait, rings);
  if (waited < 0) return waited;
  if (wait.died) static_cast<void>(heddle_recv_cancel(lane.worker, &receive));
  const heddle_status status = heddle_recv_wait(lane.worker, &receive, HEDDLE_FOREVER);
  // a message may have come before
  return wait.died && status == HEDDLE_ERR_CANCELLED ? HEDDLE_ERR_PEER_FAILED : status;
}

}  // namespace heddle::mpi
