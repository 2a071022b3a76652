// The unit rma: the calls, without the short paths (inline/rma.hpp).
#include <cstring>

#include "mpi/inline/rma.hpp"
#include "mpi/messages/request.hpp"
#include "mpi/rma/operations.hpp"

namespace heddle::mpi {
namespace {

constexpr const char* kForOperation = "what the operation needs";

struct Put {
  Direction direction;
  const void* buffer;
  MPI_Count count;
  MPI_Datatype datatype;
  int rank;
  MPI_Aint disp;
  MPI_Count target_count;
  MPI_Datatype target_datatype;
};

int read_put(Win& win, const Put& what, Side* origin, Reach* reach) {
  const int code = read_side(what.buffer, what.count, what.datatype, "origin_datatype", origin);
  return code != MPI_SUCCESS ? code
                             : read_reach(win, what.rank, what.disp, what.target_count, what.target_datatype, reach);
}

int run_put(Win& win, const Put& what) {
  Side origin;
  Reach reach;
  const int code = read_put(win, what, &origin, &reach);
  if (code != MPI_SUCCESS || reach.rank == MPI_PROC_NULL) return code;
  return transfer(what.direction, origin, reach, nullptr);
}

int check_passive(Win& win, int rank) {
  if (rank == MPI_PROC_NULL) return MPI_SUCCESS;
  {
    const std::scoped_lock lock(win.mutex);
    // its request ends at once if the memory is mapped here
    if (win.access == Access::lock || win.access == Access::lock_all) return check_alive(win, rank);
  }
  return error(MPI_ERR_RMA_SYNC, "operations with a request need a lock of the target: call MPI_Win_lock first");
}

int run_put(Win& win, const Put& what, MPI_Request* request) {
  if (request == nullptr) return null_argument("request");
  Side origin;
  Reach reach;
  int code = read_put(win, what, &origin, &reach);
  if (code == MPI_SUCCESS) code = check_passive(win, what.rank);
  if (code != MPI_SUCCESS) return code;
  return issue_request(win, reach.rank, request, [&](Tracker* tracker) {
    return reach.rank == MPI_PROC_NULL ? MPI_SUCCESS : transfer(what.direction, origin, reach, tracker);
  });
}

// ---- accumulates --------------------------------------------------------------------------------

struct Old {
  void* buffer;
  MPI_Count count;
  MPI_Datatype datatype;
};

int read_op(MPI_Op handle, const Old* old, const Op** op) {
  *op = op_of(handle);
  if (*op == nullptr) return bad_op(handle);
  if ((*op)->kind == OpKind::no_op && old == nullptr)
    return error(MPI_ERR_OP, "MPI_NO_OP: only calls that fetch the old values take it");
  return MPI_SUCCESS;
}

// Reads all arguments of a call. `old` may be null.
int read_accumulation(Win& win, const Put& what, const Old* old, MPI_Op op, Side* old_side, Accumulation* made) {
  if (const int code = read_op(op, old, &made->op); code != MPI_SUCCESS) return code;
  if (made->op->kind != OpKind::no_op)
    if (const int code = read_side(what.buffer, what.count, what.datatype, "origin_datatype", &made->origin);
        code != MPI_SUCCESS)
      return code;
  if (old != nullptr) {
    if (const int code = read_side(old->buffer, old->count, old->datatype, "result_datatype", old_side);
        code != MPI_SUCCESS)
      return code;
    made->old = old_side;
  }
  const int code = read_reach(win, what.rank, what.disp, what.target_count, what.target_datatype, &made->reach);
  if (code != MPI_SUCCESS || made->reach.rank == MPI_PROC_NULL) return code;
  return check_accumulation(*made);
}

int run_accumulate(Win& win, const Put& what, const Old* old, MPI_Op op) {
  Accumulation made;
  Side old_side;
  const int code = read_accumulation(win, what, old, op, &old_side, &made);
  if (code != MPI_SUCCESS || made.reach.rank == MPI_PROC_NULL) return code;
  return accumulate(made, nullptr);
}

int run_accumulate(Win& win, const Put& what, const Old* old, MPI_Op op, MPI_Request* request) {
  if (request == nullptr) return null_argument("request");
  Accumulation made;
  Side old_side;
  int code = read_accumulation(win, what, old, op, &old_side, &made);
  if (code == MPI_SUCCESS) code = check_passive(win, what.rank);
  if (code != MPI_SUCCESS) return code;
  return issue_request(win, made.reach.rank, request, [&](Tracker* tracker) {
    return made.reach.rank == MPI_PROC_NULL ? MPI_SUCCESS : accumulate(made, tracker);
  });
}

int check_comparable(const Type& type) {
  const bool integer = type.basic >= Basic::int8 && type.basic <= Basic::uint64;
  if (type.predefined && (integer || type.basic == Basic::logical || type.basic == Basic::byte)) return MPI_SUCCESS;
  return error(MPI_ERR_TYPE, "datatype: MPI_Compare_and_swap takes integers, logicals and bytes");
}

int ask_compare_swap(const Reach& reach, const void* value, const void* compare, void* result) {
  if (const int code = keep_order(reach); code != MPI_SUCCESS) return code;
  const auto bytes = static_cast<std::size_t>(reach.type->size);
  auto asked = std::make_unique<Asked>();
  asked->header.question = Question::compare_swap;
  asked->header.type = element_number(*element_of(*reach.type));
  asked->header.offset = reach.offset;
  asked->win = reach.win;
  asked->rank = reach.rank;
  asked->payload = std::make_unique<std::byte[]>(2 * bytes);
  asked->payload_bytes = 2 * bytes;
  std::memcpy(asked->payload.get(), compare, bytes);
  std::memcpy(asked->payload.get() + bytes, value, bytes);
  asked->result = result;
  asked->result_count = 1;
  asked->result_type = reach.type;  // predefined: not counted
  return post_ask(std::move(asked));
}

int run_compare_swap(Win& win, const void* value, const void* compare, void* result, MPI_Datatype datatype, int rank,
                     MPI_Aint disp) {
  Reach reach;
  const int code = read_reach(win, rank, disp, 1, datatype, &reach);
  if (code != MPI_SUCCESS) return code;
  if (const int bad = check_comparable(*reach.type); bad != MPI_SUCCESS) return bad;
  if (value == nullptr) return null_argument("origin_addr");
  if (compare == nullptr) return null_argument("compare_addr");
  if (result == nullptr) return null_argument("result_addr");
  if (reach.rank == MPI_PROC_NULL) return MPI_SUCCESS;
  if (reach.memory == nullptr) return ask_compare_swap(reach, value, compare, result);
  return compare_swap_here({win, rank, *reach.far().control}, *element_of(*reach.type), compare, value, reach.memory,
                           result);
}

// ---- short accumulates --------------------------------------------------------------------------

// Elements of one predefined type at mapped memory. False: it is not done, the long way finds out
// why.
bool accumulate_shortly(const ShortReach& what, const void* origin, void* old, MPI_Op handle) {
  std::size_t bytes = 0;
  std::byte* const target = reach_shortly(what, &bytes);
  if (target == nullptr || bytes == 0) return false;
  const Op* const op = op_of(handle);
  if (op == nullptr || op->kind == OpKind::user) return false;
  if (op->kind == OpKind::no_op ? old == nullptr : origin == nullptr) return false;
  const Type& type = g_basic_types[value_of(what.datatype) - kFirstType];
  if (type.element != &type || check_op(*op, type) != MPI_SUCCESS) return false;
  Win& win = *win_of(what.win);
  return accumulate_here({win, what.rank, *win.far[static_cast<std::size_t>(what.rank)].control}, *op, type,
                         static_cast<const std::byte*>(origin), target, static_cast<std::byte*>(old),
                         what.count) == MPI_SUCCESS;
}

int run_fetch_and_op(Win& win, const void* origin, void* result, MPI_Datatype datatype, int rank, MPI_Aint disp,
                     MPI_Op op) {
  const Type* const type = type_of(datatype);
  if (type != nullptr && !type->predefined)
    return error(MPI_ERR_TYPE, "datatype: MPI_Fetch_and_op takes only predefined types");
  const Old old{result, 1, datatype};
  return run_accumulate(win, {Direction::put, origin, 1, datatype, rank, disp, 1, datatype}, &old, op);
}

}  // namespace

int put_any(Call call, const void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, int target_rank,
            MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, MPI_Win win) {
  return with_window(call, win, kForOperation, [&](Win& found) {
    return run_put(found, {Direction::put, origin_addr, origin_count, origin_datatype, target_rank, target_disp,
                           target_count, target_datatype});
  });
}

int get_any(Call call, void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, int target_rank,
            MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, MPI_Win win) {
  return with_window(call, win, kForOperation, [&](Win& found) {
    return run_put(found, {Direction::get, origin_addr, origin_count, origin_datatype, target_rank, target_disp,
                           target_count, target_datatype});
  });
}

int rput(Call call, const void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, int target_rank,
         MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, MPI_Win win,
         MPI_Request* request) {
  return with_window(call, win, kForOperation, [&](Win& found) {
    return run_put(found,
                   {Direction::put, origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count,
                    target_datatype},
                   request);
  });
}

int rget(Call call, void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, int target_rank,
         MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, MPI_Win win,
         MPI_Request* request) {
  return with_window(call, win, kForOperation, [&](Win& found) {
    return run_put(found,
                   {Direction::get, origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count,
                    target_datatype},
                   request);
  });
}

int accumulate(Call call, const void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
               int target_rank, MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, MPI_Op op,
               MPI_Win win) {
  if (origin_datatype == target_datatype && origin_count == target_count &&
      accumulate_shortly({win, target_rank, target_disp, target_count, target_datatype}, origin_addr, nullptr, op))
    return MPI_SUCCESS;
  return with_window(call, win, kForOperation, [&](Win& found) {
    return run_accumulate(found,
                          {Direction::put, origin_addr, origin_count, origin_datatype, target_rank, target_disp,
                           target_count, target_datatype},
                          nullptr, op);
  });
}

int raccumulate(Call call, const void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
                int target_rank, MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, MPI_Op op,
                MPI_Win win, MPI_Request* request) {
  return with_window(call, win, kForOperation, [&](Win& found) {
    return run_accumulate(found,
                          {Direction::put, origin_addr, origin_count, origin_datatype, target_rank, target_disp,
                           target_count, target_datatype},
                          nullptr, op, request);
  });
}

int get_accumulate(Call call, const void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
                   void* result_addr, MPI_Count result_count, MPI_Datatype result_datatype, int target_rank,
                   MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, MPI_Op op, MPI_Win win) {
  const Old old{result_addr, result_count, result_datatype};
  return with_window(call, win, kForOperation, [&](Win& found) {
    return run_accumulate(found,
                          {Direction::put, origin_addr, origin_count, origin_datatype, target_rank, target_disp,
                           target_count, target_datatype},
                          &old, op);
  });
}

int rget_accumulate(Call call, const void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
                    void* result_addr, MPI_Count result_count, MPI_Datatype result_datatype, int target_rank,
                    MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, MPI_Op op, MPI_Win win,
                    MPI_Request* request) {
  const Old old{result_addr, result_count, result_datatype};
  return with_window(call, win, kForOperation, [&](Win& found) {
    return run_accumulate(found,
                          {Direction::put, origin_addr, origin_count, origin_datatype, target_rank, target_disp,
                           target_count, target_datatype},
                          &old, op, request);
  });
}

int fetch_and_op(Call call, const void* origin_addr, void* result_addr, MPI_Datatype datatype, int target_rank,
                 MPI_Aint target_disp, MPI_Op op, MPI_Win win) {
  if (result_addr != nullptr &&
      accumulate_shortly({win, target_rank, target_disp, 1, datatype}, origin_addr, result_addr, op))
    return MPI_SUCCESS;
  return with_window(call, win, kForOperation, [&](Win& found) {
    return run_fetch_and_op(found, origin_addr, result_addr, datatype, target_rank, target_disp, op);
  });
}

int compare_and_swap(Call call, const void* origin_addr, const void* compare_addr, void* result_addr,
                     MPI_Datatype datatype, int target_rank, MPI_Aint target_disp, MPI_Win win) {
  return with_window(call, win, kForOperation, [&](Win& found) {
    return run_compare_swap(found, origin_addr, compare_addr, result_addr, datatype, target_rank, target_disp);
  });
}

}  // namespace heddle::mpi
