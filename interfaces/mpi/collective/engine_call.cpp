#include "mpi/collective/engine_call.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "mpi/messages/message.hpp"

namespace heddle::mpi {

namespace {

struct Ask {
  heddle_team team;
  Form form;
  heddle_collective* collective;
};

template <auto kRun, auto kStart, auto kInit, class... Arguments>
heddle_status in_form(const Ask& ask, Arguments... arguments) {
  switch (ask.form) {
    case Form::blocking:
      return kRun(ask.team, arguments...);
    case Form::nonblocking:
      return kStart(ask.team, arguments..., ask.collective);
    case Form::persistent:
      break;
  }
  return kInit(ask.team, arguments..., nullptr, ask.collective);
}

heddle_status call_lists(const EngineCall& call, const Ask& ask) {
  const heddle_blocks from = call.send_places.blocks();
  const heddle_blocks to = call.receive_places.blocks();
  switch (call.what) {
    case EngineCollective::allgatherv:
      return in_form<heddle_allgatherv, heddle_allgatherv_start, heddle_allgatherv_init>(ask, call.send, call.receive,
                                                                                         &to);
    case EngineCollective::alltoallv:
      return in_form<heddle_alltoallv, heddle_alltoallv_start, heddle_alltoallv_init>(ask, call.send, &from,
                                                                                      call.receive, &to);
    case EngineCollective::gatherv:
      return in_form<heddle_gatherv, heddle_gatherv_start, heddle_gatherv_init>(ask, call.send, call.amount,
                                                                                call.receive, &to, call.root);
    case EngineCollective::scatterv:
      return in_form<heddle_scatterv, heddle_scatterv_start, heddle_scatterv_init>(ask, call.send, &from, call.receive,
                                                                                   call.amount, call.root);
    default:
      break;
  }
  const heddle_neighbors neighbours{call.sources.data(), call.sources.size(), call.targets.data(), call.targets.size()};
  return in_form<heddle_neighbor_alltoallv, heddle_neighbor_alltoallv_start, heddle_neighbor_alltoallv_init>(
      ask, &neighbours, call.send, &from, call.receive, &to);
}

}  // namespace

heddle_status EngineCall::call(heddle_team team, Form form, heddle_collective* collective) const {
  const Ask ask{team, form, collective};
  switch (what) {
    case EngineCollective::barrier:
      return in_form<heddle_barrier, heddle_barrier_start, heddle_barrier_init>(ask);
    case EngineCollective::broadcast:
      return in_form<heddle_broadcast, heddle_broadcast_start, heddle_broadcast_init>(ask, receive, amount, root);
    case EngineCollective::reduce:
      return in_form<heddle_reduce, heddle_reduce_start, heddle_reduce_init>(ask, send, receive, amount, &reduction,
                                                                             root);
    case EngineCollective::allreduce:
      return in_form<heddle_allreduce, heddle_allreduce_start, heddle_allreduce_init>(ask, send, receive, amount,
                                                                                      &reduction);
    case EngineCollective::gather:
      return in_form<heddle_gather, heddle_gather_start, heddle_gather_init>(ask, send, receive, amount, root);
    case EngineCollective::allgather:
      return in_form<heddle_allgather, heddle_allgather_start, heddle_allgather_init>(ask, send, receive, amount);
    case EngineCollective::scatter:
      return in_form<heddle_scatter, heddle_scatter_start, heddle_scatter_init>(ask, send, receive, amount, root);
    case EngineCollective::alltoall:
      return in_form<heddle_alltoall, heddle_alltoall_start, heddle_alltoall_init>(ask, send, receive, amount);
    case EngineCollective::reduce_scatter:
      return in_form<heddle_reduce_scatter, heddle_reduce_scatter_start, heddle_reduce_scatter_init>(
          ask, send, receive, amount, &reduction);
    case EngineCollective::scan:
      return in_form<heddle_scan, heddle_scan_start, heddle_scan_init>(ask, send, receive, amount, &reduction);
    default:
      return call_lists(*this, ask);
  }
}

// The operations that a communicator keeps, the most recently used one first.
struct KeptOperations {
  struct Key {
    EngineCollective what = EngineCollective::barrier;
    std::uint32_t root = 0;
    std::uint32_t type = 0;
    std::uint32_t op = 0;
    std::size_t bytes = 0;  // of a block
    bool operator==(const Key&) const = default;
  };

