// Shared parts of the random one-sided programs: the windows, and a model of all ranks' memory.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

inline int g_rank = 0;
inline int g_size = 1;
inline unsigned long g_seed = 1;
inline int g_bad = 0;
inline int g_round = 0;
inline const char* g_what = "";

inline void complain(const char* text, long long a = 0, long long b = 0) {
  if (++g_bad > 20) return;
  std::fprintf(stderr, "rank %d of %d, seed %lu, round %d, %s: %s (%lld, %lld)\n", g_rank, g_size, g_seed, g_round,
               g_what, text, a, b);
}
inline void check(bool right, const char* text, long long a = 0, long long b = 0) {
  if (!right) complain(text, a, b);
}
inline void succeed(int code, const char* text) {
  if (code == MPI_SUCCESS) return;
  int error_class = 0;
  MPI_Error_class(code, &error_class);
  complain(text, error_class);
}

// ---- memory -------------------------------------------------------------------------------------

// bytes that one operation of one rank has for itself in an epoch
constexpr std::size_t kSlot = 128;
constexpr int kSlots = 8;  // of each origin
constexpr std::size_t kLarge = 40000;
constexpr int kShared = 16;  // words that all ranks add to

// One rank's window: slots by origin, a large area by origin, shared words.
inline std::size_t slot_at(int origin, int slot) {
  return (static_cast<std::size_t>(origin) * kSlots + static_cast<std::size_t>(slot)) * kSlot;
}
inline std::size_t large_at(int origin) {
  return slot_at(g_size, 0) + static_cast<std::size_t>(origin) * kLarge;
}
inline std::size_t shared_at(int word) {
  return large_at(g_size) + static_cast<std::size_t>(word) * 8;
}
inline std::size_t window_bytes() {
  return shared_at(kShared);
}

using Bytes = std::vector<unsigned char>;

struct Window {
  MPI_Win win = MPI_WIN_NULL;
  unsigned char* base = nullptr;
  unsigned char* made = nullptr;
  bool from_mpi = false;
  bool dynamic = false;
  std::vector<MPI_Aint> addresses;  // dynamic: by rank
  std::vector<Bytes> model;         // by rank
  [[nodiscard]] MPI_Aint disp(int rank, std::size_t offset) const {
    return static_cast<MPI_Aint>(offset) + (dynamic ? addresses[static_cast<std::size_t>(rank)] : 0);
  }
};

enum Flavor { allocated, created, created_mapped, dynamic, shared, shared_apart, kFlavors };
constexpr const char* kNames[] = {"allocated", "created", "created of MPI_Alloc_mem",
                                  "dynamic",   "shared",  "shared apart"};

inline bool open_shared(Window& w, bool apart) {
  MPI_Info info = MPI_INFO_NULL;
  if (apart) {
    MPI_Info_create(&info);
    MPI_Info_set(info, "alloc_shared_noncontig", "true");
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const int code =
      MPI_Win_allocate_shared(static_cast<MPI_Aint>(window_bytes()), 1, info, MPI_COMM_WORLD, &w.base, &w.win);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  if (apart) MPI_Info_free(&info);
  if (code == MPI_SUCCESS) return true;
  int error_class = 0;
  MPI_Error_class(code, &error_class);
  check(error_class == MPI_ERR_RMA_SHARED, "shared window: the error's class", error_class);
  return false;
}

// False: not to be had here.
inline bool open(Window& w, int flavor) {
  const auto bytes = static_cast<MPI_Aint>(window_bytes());
  w.dynamic = flavor == dynamic;
  if (flavor == allocated) {
    MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &w.base, &w.win);
  } else if (flavor == shared || flavor == shared_apart) {
    if (!open_shared(w, flavor == shared_apart)) return false;
  } else {
    w.from_mpi = flavor == created_mapped;
    if (w.from_mpi)
      MPI_Alloc_mem(bytes + 64, MPI_INFO_NULL, &w.made);
    else
      w.made = static_cast<unsigned char*>(std::aligned_alloc(64, (window_bytes() + 127) / 64 * 64));
    w.base = w.made + (w.from_mpi ? 64 : 0);
    if (flavor == dynamic) {
      MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &w.win);
      MPI_Win_attach(w.win, w.base, bytes);
      w.addresses.resize(static_cast<std::size_t>(g_size));
      MPI_Aint mine = 0;
      MPI_Get_address(w.base, &mine);
      MPI_Allgather(&mine, 1, MPI_AINT, w.addresses.data(), 1, MPI_AINT, MPI_COMM_WORLD);
    } else {
      MPI_Win_create(w.base, bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &w.win);
    }
  }
  return true;
}

