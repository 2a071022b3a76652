#include "mpi/rma/operations.hpp"

#include <algorithm>
#include <new>

#include "mpi/core/arguments.hpp"
#include "mpi/messages/message.hpp"
#include "mpi/messages/request.hpp"
#include "mpi/rma/make.hpp"
#include "mpi/rma/win.hpp"
#include "mpi/types/loops.hpp"

namespace heddle::mpi {

namespace {

// The memory that elements occupy, from the first one's address on.
struct Bounds {
  Int128 from = 0;
  Int128 to = 0;
};

Bounds bounds_of(MPI_Count count, const Type& type) {
  if (count == 0 || type.size == 0) return {};
  const Int128 last = Int128{count - 1} * type.extent;
  return {Int128{type.true_lb} + (last < 0 ? last : 0),
          Int128{type.true_lb} + type.true_extent + (last > 0 ? last : 0)};
}

// A dynamic window's addresses are checked where they are resolved.
int read_dynamic(Win& win, MPI_Aint disp, Reach* reach) {
  reach->offset = static_cast<std::uint64_t>(disp);
  if (reach->rank != win.comm->rank) return MPI_SUCCESS;
  bool attached = true;
  if (reach->count > 0)
    for (const MemoryBlock& block : blocks_of(reach->count, *reach->type, reach->offset))
      attached = attached && is_attached(win, block.offset, block.bytes);
  if (!attached)
    return error(MPI_ERR_RMA_RANGE, "address %#llx: this rank has not attached all of what is accessed there",
                 static_cast<unsigned long long>(disp));
  reach->memory = static_cast<std::byte*>(pointer_from(reach->offset));
  return MPI_SUCCESS;
}

int read_place(Win& win, MPI_Aint disp, Reach* reach) {
  if (win.dynamic()) return read_dynamic(win, disp, reach);
  if (disp < 0) return error(MPI_ERR_DISP, "target_disp %lld: it must not be negative", static_cast<long long>(disp));
  const Target& target = win.targets[static_cast<std::size_t>(reach->rank)];
  const Int128 offset = Int128{disp} * target.unit;
  const Bounds bounds = bounds_of(reach->count, *reach->type);
  if (bounds.from != bounds.to &&
      (offset + bounds.from < 0 || offset + bounds.to > Int128{static_cast<MPI_Aint>(target.bytes)}))
    return error(MPI_ERR_RMA_RANGE,
                 "target_disp %lld (of %lld bytes each): the access leaves the %llu bytes of rank %d's window",
                 static_cast<long long>(disp), static_cast<long long>(target.unit),
                 static_cast<unsigned long long>(target.bytes), reach->rank);
  reach->offset = static_cast<std::uint64_t>(offset);
  if (target.direct != nullptr) reach->memory = target.direct + reach->offset;
  return MPI_SUCCESS;
}

}  // namespace

int read_side(const void* buffer, MPI_Count count, MPI_Datatype datatype, const char* name, Side* side) {
  if (count < 0)
    return error(MPI_ERR_COUNT, "%s count %lld: it must not be negative", name, static_cast<long long>(count));
  if (const int code = committed_type(datatype, name, &side->type); code != MPI_SUCCESS) return code;
  if (buffer == nullptr && count > 0 && side->type->size > 0 && side->type->predefined)
    return error(MPI_ERR_BUFFER, "%s buffer is null, with %lld elements", name, static_cast<long long>(count));
  MPI_Count bytes = 0;
  if (__builtin_mul_overflow(count, side->type->size, &bytes))
    return error(MPI_ERR_COUNT, "%s count %lld: more bytes than 63 bits hold", name, static_cast<long long>(count));
  side->buffer = const_cast<void*>(buffer);
  side->count = count;
  return MPI_SUCCESS;
}

int check_epoch(Win& win, int rank) {
  if (win.open_all.load(std::memory_order_relaxed) != 0) return MPI_SUCCESS;
  if (win.targets[static_cast<std::size_t>(rank)].open.load(std::memory_order_relaxed) != 0) return MPI_SUCCESS;
  const std::scoped_lock lock(win.mutex);
  if (win.access == Access::fence) return MPI_SUCCESS;
  if (win.access == Access::none && win.fence_idle) {
    win.access = Access::fence;
    win.fence_idle = false;
    win.open_all.store(1, std::memory_order_relaxed);
    return MPI_SUCCESS;
  }
  return error(MPI_ERR_RMA_SYNC, "no access epoch to rank %d: call MPI_Win_fence, MPI_Win_start or MPI_Win_lock first",
               rank);
}

int read_reach(Win& win, int rank, MPI_Aint disp, MPI_Count count, MPI_Datatype datatype, Reach* reach) {
  if (rank != MPI_PROC_NULL && (rank < 0 || rank >= win.size()))
    return error(MPI_ERR_RANK, "target_rank %d: the window has ranks 0-%d", rank, win.size() - 1);
  Side side;
  if (const int code = read_side(&side, count, datatype, "target_datatype", &side); code != MPI_SUCCESS) return code;
  *reach = {&win, rank, count, side.type, 0, nullptr};
  if (rank == MPI_PROC_NULL) return MPI_SUCCESS;
  if (const int code = check_epoch(win, rank); code != MPI_SUCCESS) return code;
  return read_place(win, disp, reach);
}

std::vector<MemoryBlock> blocks_of(MPI_Count count, const Type& type, std::uint64_t offset) {
  std::vector<MemoryBlock> blocks;
  if (count == 0 || type.size == 0) return blocks;
  if (type.contiguous) {
    blocks.push_back(
        {offset + static_cast<std::uint64_t>(type.true_lb), static_cast<std::uint64_t>(count * type.size)});
    return blocks;
  }
  each_block(count, type, [&](MPI_Count at, MPI_Count bytes) {
    blocks.push_back({offset + static_cast<std::uint64_t>(at), static_cast<std::uint64_t>(bytes)});
  });
  return blocks;
}

std::vector<Run> runs_of(MPI_Count count, const Type& type, const Type& element, std::uint64_t offset) {
  std::vector<Run> runs;
  if (count == 0 || type.size == 0) return runs;
  const auto size = static_cast<std::uint64_t>(element.size);
  const auto extent = static_cast<std::uint64_t>(element.extent);
  if (&type == &element) {
    runs.push_back({offset, static_cast<std::uint64_t>(count)});
    return runs;
  }
  std::uint64_t position = 0;  // of the block, in packed form
  std::uint64_t next = 0;      // of the next element
  for (const MemoryBlock& block : blocks_of(count, type, offset)) {
    // Elements that begin within the block. Elements with gaps are taken one at a time.
    for (; next < position + block.bytes;) {
      const std::uint64_t at = block.offset + (next - position);
      std::uint64_t number = 1;
      if (size == extent) number = (position + block.bytes - next) / size;
      if (number == 0) number = 1;
      if (!runs.empty() && runs.back().offset + runs.back().count * extent == at)
        runs.back().count += number;
      else
        runs.push_back({at, number});
      next += number * size;
    }
    position += block.bytes;
  }
  return runs;
}

namespace {

void count_posted(Far& far) {
  far.posted.fetch_add(1, std::memory_order_relaxed);
}

// Of a put, the target's memory has the data then: a flush waits for the window's own operations,
// not for messages of the same lane. So the request of MPI_Rput ends with the put, although its
// source may be free before.
constexpr heddle_when kEnds = HEDDLE_WHEN_REMOTE;

void end_one(Far& far, Tracker* tracker, int code) {
  if (tracker != nullptr)
    tracker->end(code);  // it may be gone afterwards
  else
    note(far, code);
  far.open.fetch_sub(1, std::memory_order_release);  // last: the window may be freed after it
}

void block_ended(void* far, heddle_status status) {
  end_one(*static_cast<Far*>(far), nullptr, code_of(status));
}

void tracked_ended(void* arg, heddle_status status) {
  auto* const tracker = static_cast<Tracker*>(arg);
  end_one(*tracker->far, tracker, code_of(status));
}

// One block at either side.
int transfer_block(Direction direction, const Reach& reach, void* local, std::size_t bytes, heddle_remote remote,
                   Tracker* tracker) {
  const heddle_worker worker = reach.win->comm->lane->worker;
  Far& far = reach.far();
  heddle_completion completion{block_ended, &far, {}, kEnds};
  if (tracker != nullptr) {
    tracker->far = &far;
    tracker->add();
    completion = {tracked_ended, tracker, {}, kEnds};
  }
  far.open.fetch_add(1, std::memory_order_relaxed);
  const heddle_status status = until_taken(*reach.win, reach.rank, [&] {
    return direction == Direction::put ? heddle_try_put(worker, local, bytes, remote, &completion)
                                       : heddle_try_get(worker, local, bytes, remote, &completion);
  });
  count_posted(far);
  if (status == HEDDLE_POSTED) return MPI_SUCCESS;
  const int code = code_of(status);
  if (tracker != nullptr) tracker->end(code);
  far.open.fetch_sub(1, std::memory_order_release);
  return code;
}

// ---- lists of blocks ----------------------------------------------------------------------------

// It must not move until the engine is done with it.
struct List {
  std::vector<heddle_segment> segments;
  Far* far = nullptr;
  Tracker* tracker = nullptr;
};

void list_ended(void* arg, heddle_status status) {
  const std::unique_ptr<List> list(static_cast<List*>(arg));
  end_one(*list->far, list->tracker, code_of(status));
}

int post_list(Direction direction, const Reach& reach, std::vector<heddle_segment> segments, Tracker* tracker) {
  if (segments.empty()) return MPI_SUCCESS;
  auto list = std::make_unique<List>();
  list->segments = std::move(segments);
  list->far = &reach.far();
  list->tracker = tracker;
  if (tracker != nullptr) tracker->add();
  list->far->open.fetch_add(1, std::memory_order_relaxed);
  const heddle_worker worker = reach.win->comm->lane->worker;
  List* const sent = list.release();
  const heddle_completion completion{list_ended, sent, {}, kEnds};
  const std::size_t count = sent->segments.size();
  const heddle_status status = until_taken(*reach.win, reach.rank, [&] {
    return direction == Direction::put ? heddle_try_put_list(worker, sent->segments.data(), count, &completion)
                                       : heddle_try_get_list(worker, sent->segments.data(), count, &completion);
  });
  count_posted(reach.far());
  if (status == HEDDLE_POSTED) return MPI_SUCCESS;
  const int code = code_of(status);
  if (tracker != nullptr) tracker->end(code);
  sent->far->open.fetch_sub(1, std::memory_order_release);
  delete sent;
  return code;
}

// Finds where a block of the target lies for the engine. In a dynamic window, the block is cut off
// at the end of the attached piece; the next piece has the rest.
int place_of(const Reach& reach, MemoryBlock* block, heddle_remote* place) {
  if (reach.win->dynamic()) return resolve(*reach.win, reach.rank, block->offset, &block->bytes, place);
  const Far& far = reach.far();
  *place = {far.region, far.offset + block->offset};
  return MPI_SUCCESS;
}

// Walks the blocks of both sides at the same pace.
int transfer_blocks(Direction direction, const Side& origin, const Reach& reach, Tracker* tracker) {
  constexpr std::size_t kMostSegments = 4096;  // of one list
  const std::vector<MemoryBlock> here =
      blocks_of(origin.count, *origin.type, reinterpret_cast<std::uint64_t>(origin.buffer));
  std::vector<MemoryBlock> there = blocks_of(reach.count, *reach.type, reach.offset);
  std::vector<heddle_segment> segments;
  std::size_t mine = 0;
  std::uint64_t mine_done = 0;
  for (std::size_t next = 0; next < there.size();) {
    MemoryBlock block = there[next];
    heddle_remote place{};
    if (const int code = place_of(reach, &block, &place); code != MPI_SUCCESS) return code;
    there[next] = {block.offset + block.bytes, there[next].bytes - block.bytes};
    if (there[next].bytes == 0) ++next;
    for (std::uint64_t done = 0; done < block.bytes && mine < here.size();) {
      const std::uint64_t bytes = std::min(block.bytes - done, here[mine].bytes - mine_done);
      segments.push_back({pointer_from(here[mine].offset + mine_done), bytes, {place.region, place.offset + done}});
      done += bytes;
      mine_done += bytes;
      if (mine_done == here[mine].bytes) ++mine, mine_done = 0;
      if (segments.size() < kMostSegments) continue;
      if (const int code = post_list(direction, reach, std::move(segments), tracker); code != MPI_SUCCESS) return code;
      segments = {};
    }
  }
  return post_list(direction, reach, std::move(segments), tracker);
}

int check_sizes(Direction direction, const Side& origin, const Reach& reach) {
  const MPI_Count from = direction == Direction::put ? origin.bytes() : reach.bytes();
  const MPI_Count to = direction == Direction::put ? reach.bytes() : origin.bytes();
  if (from <= to) return MPI_SUCCESS;
  return error(MPI_ERR_TRUNCATE, "%lld bytes do not fit into the %lld that count and datatype of the %s describe",
               static_cast<long long>(from), static_cast<long long>(to),
               direction == Direction::put ? "target" : "origin");
}

}  // namespace

int transfer(Direction direction, const Side& origin, const Reach& reach, Tracker* tracker) {
  if (const int code = check_sizes(direction, origin, reach); code != MPI_SUCCESS) return code;
  const MPI_Count bytes = std::min(origin.bytes(), reach.bytes());
  if (bytes == 0) return MPI_SUCCESS;
  if (reach.memory != nullptr) {
    if (direction == Direction::put)
      copy(origin.buffer, origin.count, *origin.type, reach.memory, reach.count, *reach.type);
    else
      copy(reach.memory, reach.count, *reach.type, origin.buffer, origin.count, *origin.type);
    return MPI_SUCCESS;
  }
  if (reach.win->dynamic())
    if (const int code = refresh_known(*reach.win, reach.rank); code != MPI_SUCCESS) return code;
  if (!origin.type->contiguous || !reach.type->contiguous) return transfer_blocks(direction, origin, reach, tracker);
  MemoryBlock block{reach.offset + static_cast<std::uint64_t>(reach.type->true_lb), static_cast<std::uint64_t>(bytes)};
  heddle_remote place{};
  if (const int code = place_of(reach, &block, &place); code != MPI_SUCCESS) return code;
  if (block.bytes != static_cast<std::uint64_t>(bytes)) return transfer_blocks(direction, origin, reach, tracker);
  return transfer_block(direction, reach, begin_of(origin.buffer, *origin.type), block.bytes, place, tracker);
}

namespace {

// Whether this process stores directly into the target's memory. If the target has died, the data
// is in memory that nobody has any more.
bool is_stored(const Win& win, int rank) {
  return win.targets[static_cast<std::size_t>(rank)].direct != nullptr;
}

int check_stored(const Win& win) {
  for (int rank = 0; rank < win.size(); ++rank) {
    if (!is_stored(win, rank)) continue;
    if (const int code = check_alive(win, rank); code != MPI_SUCCESS) return code;
  }
  return MPI_SUCCESS;
}

// Completes puts and gets, and the questions.
int complete_posted(Win& win, int rank) {
  Far& far = win.far[static_cast<std::size_t>(rank)];
  const std::uint64_t posted = far.posted.load(std::memory_order_relaxed);
  if (far.flushed.load(std::memory_order_relaxed) >= posted) return MPI_SUCCESS;
  int code = wait_asked(win, rank, 1);
  if (code == MPI_SUCCESS)
    code = wait_for_rank(win, rank, [&] { return far.open.load(std::memory_order_acquire) == 0; });
  // Another thread may have raised it further meanwhile.
  std::uint64_t flushed = far.flushed.load(std::memory_order_relaxed);
  while (flushed < posted && !far.flushed.compare_exchange_weak(flushed, posted, std::memory_order_acq_rel)) {
  }
  const int failed = far.failed.exchange(MPI_SUCCESS, std::memory_order_relaxed);
  // As where this process stores directly: what was put to the dead may be lost.
  if (code == MPI_SUCCESS && failed == MPI_SUCCESS) return check_alive(win, rank);
  if (code != MPI_SUCCESS) return code;
  return error(failed, "an operation on rank %d of the window failed: error class %d", rank, failed);
}

}  // namespace

int complete(Win& win, int rank) {
  full_fence();
  const int code = complete_posted(win, rank);
  return code == MPI_SUCCESS && is_stored(win, rank) ? check_alive(win, rank) : code;
}

int complete_all(Win& win) {
  constexpr std::uint32_t kLooks = 16;  // in a large window, one call does not look at every rank
  full_fence();
  int first = sees_dead_member(*win.comm, kLooks) ? check_stored(win) : MPI_SUCCESS;
  if (win.near) return first;
  for (int rank = 0; rank < win.size(); ++rank) {
    const int code = complete_posted(win, rank);
    if (first == MPI_SUCCESS) first = code;
  }
  return first;
}

RemoteOperation::~RemoteOperation() {
  if (tracker_->left.load(std::memory_order_acquire) != 0) static_cast<void>(tracker_.release());
}

bool RemoteOperation::test(Outcome* outcome) {
  constexpr unsigned kTests = 64;
  *outcome = kEmptyOutcome;
  if (tracker_->left.load(std::memory_order_acquire) != 0) {
    progress(lane_);
    if (g_job.lanes.size() > 1) progress_all();
  }
  if (tracker_->left.load(std::memory_order_acquire) == 0) {
    outcome->code = tracker_->code.load(std::memory_order_relaxed);
    return true;
  }
  if (++tests_ % kTests != 0) return false;
  outcome->code = code_of(heddle_context_peer_status(g_job.context, static_cast<std::uint32_t>(job_rank_)));
  return outcome->code != MPI_SUCCESS;
}

int give_request(std::unique_ptr<RemoteOperation> operation, MPI_Request* request) {
  if (operation->tracker().left.load(std::memory_order_acquire) == 0 &&
      operation->tracker().code.load(std::memory_order_relaxed) == MPI_SUCCESS) {
    *request = handle_of(&g_sent);
    return MPI_SUCCESS;
  }
  return new_request(std::move(operation), false, request);
}

}  // namespace heddle::mpi
