// One-sided communication: errors, dynamic windows, shared windows, threads.
#pragma once

#include <cstring>
#include <thread>
#include <vector>

#include "rma_operations.hpp"

inline int class_of(int code) {
  int error_class = MPI_SUCCESS;
  if (code != MPI_SUCCESS) MPI_Error_class(code, &error_class);
  return error_class;
}
inline void expect(int code, int wanted, const char* text) {
  check(class_of(code) == wanted, text, class_of(code), wanted);
}

inline void check_errors() {
  g_what = "errors";
  long* base = nullptr;
  MPI_Win win = MPI_WIN_NULL;
  MPI_Win_allocate(64, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
  MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
  long value = 0;
  expect(MPI_Put(&value, 1, MPI_LONG, 0, 0, 1, MPI_LONG, win), MPI_ERR_RMA_SYNC, "put without an epoch");
  expect(MPI_Win_unlock(0, win), MPI_ERR_RMA_SYNC, "unlock without lock");
  expect(MPI_Win_unlock_all(win), MPI_ERR_RMA_SYNC, "unlock_all without lock_all");
  expect(MPI_Win_flush(0, win), MPI_ERR_RMA_SYNC, "flush without lock");
  expect(MPI_Win_complete(win), MPI_ERR_RMA_SYNC, "complete without start");
  expect(MPI_Win_wait(win), MPI_ERR_RMA_SYNC, "wait without post");
  expect(MPI_Win_lock(5, 0, 0, win), MPI_ERR_LOCKTYPE, "lock type");
  expect(MPI_Win_lock(MPI_LOCK_SHARED, g_size, 0, win), MPI_ERR_RANK, "lock of no rank");
  expect(MPI_Win_lock(MPI_LOCK_SHARED, 0, 1 << 30, win), MPI_ERR_ASSERT, "assertion");
  expect(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win), MPI_SUCCESS, "lock");
  expect(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win), MPI_ERR_RMA_SYNC, "lock twice");
  expect(MPI_Win_lock_all(0, win), MPI_ERR_RMA_SYNC, "lock_all with a lock");
  expect(MPI_Put(&value, 1, MPI_LONG, 0, 8, 1, MPI_LONG, win), MPI_ERR_RMA_RANGE, "put beyond the end");
  expect(MPI_Put(&value, 1, MPI_LONG, 0, -1, 1, MPI_LONG, win), MPI_ERR_DISP, "negative displacement");
  expect(MPI_Put(&value, 1, MPI_LONG, g_size, 0, 1, MPI_LONG, win), MPI_ERR_RANK, "put to no rank");
  expect(MPI_Put(&value, -1, MPI_LONG, 0, 0, 1, MPI_LONG, win), MPI_ERR_COUNT, "negative count");
  expect(MPI_Put(&value, 1, MPI_DATATYPE_NULL, 0, 0, 1, MPI_LONG, win), MPI_ERR_TYPE, "no type");
  expect(MPI_Put(&value, 1, MPI_LONG, MPI_PROC_NULL, 0, 1, MPI_LONG, win), MPI_SUCCESS, "put to MPI_PROC_NULL");
  expect(MPI_Accumulate(&value, 1, MPI_LONG, 0, 0, 1, MPI_LONG, MPI_OP_NULL, win), MPI_ERR_OP, "no operator");
  expect(MPI_Win_unlock(0, win), MPI_SUCCESS, "unlock");
  expect(MPI_Win_free(&win), MPI_SUCCESS, "free");
  check(win == MPI_WIN_NULL, "the handle of a freed window");
}