  // The bytes that a member gives and gets. "All": of all members' blocks together.
  struct Lengths {
    std::size_t send = 0;
    std::size_t receive = 0;
  };

  // A persistent operation on memory of its own. A member may be one run of it ahead of others.
  struct Ready {
    Ready() = default;
    Ready(const Ready&) = delete;
    Ready& operator=(const Ready&) = delete;
    ~Ready() {
      if (collective.id != 0) static_cast<void>(heddle_collective_free(collective));
    }
    Lengths lengths;
    heddle_collective collective{};
    std::unique_ptr<std::max_align_t[]> memory;
    std::byte* send = nullptr;
    std::byte* receive = nullptr;
  };

  // The operations of a key take turns, the same at all members. So a member that waits for no
  // other, such as the root of a broadcast, may be as many runs ahead as there are operations.
  struct Kept {
    Key key;
    std::vector<std::unique_ptr<Ready>> turns;
    std::size_t turn = 0;
    std::uint32_t calls = 0;  // at most kOften
  };

  std::vector<std::unique_ptr<Kept>> kept;
  std::unique_ptr<Ready> barrier;
};

namespace {

// If a block has more bytes than this, the engine's blocking calls are as fast: they check more,
// and copy less. The blocks of all members together may have sixteen times as many.
constexpr std::size_t kShortBytes = 2048;
constexpr std::size_t kShortBytesOfAll = std::size_t{16} * kShortBytes;
constexpr std::size_t kMostKept = 32;
// A key whose calls let some members run ahead of others gets more operations after so many calls,
// as far as the bytes of all of them allow. Each takes a barrier and a set-up.
// So many keys of a communicator may have more: all operations lie in the engine's memory for
// collectives, which all communicators share.
constexpr std::uint32_t kOften = 16;
constexpr std::size_t kTurns = 8;
constexpr std::size_t kTurnBytes = std::size_t{8} * kShortBytes;
constexpr std::ptrdiff_t kMostAhead = 4;

int code_of_collective(heddle_status status) {
  if (status == HEDDLE_ERR_PEER_FAILED) return error(MPI_ERR_PROC_ABORTED, "a member of the communicator has died");
  return code_of(status);
}

int wait_collective(heddle_collective collective) {
  return code_of_collective(heddle_collective_wait(collective, HEDDLE_FOREVER));
}

KeptOperations::Lengths lengths_of(const KeptOperations::Key& key, const Comm& comm) {
  const std::size_t all = key.bytes * comm.members.size();
  const bool at_root = comm.rank == static_cast<int>(key.root);
  switch (key.what) {
    case EngineCollective::broadcast:
      return at_root ? KeptOperations::Lengths{key.bytes, 0} : KeptOperations::Lengths{0, key.bytes};
    case EngineCollective::reduce:
      return {key.bytes, at_root ? key.bytes : 0};
    case EngineCollective::allreduce:
    case EngineCollective::scan:
      return {key.bytes, key.bytes};
    case EngineCollective::gather:
      return {key.bytes, at_root ? all : 0};
    case EngineCollective::allgather:
      return {key.bytes, all};
    case EngineCollective::scatter:
      return {at_root ? all : 0, key.bytes};
    case EngineCollective::alltoall:
      return {all, all};
    case EngineCollective::reduce_scatter:
      return {all, key.bytes};
    default:
      return {};
  }
}

// A thread's turn at the blocking collectives of a communicator. For reports about jobs that hang,
// the communicator notes which call it is in.
class Turn {
 public:
  Turn(Comm& comm, EngineCollective what, std::uint32_t root)
      : comm_(comm), locks_(g_job.thread_level == MPI_THREAD_MULTIPLE) {
    if (locks_) wait_until(*comm.lane, [&] { return !comm.in_collective.exchange(true, std::memory_order_acquire); });
    ++comm.blocking_calls;
    comm.now_in = static_cast<std::uint8_t>(what);
    comm.now_root = root;
    comm.in_call = true;
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    comm_.in_call = false;
    if (locks_) comm_.in_collective.store(false, std::memory_order_release);
  }