inline void close(Window& w) {
  if (w.dynamic) {
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_detach(w.win, w.base);
  }
  MPI_Win_free(&w.win);
  if (w.from_mpi)
    MPI_Free_mem(w.made);
  else
    std::free(w.made);
}

// Random one-sided operations: the origin issues them, and every rank applies them to its model.

using Random = std::mt19937_64;
inline std::size_t below(Random& random, std::size_t limit) {
  return static_cast<std::size_t>(random() % limit);
}

// Runs an operation, or only draws its numbers and applies it to the model.
struct Actor {
  Window& w;
  Random& random;
  int origin;
  int target;
  bool mine;     // this rank is the origin
  bool passive;  // requests are allowed
  std::vector<MPI_Request>& requests;
  // The checks to make after the epoch.
  std::vector<std::function<void()>>& later;
  unsigned char* model() { return w.model[static_cast<std::size_t>(target)].data(); }
};

template <class T>
T* keep(Actor& actor, std::size_t count) {
  T* const memory = static_cast<T*>(std::calloc(count + 1, sizeof(T)));
  actor.later.push_back([memory] { std::free(memory); });
  return memory;
}

// A random map of blocks of bytes: pairs (offset, length) within `room`, in order and apart.
struct Blocks {
  std::vector<int> lengths;
  std::vector<int> offsets;
  int bytes = 0;
  int end = 0;
};
inline Blocks draw_layout(Random& random, std::size_t room) {
  Blocks layout;
  std::size_t at = below(random, 4);
  while (layout.lengths.size() < 200) {
    const std::size_t length = 1 + below(random, room / 6 + 1);
    if (at + length > room) break;
    layout.offsets.push_back(static_cast<int>(at));
    layout.lengths.push_back(static_cast<int>(length));
    layout.bytes += static_cast<int>(length);
    at += length + below(random, 9);
  }
  layout.end = static_cast<int>(at);
  return layout;
}
inline MPI_Datatype type_of(const Blocks& layout) {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Type_indexed(static_cast<int>(layout.lengths.size()), layout.lengths.data(), layout.offsets.data(), MPI_BYTE,
                   &type);
  MPI_Type_commit(&type);
  return type;
}
template <class Visit>
inline void each_byte(const Blocks& layout, Visit&& visit) {
  std::size_t index = 0;
  for (std::size_t i = 0; i < layout.lengths.size(); ++i)
    for (int j = 0; j < layout.lengths[i]; ++j) visit(index++, static_cast<std::size_t>(layout.offsets[i] + j));
}