// Memory that comes and goes at the same address.
inline void check_attach() {
  g_what = "attach";
  MPI_Win win = MPI_WIN_NULL;
  MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
  MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
  auto* const memory = static_cast<long*>(std::calloc(1024, sizeof(long)));
  std::vector<MPI_Aint> addresses(static_cast<std::size_t>(g_size));
  MPI_Aint mine = 0;
  MPI_Get_address(memory, &mine);
  MPI_Allgather(&mine, 1, MPI_AINT, addresses.data(), 1, MPI_AINT, MPI_COMM_WORLD);
  const int right = (g_rank + 1) % g_size;
  const int left = (g_rank + g_size - 1) % g_size;
  for (int round = 0; round < 6; ++round) {
    const int from = round * 10;
    succeed(MPI_Win_attach(win, memory + from, 100 * sizeof(long)), "attach");
    expect(MPI_Win_attach(win, memory + from + 5, 100 * sizeof(long)), MPI_ERR_RMA_ATTACH, "attach twice");
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, win);
    const long value = round * 1000 + g_rank;
    const MPI_Aint disp =
        addresses[static_cast<std::size_t>(right)] + static_cast<MPI_Aint>(sizeof(long)) * (from + 50);
    succeed(MPI_Put(&value, 1, MPI_LONG, right, disp, 1, MPI_LONG, win), "put");
    succeed(MPI_Win_flush(right, win), "flush");
    long one = 1;
    long old = 0;
    succeed(MPI_Fetch_and_op(&one, &old, MPI_LONG, right, disp, MPI_SUM, win), "fetch_and_op");
    succeed(MPI_Win_flush(right, win), "flush");
    check(old == value, "fetched", old, value);
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    check(memory[from + 50] == round * 1000 + left + 1, "put into attached memory", memory[from + 50]);
    succeed(MPI_Win_detach(win, memory + from), "detach");
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Win_free(&win);
  std::free(memory);
}

// Operations on memory that was attached in two pieces side by side, of which each alone is too
// short.
inline void check_adjacent() {
  g_what = "adjacent";
  constexpr long kHalf = 100;
  MPI_Win win = MPI_WIN_NULL;
  MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
  MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
  std::vector<long> memory(2 * kHalf);
  succeed(MPI_Win_attach(win, memory.data(), kHalf * sizeof(long)), "attach");
  succeed(MPI_Win_attach(win, memory.data() + kHalf, kHalf * sizeof(long)), "attach");
  std::vector<MPI_Aint> addresses(static_cast<std::size_t>(g_size));
  MPI_Aint mine = 0;
  MPI_Get_address(memory.data(), &mine);
  MPI_Allgather(&mine, 1, MPI_AINT, addresses.data(), 1, MPI_AINT, MPI_COMM_WORLD);
  MPI_Datatype third = MPI_DATATYPE_NULL;
  MPI_Type_vector(2, 50, 60, MPI_LONG, &third);  // its first block ends behind the seam
  MPI_Type_commit(&third);
  for (int target = 0; target < g_size; ++target) {
    MPI_Win_fence(0, win);
    if (g_rank == (target + 1) % g_size) {
      const MPI_Aint seam =
          addresses[static_cast<std::size_t>(target)] + static_cast<MPI_Aint>(sizeof(long)) * (kHalf - 10);
      std::vector<long> values(110);
      std::vector<long> got(110);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<long>(i) + target * 1000;
      MPI_Win_fence(0, win);
      succeed(MPI_Put(values.data(), 20, MPI_LONG, target, seam, 20, MPI_LONG, win), "put over a seam");
      MPI_Win_fence(0, win);
      succeed(MPI_Get(got.data(), 20, MPI_LONG, target, seam, 20, MPI_LONG, win), "get over a seam");
      MPI_Win_fence(0, win);
      check(std::memcmp(got.data(), values.data(), 20 * sizeof(long)) == 0, "what was got");
      succeed(MPI_Accumulate(values.data(), 20, MPI_LONG, target, seam, 20, MPI_LONG, MPI_SUM, win), "accumulate");
      MPI_Win_fence(0, win);
      MPI_Win_fence(0, win);
      succeed(MPI_Put(values.data(), 100, MPI_LONG, target, seam - 30 * MPI_Aint{sizeof(long)}, 1, third, win),
              "put of a vector");
      MPI_Win_fence(0, win);
      expect(MPI_Put(values.data(), 20, MPI_LONG, target, seam + 95 * MPI_Aint{sizeof(long)}, 20, MPI_LONG, win),
             MPI_ERR_RMA_RANGE, "put beyond the end");
    } else {
      for (int i = 0; i < 2; ++i) MPI_Win_fence(0, win);
      if (g_rank == target)
        for (long i = 0; i < 20; ++i)
          check(memory[static_cast<std::size_t>(kHalf - 10 + i)] == i + target * 1000, "put", i);
      for (int i = 0; i < 2; ++i) MPI_Win_fence(0, win);
      if (g_rank == target)
        for (long i = 0; i < 20; ++i)
          check(memory[static_cast<std::size_t>(kHalf - 10 + i)] == 2 * (i + target * 1000), "sum", i);
      for (int i = 0; i < 2; ++i) MPI_Win_fence(0, win);
      if (g_rank == target)
        for (long i = 0; i < 50; ++i) {
          check(memory[static_cast<std::size_t>(kHalf - 40 + i)] == i + target * 1000, "vector", i);
          check(memory[static_cast<std::size_t>(kHalf + 20 + i)] == i + 50 + target * 1000, "vector", i);
        }
    }
    MPI_Win_fence(0, win);
  }
  MPI_Type_free(&third);
  MPI_Win_free(&win);
}

