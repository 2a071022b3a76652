#define _POSIX_C_SOURCE 200809L
#include "meet.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Extensions of the emulator (utofu_emulator.h), used if they exist. */
extern uint64_t utofu_emu_model_now_ns(void) __attribute__((weak));
extern void utofu_emu_model_saw(const volatile void* address) __attribute__((weak));

static void stop(const char* what, const char* name) {
  fprintf(stderr, "meet: %s %s: %s\n", what, name, strerror(errno));
  exit(2);
}

void meet_begin(struct meeting* meeting) {
  static const char* const kNames[][2] = {{"MEET_RANK", "MEET_SIZE"},
                                          {"UTOFU_EMU_RANK", "UTOFU_EMU_PROCESSES"},
                                          {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                          {"PMI_RANK", "PMI_SIZE"}};
  *meeting = (struct meeting){.rank = 0, .size = 1, .directory = getenv("MEET_DIR"), .round = 0};
  for (size_t i = 0; i < sizeof kNames / sizeof kNames[0]; i++) {
    const char* const rank = getenv(kNames[i][0]);
    const char* const size = getenv(kNames[i][1]);
    if (!rank || !size) continue;
    meeting->rank = atoi(rank);
    meeting->size = atoi(size);
    break;
  }
  if (meeting->size < 1 || meeting->rank < 0 || meeting->rank >= meeting->size) {
    fprintf(stderr, "meet: rank %d of %d cannot be\n", meeting->rank, meeting->size);
    exit(2);
  }
  if (meeting->size > 1 && !meeting->directory) {
    fprintf(stderr,
            "meet: set MEET_DIR to an empty directory that all processes of the job see; launch.py makes one, and with "
            "heddle run: --env MEET_DIR=$(mktemp -d)\n");
    exit(2);
  }
}

/* A file appears under its final name only when it is complete. */
static void publish(const struct meeting* meeting, const void* mine, size_t bytes) {
  char temporary[4096];
  char final[4096];
  snprintf(temporary, sizeof temporary, "%s/%u.%d.new", meeting->directory, meeting->round, meeting->rank);
  snprintf(final, sizeof final, "%s/%u.%d", meeting->directory, meeting->round, meeting->rank);
  FILE* const file = fopen(temporary, "wb");
  if (!file) stop("create", temporary);
  if (fwrite(mine, 1, bytes, file) != bytes) stop("write", temporary);
  if (fclose(file) != 0) stop("write", temporary);
  if (rename(temporary, final) != 0) stop("rename", temporary);
}

static void fetch(const struct meeting* meeting, int rank, void* to, size_t bytes) {
  char name[4096];
  snprintf(name, sizeof name, "%s/%u.%d", meeting->directory, meeting->round, rank);
  FILE* file;
  while (!(file = fopen(name, "rb"))) {
    if (errno != ENOENT) stop("open", name);
    const struct timespec a_moment = {.tv_sec = 0, .tv_nsec = 500000};
    nanosleep(&a_moment, NULL); /* a file in a shared directory can only be polled for */
  }
  if (fread(to, 1, bytes, file) != bytes) stop("read", name);
  fclose(file);
}

void meet_all(struct meeting* meeting, const void* mine, size_t bytes, void* all) {
  if (meeting->size == 1) {
    memcpy(all, mine, bytes);
    return;
  }
  publish(meeting, mine, bytes);
  for (int rank = 0; rank < meeting->size; rank++) fetch(meeting, rank, (char*)all + (size_t)rank * bytes, bytes);
  meeting->round++;
}

void meet_everybody(struct meeting* meeting) {
  char* const all = malloc((size_t)meeting->size);
  if (!all) stop("allocate", "a byte for each process");
  meet_all(meeting, "", 1, all);
  free(all);
}

void misused(const char* usage) {
  fprintf(stderr, "usage: %s\n", usage);
  exit(2);
}

uint64_t whole_number(const char* word, uint64_t least, uint64_t most, const char* usage) {
  char* end = NULL;
  errno = 0;
  const unsigned long long value = strtoull(word, &end, 10);
  if (word[0] < '0' || word[0] > '9' || *end != '\0' || errno != 0 || value < least || value > most) {
    fprintf(stderr, "\"%s\" is not a whole number from %llu to %llu\n", word, (unsigned long long)least,
            (unsigned long long)most);
    misused(usage);
  }
  return value;
}

void must(const struct meeting* meeting, int code, const char* what) {
  if (code == UTOFU_SUCCESS) return;
  fprintf(stderr, "rank %d: %s: error %d\n", meeting->rank, what, code);
  exit(2);
}

void wrong(const struct meeting* meeting, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "rank %d: WRONG: ", meeting->rank);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  exit(1);
}