// A transfer of `room` bytes at `offset`: contiguous, or by types at either side.
inline void put_or_get(Actor& a, std::size_t offset, std::size_t room) {
  const bool put = below(a.random, 2) == 0;
  const bool request = below(a.random, 3) == 0 && a.passive;
  const unsigned shape =
      // bit 0: a type at the target; bit 1: at the origin
      static_cast<unsigned>(below(a.random, 4));
  const Blocks there = draw_layout(a.random, room);
  const Blocks layout_here = draw_layout(a.random, room);
  const unsigned salt = static_cast<unsigned>(a.random());
  std::size_t bytes = (shape & 1) != 0 ? static_cast<std::size_t>(there.bytes) : 1 + below(a.random, room);
  if ((shape & 1) == 0 && below(a.random, 3) == 0) bytes = std::min<std::size_t>(room, bytes < room / 2 ? 8 : 4);
  const std::size_t shift = (shape & 1) != 0 ? 0 : below(a.random, room - bytes + 1);
  Blocks here = layout_here;
  if (here.bytes < static_cast<int>(bytes) || (shape & 2) == 0)
    here = {{static_cast<int>(bytes)}, {0}, static_cast<int>(bytes), static_cast<int>(bytes)};
  // The target's bytes, by index.
  std::vector<std::size_t> places(bytes);
  for (std::size_t i = 0; i < bytes; ++i) places[i] = offset + shift + i;
  if ((shape & 1) != 0) each_byte(there, [&](std::size_t i, std::size_t at) { places[i] = offset + at; });
  if (put)
    for (std::size_t i = 0; i < bytes; ++i) a.model()[places[i]] = static_cast<unsigned char>(salt + i * 7);
  if (!a.mine) return;
  auto* const buffer = keep<unsigned char>(a, static_cast<std::size_t>(here.end) + 1);
  // The first `bytes` of the origin's layout; it may be longer: cut the layout.
  while (here.bytes > static_cast<int>(bytes)) {
    const int extra = std::min(here.lengths.back(), here.bytes - static_cast<int>(bytes));
    here.lengths.back() -= extra;
    here.bytes -= extra;
    if (here.lengths.back() == 0) here.lengths.pop_back(), here.offsets.pop_back();
  }
  MPI_Datatype origin_type = type_of(here);
  MPI_Datatype target_type = MPI_BYTE;
  if ((shape & 1) != 0) target_type = type_of(there);
  const int target_count = (shape & 1) != 0 ? 1 : static_cast<int>(bytes);
  const MPI_Aint disp = a.w.disp(a.target, offset + shift);
  MPI_Request made = MPI_REQUEST_NULL;
  const bool plain = here.lengths.size() == 1;
  if (put) {
    each_byte(here, [&](std::size_t i, std::size_t at) { buffer[at] = static_cast<unsigned char>(salt + i * 7); });
    if (plain && !request)
      succeed(MPI_Put(buffer + here.offsets[0], static_cast<int>(bytes), MPI_BYTE, a.target, disp, target_count,
                      target_type, a.w.win),
              "put");
    else if (request)
      succeed(MPI_Rput(buffer, 1, origin_type, a.target, disp, target_count, target_type, a.w.win, &made), "rput");
    else
      succeed(MPI_Put(buffer, 1, origin_type, a.target, disp, target_count, target_type, a.w.win), "put of types");
  } else {
    std::vector<unsigned char> wanted(bytes);
    for (std::size_t i = 0; i < bytes; ++i) wanted[i] = a.model()[places[i]];
    if (plain && !request)
      succeed(MPI_Get(buffer + here.offsets[0], static_cast<int>(bytes), MPI_BYTE, a.target, disp, target_count,
                      target_type, a.w.win),
              "get");
    else if (request)
      succeed(MPI_Rget(buffer, 1, origin_type, a.target, disp, target_count, target_type, a.w.win, &made), "rget");
    else
      succeed(MPI_Get(buffer, 1, origin_type, a.target, disp, target_count, target_type, a.w.win), "get of types");
    a.later.insert(a.later.begin(), [=] {
      each_byte(here, [&](std::size_t i, std::size_t at) {
        if (buffer[at] != wanted[i]) complain("got another byte", static_cast<long long>(i), a.target);
      });
    });
  }
  if (made != MPI_REQUEST_NULL) a.requests.push_back(made);
  MPI_Type_free(&origin_type);
  if (target_type != MPI_BYTE) MPI_Type_free(&target_type);
}

template <class T>
T combine(MPI_Op op, T in, T now) {
  if (op == MPI_SUM) return static_cast<T>(in + now);
  if (op == MPI_MAX) return std::max(in, now);
  if (op == MPI_MIN) return std::min(in, now);
  if (op == MPI_PROD) return static_cast<T>(in * now);
  if (op == MPI_REPLACE) return in;
  return now;
}

