#define _GNU_SOURCE
#include "calls.h"

#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t heddle_calls_context;

static int (*g_begin)(heddle_context, const char*, const char*);
static heddle_status (*g_end)(heddle_context, const char*);

static __thread const char* t_polled; /* the last call, if it was one that looked in vain */
static __thread const char* t_around; /* heddle_calls_enter */
static __thread uint64_t t_around_begun;

/* ---- the job -------------------------------------------------------------------------------- */

void HEDDLE_CALLS_HOOK(heddle_context context, int (*begin)(heddle_context, const char*, const char*),
                       heddle_status (*end)(heddle_context, const char*)) {
  if (context.id == 0) {
    if (t_around != NULL) {
      heddle_calls_end(t_around, t_around_begun);
      t_around_begun = 0;
    }
    __atomic_store_n(&heddle_calls_context, 0, __ATOMIC_RELEASE);
    return;
  }
  g_begin = begin;
  g_end = end;
  __atomic_store_n(&heddle_calls_context, context.id, __ATOMIC_RELEASE);
  if (t_around != NULL) t_around_begun = heddle_calls_begin(t_around, "");
}

void heddle_calls_enter(const char* name) {
  t_around = name;
  t_around_begun = HEDDLE_CALLS_ON ? heddle_calls_begin(name, "") : 0;
}

void heddle_calls_leave(const char* name) {
  heddle_calls_end(name, t_around_begun);
  t_around = NULL;
}

/* ---- the real functions --------------------------------------------------------------------- */

/* Looks in the library of the caller and in those that it needs. They may be in no scope but their
 * own: Python loads its modules in this way, and with them the library of MPI. */
static void* find_for(const void* caller, const char* name) {
  Dl_info info;
  struct link_map* map = NULL;
  if (dladdr1(caller, &info, (void**)&map, RTLD_DL_LINKMAP) == 0 || map == NULL) return NULL;
  void* const library = dlopen(map->l_name[0] != '\0' ? map->l_name : NULL, RTLD_NOLOAD | RTLD_LAZY);
  if (library == NULL) return NULL;
  void* const found = dlsym(library, name);
  dlclose(library);
  void* own = NULL;
  struct link_map* found_in = NULL;
  /* for a program, everything loaded with it is searched, and so is this library */
  if (found == NULL || dladdr1(found, &info, (void**)&found_in, RTLD_DL_LINKMAP) == 0) return found;
  if (dladdr1((const void*)&heddle_calls_find, &info, &own, RTLD_DL_LINKMAP) != 0 && own == found_in) return NULL;
  return found;
}

void* heddle_calls_find(void** place, const char* name, const void* caller) {
  void* found = dlsym(RTLD_NEXT, name);
  if (found == NULL) found = find_for(caller, name);
  if (found == NULL) {
    void* const library = dlopen(HEDDLE_CALLS_LIBRARY, RTLD_NOLOAD | RTLD_LAZY);
    if (library != NULL) {
      found = dlsym(library, name);
      dlclose(library); /* it stays: it was loaded before */
    }
  }
  if (found == NULL) {
    fprintf(stderr,
            "heddle run: %s is called, and no library that is loaded has it; with --trace-calls no the names of calls "
            "are left out\n",
            name);
    abort();
  }
  __atomic_store_n(place, found, __ATOMIC_RELAXED);
  return found;
}

/* ---- what is noted -------------------------------------------------------------------------- */

enum { kMost = 128 }; /* heddle_trace_begin keeps as many bytes, with the 0 */

static const char* name_of(char letter, long long value) {
  for (const struct heddle_calls_names* set = heddle_calls_names; set->letter != 0; ++set) {
    if (set->letter != letter) continue;
    return value >= set->first && value - set->first < set->count ? set->names[value - set->first] : NULL;
  }
  return NULL;
}

/* The digits end at `end`; returns where they begin. */
static char* digits(char* end, unsigned long long value, unsigned base) {
  do {
    *--end = "0123456789abcdef"[value % base];
    value /= base;
  } while (value != 0);
  return end;
}

/* The next argument as text, in `room` or as it stands. */
static const char* text_of(char letter, va_list* arguments, char room[32]) {
  char* const end = room + 31;
  *end = '\0';
  if (letter == 'f') {
    snprintf(room, 32, "%g", va_arg(*arguments, double));
    return room;
  }
  if (letter == 'u') return digits(end, va_arg(*arguments, unsigned long long), 10);
  int hexadecimal = letter >= 'A' && letter <= 'Z';
  long long value = 0;
  if (letter == 'p') {
    value = (long long)(intptr_t)va_arg(*arguments, const void*);
    hexadecimal = 1;
  } else {
    value = va_arg(*arguments, long long);
  }
  const char* const name = name_of(letter, value);
  if (name != NULL) return name;
  char* begin = digits(end, hexadecimal || value >= 0 ? (unsigned long long)value : -(unsigned long long)value,
                       hexadecimal ? 16 : 10);
  if (hexadecimal) {
    *--begin = 'x';
    *--begin = '0';
  } else if (value < 0) {
    *--begin = '-';
  }
  return begin;
}

/* "count=8 comm=MPI_COMM_WORLD". An argument that has no room is left out, with those behind it. */
static void write_arguments(char text[kMost], const char* format, va_list* arguments) {
  char* to = text;
  char* const end = text + kMost - 1;
  while (*format != '\0') {
    const size_t name = strcspn(format, "=") + 1;
    char room[32];
    const char* const value = text_of(format[name], arguments, room);
    const size_t bytes = strlen(value);
    const size_t space = to != text;
    if (space + name + bytes > (size_t)(end - to)) break;
    if (space) *to++ = ' ';
    memcpy(to, format, name);
    memcpy(to + name, value, bytes);
    to += name + bytes;
    format += name + 1;
    if (*format == ' ') ++format;
  }
  *to = '\0';
}

uint64_t heddle_calls_begin(const char* name, const char* format, ...) {
  const heddle_context context = {__atomic_load_n(&heddle_calls_context, __ATOMIC_ACQUIRE)};
  t_polled = NULL;
  if (context.id == 0) return 0;
  char text[kMost];
  va_list arguments;
  va_start(arguments, format);
  write_arguments(text, format, &arguments);
  va_end(arguments);
  return g_begin(context, name, text) == 1 ? context.id : 0;
}

void heddle_calls_end(const char* name, uint64_t begun) {
  if (begun == 0 || begun != __atomic_load_n(&heddle_calls_context, __ATOMIC_ACQUIRE)) return;
  const heddle_context context = {begun};
  g_end(context, name);
}

int heddle_calls_again(const char* name) {
  return t_polled == name;
}

void heddle_calls_polled(const char* name, int found) {
  t_polled = found ? NULL : name;
}