uint64_t peek(const volatile uint64_t* word) {
  const uint64_t value = *word;
  atomic_thread_fence(memory_order_acquire);
  return value;
}

void give_way(void) {
  sched_yield();
}

struct utofu_mrq_notice next_notice(const struct meeting* meeting, utofu_vcq_hdl_t vcq) {
  struct utofu_mrq_notice notice;
  int code;
  while ((code = utofu_poll_mrq(vcq, 0, &notice)) == UTOFU_ERR_NOT_FOUND) give_way();
  must(meeting, code, "utofu_poll_mrq");
  return notice;
}

void* next_sent(const struct meeting* meeting, utofu_vcq_hdl_t vcq) {
  void* cbdata;
  int code;
  while ((code = utofu_poll_tcq(vcq, 0, &cbdata)) == UTOFU_ERR_NOT_FOUND) give_way();
  must(meeting, code, "utofu_poll_tcq");
  return cbdata;
}

utofu_vcq_hdl_t open_vcq(const struct meeting* meeting, size_t n, unsigned long flags) {
  utofu_tni_id_t* tnis;
  size_t count;
  must(meeting, utofu_get_onesided_tnis(&tnis, &count), "utofu_get_onesided_tnis");
  if (count == 0) wrong(meeting, "no TNI for one-sided communication");
  utofu_vcq_hdl_t vcq;
  must(meeting, utofu_create_vcq(tnis[n % count], flags, &vcq), "utofu_create_vcq");
  free(tnis);
  return vcq;
}

utofu_vcq_id_t id_of(const struct meeting* meeting, utofu_vcq_hdl_t vcq) {
  utofu_vcq_id_t id;
  must(meeting, utofu_query_vcq_id(vcq, &id), "utofu_query_vcq_id");
  return id;
}

utofu_vcq_id_t reach(const struct meeting* meeting, utofu_vcq_id_t told) {
  must(meeting, utofu_set_vcq_id_path(&told, NULL), "utofu_set_vcq_id_path");
  return told;
}

void* get_memory(const struct meeting* meeting, size_t bytes) {
  void* memory;
  if (posix_memalign(&memory, 256, bytes) != 0) wrong(meeting, "no memory for %zu bytes", bytes);
  memset(memory, 0, bytes);
  return memory;
}

utofu_stadd_t register_memory(const struct meeting* meeting, utofu_vcq_hdl_t vcq, void* memory, size_t bytes) {
  utofu_stadd_t stadd;
  must(meeting, utofu_reg_mem(vcq, memory, bytes, 0, &stadd), "utofu_reg_mem");
  return stadd;
}

void close_vcq(const struct meeting* meeting, utofu_vcq_hdl_t vcq, const utofu_stadd_t* registered, size_t count) {
  for (size_t i = 0; i < count; i++) must(meeting, utofu_dereg_mem(vcq, registered[i], 0), "utofu_dereg_mem");
  must(meeting, utofu_free_vcq(vcq), "utofu_free_vcq");
}

uint64_t model_now_ns(void) {
  return utofu_emu_model_now_ns ? utofu_emu_model_now_ns() : 0;
}

void model_saw(const volatile void* address) {
  if (utofu_emu_model_saw) utofu_emu_model_saw(address);
}

unsigned char pattern(uint64_t message, size_t i) {
  const uint64_t mixed = (message * 0x9E3779B97F4A7C15u) ^ ((uint64_t)i * 0xD6E8FEB86659FD93u);
  return (unsigned char)((mixed >> 32) | 1); /* never zero, the initial value of the memory */
}