// A type without elements is made of no basic type: there is nothing to combine.
inline void check_empty_types() {
  g_what = "empty types";
  long* base = nullptr;
  MPI_Win win = MPI_WIN_NULL;
  MPI_Win_allocate(64, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
  MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
  MPI_Datatype none = MPI_DATATYPE_NULL;
  MPI_Datatype nothing = MPI_DATATYPE_NULL;
  MPI_Type_contiguous(0, MPI_LONG, &none);
  MPI_Type_create_struct(0, nullptr, nullptr, nullptr, &nothing);
  MPI_Win_lock_all(0, win);
  long value = 1;
  long old = 7;
  const int right = (g_rank + 1) % g_size;
  for (MPI_Datatype* type : {&none, &nothing}) {
    MPI_Type_commit(type);
    succeed(MPI_Accumulate(&value, 1, *type, right, 0, 1, *type, MPI_SUM, win), "accumulate");
    succeed(MPI_Accumulate(&value, 0, MPI_LONG, right, 0, 1, *type, MPI_SUM, win), "accumulate to nothing");
    succeed(MPI_Get_accumulate(&value, 1, *type, &old, 1, *type, right, 0, 1, *type, MPI_SUM, win), "get_accumulate");
    MPI_Request request = MPI_REQUEST_NULL;
    succeed(MPI_Raccumulate(&value, 1, *type, right, 0, 1, *type, MPI_SUM, win, &request), "raccumulate");
    succeed(MPI_Wait(&request, MPI_STATUS_IGNORE), "wait");
    MPI_Type_free(type);
  }
  MPI_Win_unlock_all(win);
  check(old == 7, "nothing was fetched", old);
  MPI_Win_free(&win);
}

// The receiver takes a long message only after it was told of the flush.
inline void check_flush_beside_long_messages() {
  if (g_size == 1) return;
  g_what = "flush beside long messages";
  constexpr int kBytes = 1 << 20;
  long words[2] = {0, 0};
  const long one = 1;
  MPI_Win win = MPI_WIN_NULL;
  MPI_Win_create(words, sizeof words, sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
  MPI_Win_lock_all(0, win);
  std::vector<char> large(kBytes, 'a');
  for (int turn = 0; turn < 8; ++turn) {
    if (g_rank == 0) {
      long before = -1;
      MPI_Request sends[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
      MPI_Isend(large.data(), kBytes, MPI_CHAR, 1, 1, MPI_COMM_WORLD, &sends[0]);
      MPI_Issend(&one, 1, MPI_LONG, 1, 2, MPI_COMM_WORLD, &sends[1]);
      MPI_Accumulate(&one, 1, MPI_LONG, 1, 0, 1, MPI_LONG, MPI_SUM, win);
      MPI_Fetch_and_op(&one, &before, MPI_LONG, 1, 0, MPI_SUM, win);
      MPI_Put(&one, 1, MPI_LONG, 1, 1, 1, MPI_LONG, win);
      MPI_Win_flush(1, win);
      check(before == 2 * turn + 1, "what was there before", before, 2 * turn + 1);
      MPI_Send(nullptr, 0, MPI_CHAR, 1, 3, MPI_COMM_WORLD);
      MPI_Waitall(2, sends, MPI_STATUSES_IGNORE);
    } else if (g_rank == 1) {
      long value = 0;
      MPI_Recv(nullptr, 0, MPI_CHAR, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Win_sync(win);
      check(words[0] == 2 * turn + 2 && words[1] == 1, "the window after the flush", words[0], 2 * turn + 2);
      MPI_Recv(large.data(), kBytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Recv(&value, 1, MPI_LONG, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
  }
  MPI_Win_unlock_all(win);
  MPI_Win_free(&win);
}

// Threads on one window: each adds to counters that all share, and puts and gets in places of its
// own.
inline void check_threads() {
  g_what = "threads";
  int level = 0;
  MPI_Query_thread(&level);
  if (level != MPI_THREAD_MULTIPLE) return;
  constexpr int kThreads = 3;
  constexpr int kTimes = 200;
  long* base = nullptr;
  MPI_Win win = MPI_WIN_NULL;
  const int places = g_size * kThreads;
  MPI_Win_allocate(static_cast<MPI_Aint>(sizeof(long)) * (places + 1), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD,
                   &base, &win);
  std::memset(base, 0, sizeof(long) * static_cast<std::size_t>(places + 1));
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock_all(0, win);
  std::vector<std::thread> threads;
  for (int number = 0; number < kThreads; ++number)
    threads.emplace_back([=] {
      const int place = 1 + g_rank * kThreads + number;
      for (long i = 1; i <= kTimes; ++i) {
        const int target = static_cast<int>(i + number) % g_size;
        const long one = 1;
        MPI_Accumulate(&one, 1, MPI_LONG, target, 0, 1, MPI_LONG, MPI_SUM, win);
        long got = 0;
        MPI_Put(&i, 1, MPI_LONG, target, place, 1, MPI_LONG, win);
        MPI_Win_flush(target, win);
        MPI_Get(&got, 1, MPI_LONG, target, place, 1, MPI_LONG, win);
        MPI_Win_flush(target, win);
        if (got != i) complain("a thread got another value", got, i);
      }
    });
  for (auto& thread : threads) thread.join();
  MPI_Win_unlock_all(win);
  MPI_Barrier(MPI_COMM_WORLD);
  long all = 0;
  MPI_Allreduce(base, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  check(all == static_cast<long>(kThreads) * kTimes * g_size, "the sum of all counters", all,
        static_cast<long>(kThreads) * kTimes * g_size);
  MPI_Win_free(&win);
}

// Loads and stores of the others' memory.
inline void check_shared_query() {
  g_what = "shared query";
  for (int apart = 0; apart < 2; ++apart) {
    Window w;
    if (!open_shared(w, apart != 0)) return;
    MPI_Aint bytes = 0;
    int unit = 0;
    unsigned char* at = nullptr;
    unsigned char* next = nullptr;
    MPI_Win_shared_query(w.win, MPI_PROC_NULL, &bytes, &unit, &next);
    for (int rank = 0; rank < g_size; ++rank) {
      MPI_Win_shared_query(w.win, rank, &bytes, &unit, &at);
      check(bytes == static_cast<MPI_Aint>(window_bytes()) && unit == 1, "size and unit", bytes, unit);
      if (apart == 0) check(at == next, "the parts are one after the other", rank);
      next = at + bytes;
      if (rank == g_rank) check(at == w.base, "the own part");
    }
    MPI_Win_shared_query(w.win, (g_rank + 1) % g_size, &bytes, &unit, &at);
    MPI_Win_lock_all(0, w.win);
    at[100] = static_cast<unsigned char>(g_rank + 1);
    MPI_Win_sync(w.win);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_sync(w.win);
    check(w.base[100] == (g_rank + g_size - 1) % g_size + 1, "stored by the other rank", w.base[100]);
    MPI_Win_unlock_all(w.win);
    MPI_Win_free(&w.win);
  }
}