// A row of accumulates on the same elements, of which the first replaces them: they take effect in
// order.
template <class T>
inline void accumulate_row(Actor& a, MPI_Datatype type, std::size_t offset, std::size_t room) {
  const std::size_t stride = 1 + below(a.random, 3);
  const std::size_t most = room / sizeof(T) / stride;
  const std::size_t count = 1 + below(a.random, std::max<std::size_t>(most, 1));
  const std::size_t misplaced = below(a.random, 8) == 0 && count * stride * sizeof(T) < room ? 1 : 0;
  const std::size_t steps = 1 + below(a.random, 4);
  MPI_Datatype vector = MPI_DATATYPE_NULL;
  if (a.mine) {
    MPI_Type_vector(static_cast<int>(count), 1, static_cast<int>(stride), type, &vector);
    MPI_Type_commit(&vector);
  }
  for (std::size_t step = 0; step < steps; ++step) {
    const MPI_Op ops[] = {MPI_SUM, MPI_MAX, MPI_MIN, MPI_PROD, MPI_REPLACE, MPI_NO_OP};
    MPI_Op op = step == 0 ? MPI_REPLACE : ops[below(a.random, 6)];
    const bool fetch = below(a.random, 2) == 0 || op == MPI_NO_OP;
    const bool request = a.passive && below(a.random, 4) == 0;
    const bool single = count == 1 && stride == 1;
    const unsigned salt = static_cast<unsigned>(below(a.random, 5));
    T* const operands = keep<T>(a, count);
    T* const old = keep<T>(a, count);
    std::vector<T> before(count);
    for (std::size_t i = 0; i < count; ++i) {
      operands[i] = static_cast<T>((i * 3 + salt) % 7);
      unsigned char* const at = a.model() + offset + misplaced + i * stride * sizeof(T);
      std::memcpy(&before[i], at, sizeof(T));
      const T now = combine(op, operands[i], before[i]);
      std::memcpy(at, &now, sizeof(T));
    }
    if (!a.mine) continue;
    const MPI_Aint disp = a.w.disp(a.target, offset + misplaced);
    const int n = static_cast<int>(count);
    MPI_Request made = MPI_REQUEST_NULL;
    int code = MPI_SUCCESS;
    if (fetch && single && !request)
      code = MPI_Fetch_and_op(operands, old, type, a.target, disp, op, a.w.win);
    else if (fetch && request)
      code = MPI_Rget_accumulate(operands, n, type, old, n, type, a.target, disp, 1, vector, op, a.w.win, &made);
    else if (fetch)
      code = MPI_Get_accumulate(operands, n, type, old, n, type, a.target, disp, 1, vector, op, a.w.win);
    else if (request)
      code = MPI_Raccumulate(operands, n, type, a.target, disp, 1, vector, op, a.w.win, &made);
    else
      code = MPI_Accumulate(operands, n, type, a.target, disp, 1, vector, op, a.w.win);
    succeed(code, "accumulate");
    if (made != MPI_REQUEST_NULL) a.requests.push_back(made);
    if (fetch)
      a.later.insert(a.later.begin(), [=] {
        for (std::size_t i = 0; i < count; ++i)
          if (std::memcmp(&old[i], &before[i], std::min<std::size_t>(sizeof(T), 10)) != 0)
            complain("another old value", static_cast<long long>(i), static_cast<long long>(sizeof(T)));
      });
  }
  if (a.mine) MPI_Type_free(&vector);
}

inline void compare_swap(Actor& a, std::size_t offset) {
  const bool equal = below(a.random, 2) == 0;
  auto* const value = keep<std::int32_t>(a, 3);
  value[0] = static_cast<std::int32_t>(a.random());
  std::int32_t now = 0;
  std::memcpy(&now, a.model() + offset, sizeof now);
  value[1] = equal ? now : ~now;
  if (equal) std::memcpy(a.model() + offset, value, sizeof now);
  if (!a.mine) return;
  succeed(MPI_Compare_and_swap(value, value + 1, value + 2, MPI_INT32_T, a.target, a.w.disp(a.target, offset), a.w.win),
          "compare_and_swap");
  a.later.insert(a.later.begin(), [=] { check(value[2] == now, "compare_and_swap: the old value", value[2], now); });
}