 private:
  Comm& comm_;
  const bool locks_;  // false: there is one thread at a time
};

int meet(Comm& comm);

KeptOperations& kept_of(Comm& comm) {
  if (comm.kept == nullptr) comm.kept = std::make_shared<KeptOperations>();
  return *comm.kept;
}

int run_ready(KeptOperations::Ready& ready) {
  if (const heddle_status status = heddle_collective_start(ready.collective); status < 0)
    return error_of_status(status);
  return wait_collective(ready.collective);
}

// Gives the operation its memory.
void prepare(const Comm& comm, const KeptOperations::Key& key, KeptOperations::Ready& ready) {
  ready.lengths = lengths_of(key, comm);
  const auto words = [](std::size_t bytes) {
    return (bytes + sizeof(std::max_align_t) - 1) / sizeof(std::max_align_t);
  };
  const std::size_t before = words(ready.lengths.send);
  ready.memory = std::make_unique<std::max_align_t[]>(before + words(ready.lengths.receive) + 1);
  ready.send = reinterpret_cast<std::byte*>(ready.memory.get());
  ready.receive = reinterpret_cast<std::byte*>(ready.memory.get() + before);
}

// All members are here, so the engine waits for none for long.
int open(const Comm& comm, const KeptOperations::Key& key, KeptOperations::Ready& ready,
         const heddle_reduction* reduction, std::size_t amount) {
  EngineCall call;
  call.what = key.what;
  call.send = ready.send;
  call.receive = key.what == EngineCollective::broadcast && ready.lengths.send > 0 ? ready.send : ready.receive;
  call.amount = amount;
  call.root = key.root;
  if (reduction != nullptr) call.reduction = *reduction;
  heddle_collective collective{};
  const int code = code_of(call.call(comm.team, Form::persistent, &collective));
  if (code == MPI_SUCCESS) ready.collective = collective;
  return code;
}

// The first barrier of a communicator goes as a nonblocking one; then members are there to make it
// ready.
int first_barrier(Comm& comm, KeptOperations& kept) {
  heddle_collective first{};
  if (const heddle_status status = heddle_barrier_start(comm.team, &first); status < 0) return error_of_status(status);
  if (const int code = wait_collective(first); code != MPI_SUCCESS) return code;
  auto made = std::make_unique<KeptOperations::Ready>();
  prepare(comm, {}, *made);
  const int code = open(comm, {}, *made, nullptr, 0);
  if (code == MPI_SUCCESS) kept.barrier = std::move(made);
  return code == MPI_ERR_NO_MEM ? MPI_SUCCESS : code;  // it goes as a nonblocking one again
}

// One more operation of the key, once all members are here.
int open_turn(Comm& comm, KeptOperations::Kept& kept, const BlockingCall& call) {
  // What may fail here alone comes before the others wait for this member.
  auto made = std::make_unique<KeptOperations::Ready>();
  prepare(comm, kept.key, *made);
  kept.turns.reserve(kept.turns.size() + 1);
  if (const int code = meet(comm); code != MPI_SUCCESS) return code;
  const int code = open(comm, kept.key, *made, call.reduction, call.amount);
  if (code == MPI_SUCCESS) kept.turns.push_back(std::move(made));
  return code;
}

// Finds the key's operations. If there are none, makes one ready in the place of the least recently
// used key's. Null: the engine has no memory for it; the members have met.
int find_kept(Comm& comm, const KeptOperations::Key& key, const BlockingCall& call, KeptOperations::Kept** found) {
  auto& all = kept_of(comm).kept;
  const auto known = std::ranges::find_if(all, [&](const auto& one) { return one->key == key; });
  if (known != all.end()) {
    std::rotate(all.begin(), known, known + 1);
    *found = all.front().get();
    return MPI_SUCCESS;
  }
  auto made = std::make_unique<KeptOperations::Kept>();
  made->key = key;
  const int code = open_turn(comm, *made, call);
  if (code == MPI_ERR_NO_MEM) all.clear();  // all members are told so
  *found = nullptr;
  if (code != MPI_SUCCESS) return code == MPI_ERR_NO_MEM ? MPI_SUCCESS : code;
  // All members have ended their runs of the other operations.
  if (all.size() == kMostKept) all.pop_back();
  all.insert(all.begin(), std::move(made));
  *found = all.front().get();
  return MPI_SUCCESS;
}

bool lets_run_ahead(EngineCollective what) {
  return what == EngineCollective::broadcast || what == EngineCollective::reduce;
}

// The operation whose turn it is. All members make the same calls, so they choose the same one, and
// have the same number of them.
int take_turn(Comm& comm, KeptOperations::Kept& kept, const BlockingCall& call, KeptOperations::Ready** ready) {
  const bool counts = kept.calls < kOften && lets_run_ahead(kept.key.what);
  if (counts) ++kept.calls;
  if (counts && kept.calls == kOften &&
      std::ranges::count_if(comm.kept->kept, [](const auto& one) { return one->turns.size() > 1; }) < kMostAhead) {
    const std::size_t wanted = std::min(kTurns, kTurnBytes / kept.key.bytes);
    int code = MPI_SUCCESS;
    while (kept.turns.size() < wanted && code == MPI_SUCCESS) code = open_turn(comm, kept, call);
    if (code != MPI_SUCCESS && code != MPI_ERR_NO_MEM) return code;  // those that there are suffice
  }
  *ready = kept.turns[kept.turn].get();
  kept.turn = (kept.turn + 1) % kept.turns.size();
  return MPI_SUCCESS;
}

void copy_if(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

int call_engine(const Comm& comm, const BlockingCall& call) {
  EngineCall full;
  full.what = call.what;
  full.send = call.send;
  full.receive = call.receive;
  full.amount = call.amount;
  full.root = call.root;
  if (call.reduction != nullptr) full.reduction = *call.reduction;
  return code_of_collective(full.call(comm.team, Form::blocking, nullptr));
}

int run_short(Comm& comm, const KeptOperations::Key& key, const BlockingCall& call) {
  KeptOperations::Kept* kept =
      comm.kept != nullptr && !comm.kept->kept.empty() ? comm.kept->kept.front().get() : nullptr;
  if (kept == nullptr || !(kept->key == key))
    if (const int code = find_kept(comm, key, call, &kept); code != MPI_SUCCESS) return code;
  if (kept == nullptr) return call_engine(comm, call);
  KeptOperations::Ready* ready = nullptr;
  if (const int code = take_turn(comm, *kept, call, &ready); code != MPI_SUCCESS) return code;
  const bool from_root = key.what == EngineCollective::broadcast;
  copy_if(ready->send, from_root ? call.receive : call.send, ready->lengths.send);
  const int code = run_ready(*ready);
  if (code == MPI_SUCCESS) copy_if(call.receive, ready->receive, ready->lengths.receive);
  return code;
}

// Blocks of all members lie one after the other on one side.
bool is_of_all(EngineCollective what) {
  return what == EngineCollective::gather || what == EngineCollective::allgather || what == EngineCollective::scatter ||
         what == EngineCollective::alltoall || what == EngineCollective::reduce_scatter;
}

std::size_t element_bytes(const heddle_reduction* reduction) {
  if (reduction == nullptr) return 1;
  switch (reduction->type) {
    case HEDDLE_INT8:
    case HEDDLE_UINT8:
      return 1;
    case HEDDLE_INT16:
    case HEDDLE_UINT16:
      return 2;
    case HEDDLE_INT32:
    case HEDDLE_UINT32:
    case HEDDLE_FLOAT:
      return 4;
    case HEDDLE_COMPLEX_DOUBLE:
      return 16;
    default:
      return 8;
  }
}

int run_any(Comm& comm, const BlockingCall& call) {
  // A function's argument lives as long as its call only, so no operation is kept for it.
  const bool by_function = call.reduction != nullptr && call.reduction->fn != nullptr;
  const std::size_t element = by_function ? 1 : element_bytes(call.reduction);
  const std::size_t most =
      is_of_all(call.what) ? std::min(kShortBytes, kShortBytesOfAll / comm.members.size()) : kShortBytes;
  if (by_function || call.amount > most / element || call.amount == 0) {
    return call_engine(comm, call);
  }
  KeptOperations::Key key{call.what, call.root, 0, 0, call.amount * element};
  if (call.reduction != nullptr) {
    key.type = static_cast<std::uint32_t>(call.reduction->type);
    key.op = static_cast<std::uint32_t>(call.reduction->op);
  }
  return run_short(comm, key, call);
}

// A barrier, in the caller's turn.
int meet(Comm& comm) {
  KeptOperations& kept = kept_of(comm);
  return kept.barrier != nullptr ? run_ready(*kept.barrier) : first_barrier(comm, kept);
}

// For reports about jobs that hang.
void tell_collective(heddle_wait_facts& facts, const Comm& comm) {
  struct Name {
    const char* call;
    const char* operation;
    bool root;
  };
  static constexpr std::array<Name, 15> kNames = {{{"MPI_Barrier", "barrier", false},
                                                   {"MPI_Bcast", "broadcast", true},
                                                   {"MPI_Reduce", "reduce", true},
                                                   {"MPI_Allreduce", "allreduce", false},
                                                   {"MPI_Gather", "gather", true},
                                                   {"MPI_Allgather", "allgather", false},
                                                   {"MPI_Scatter", "scatter", true},
                                                   {"MPI_Alltoall", "alltoall", false},
                                                   {"MPI_Reduce_scatter", "reduce_scatter", false},
                                                   {"MPI_Scan", "scan", false},
                                                   {"MPI_Allgatherv", "allgatherv", false},
                                                   {"MPI_Alltoallv", "alltoallv", false},
                                                   {"MPI_Gatherv", "gatherv", true},
                                                   {"MPI_Scatterv", "scatterv", true},
                                                   {"MPI_Neighbor_alltoallv", "neighbor_alltoallv", false}}};
  static_assert(static_cast<std::size_t>(EngineCollective::neighbor_alltoallv) + 1 == kNames.size());
  facts.cause = HEDDLE_WAIT_COLLECTIVE;
  if (!comm.in_call) return;  // one that makes an operation ready: the engine knows which
  const Name& name = kNames[static_cast<std::size_t>(comm.now_in)];
  facts.call = name.call;
  facts.number = comm.blocking_calls;
  // All members know where the first one is, and by which number it knows the communicator. No team
  // of the engine's has the bit.
  const MemberAddress& first = comm.members.front();
  facts.team = std::uint64_t{1} << 63 | std::uint64_t{first.peer.rank} << 32 | first.number;
  facts.members = static_cast<std::uint32_t>(comm.members.size());
  if (name.root) {
    std::snprintf(facts.operation, sizeof facts.operation, "%s with root %u", name.operation, comm.now_root);
  } else {
    std::snprintf(facts.operation, sizeof facts.operation, "%s", name.operation);
  }
  if (&comm == g_world) std::snprintf(facts.team_name, sizeof facts.team_name, "MPI_COMM_WORLD");
}

}  // namespace

int set_waits(Comm& comm) {
  heddle_team_waits waits{};
  waits.size = sizeof waits;
  waits.worker = comm.lane->worker;
  waits.progress = [](void* self) {
    try {
      return progress_beside(*static_cast<Comm*>(self)->lane) ? 1 : has_steps() ? -1 : 0;
    } catch (const std::bad_alloc&) {
      return -1;  // tried again
    }
  };
  waits.tell = [](void* self, heddle_wait_facts* facts) { tell_collective(*facts, *static_cast<Comm*>(self)); };
  waits.arg = &comm;
  return code_of(heddle_team_set_waits(comm.team, &waits));
}

// The engine sets them up anew in each call.
int run_listed(Comm& comm, const EngineCall& call) {
  const Turn turn(comm, call.what, call.root);
  heddle_collective collective{};
  const heddle_status status = call.call(comm.team, Form::nonblocking, &collective);
  return status < 0 ? error_of_status(status) : wait_collective(collective);
}

int run_barrier(Comm& comm) {
  const Turn turn(comm, EngineCollective::barrier, 0);
  return meet(comm);
}

int run_blocking(Comm& comm, const BlockingCall& call) {
  try {
    const Turn turn(comm, call.what, call.root);
    return call.what == EngineCollective::barrier ? meet(comm) : run_any(comm, call);
  } catch (const std::bad_alloc&) {
    return error(MPI_ERR_NO_MEM, "there is no memory for the buffers of a collective");
  }
}

}  // namespace heddle::mpi