struct ShortInt {
  short value;
  int index;
};
// Pairs with a gap: the gap's bytes in the model are those of the target.
inline void pairs(Actor& a, std::size_t offset) {
  const std::size_t count = 1 + below(a.random, kSlot / sizeof(ShortInt));
  const std::size_t steps = 1 + below(a.random, 3);
  for (std::size_t step = 0; step < steps; ++step) {
    const MPI_Op op = step == 0 ? MPI_REPLACE : below(a.random, 2) == 0 ? MPI_MAXLOC : MPI_MINLOC;
    auto* const operands = keep<ShortInt>(a, count);
    for (std::size_t i = 0; i < count; ++i) {
      operands[i].value = static_cast<short>(below(a.random, 5));
      operands[i].index = static_cast<int>(below(a.random, 5));
      ShortInt now;
      std::memcpy(&now, a.model() + offset + i * sizeof now, sizeof now);
      const ShortInt in = operands[i];
      const bool better = op == MPI_MAXLOC ? in.value > now.value : in.value < now.value;
      if (op == MPI_REPLACE || better)
        now.value = in.value, now.index = in.index;
      else if (in.value == now.value)
        now.index = std::min(now.index, in.index);
      std::memcpy(a.model() + offset + i * sizeof now, &now.value, sizeof now.value);
      std::memcpy(a.model() + offset + i * sizeof now + 4, &now.index, sizeof now.index);
    }
    if (!a.mine) continue;
    const int n = static_cast<int>(count);
    succeed(
        MPI_Accumulate(operands, n, MPI_SHORT_INT, a.target, a.w.disp(a.target, offset), n, MPI_SHORT_INT, op, a.w.win),
        "pairs");
  }
}

inline void shared_words(Actor& a) {
  const int word = static_cast<int>(below(a.random, kShared));
  auto* const value = keep<std::uint64_t>(a, 2);
  value[0] = a.random();
  // Each word has one operator only, so that the order does not matter.
  const MPI_Op ops[] = {MPI_SUM, MPI_BXOR, MPI_BOR, MPI_MAX};
  const MPI_Op op = ops[word % 4];
  std::uint64_t now = 0;
  unsigned char* const at = a.model() + shared_at(word);
  std::memcpy(&now, at, sizeof now);
  now = op == MPI_SUM    ? now + value[0]
        : op == MPI_BXOR ? now ^ value[0]
        : op == MPI_BOR  ? now | value[0]
                         : std::max(now, value[0]);
  std::memcpy(at, &now, sizeof now);
  const bool fetch = below(a.random, 2) == 0;
  if (!a.mine) return;
  const MPI_Aint disp = a.w.disp(a.target, shared_at(word));
  if (fetch)
    succeed(MPI_Fetch_and_op(value, value + 1, MPI_UINT64_T, a.target, disp, op, a.w.win), "fetch_and_op");
  else
    succeed(MPI_Accumulate(value, 1, MPI_UINT64_T, a.target, disp, 1, MPI_UINT64_T, op, a.w.win),
            "accumulate on a shared word");
}

inline void act(Actor& a, int slot) {
  const std::size_t offset = slot_at(a.origin, slot);
  switch (below(a.random, 12)) {
    case 0:
    case 1:
    case 2:
      return put_or_get(a, offset, kSlot);
    case 3:
      return accumulate_row<std::int32_t>(a, MPI_INT32_T, offset, kSlot);
    case 4:
      return accumulate_row<std::int64_t>(a, MPI_INT64_T, offset, kSlot);
    case 5:
      return accumulate_row<std::int8_t>(a, below(a.random, 2) == 0 ? MPI_INT8_T : MPI_CHAR, offset, kSlot);
    case 6:
      return accumulate_row<std::uint16_t>(a, MPI_UINT16_T, offset, kSlot);
    case 7:
      return accumulate_row<double>(a, MPI_DOUBLE, offset, kSlot);
    case 8:
      return compare_swap(a, offset);
    case 9:
      return pairs(a, offset);
    default:
      return shared_words(a);
  }
}
