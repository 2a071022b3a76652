// Initialisation and finalisation of the library, and queries.
#pragma once

#include <heddle/heddle.h>
#include "openshmem/state.hpp"

namespace heddle::shmem {

// May be called again while the library is initialised: the calls are counted, and as many calls of
// finalize end the library (version 1.6).
int init_thread(Call call, int requested, int* provided);
void init(Call call);
void start_pes(Call call, int npes);
void finalize(Call call);
[[noreturn]] void global_exit(Call call, int status);
void query_thread(Call call, int* provided);
void query_initialized(Call call, int* initialized);

int my_pe(Call call);
int n_pes(Call call);
int pe_accessible(Call call, int pe);
int addr_accessible(Call call, const void* addr, int pe);
void* ptr(Call call, const void* dest, int pe);
// For a profiling tool that intercepts this function. The library itself records nothing that could
// be switched.
void pcontrol(Call call, int level);
// For machines without coherent caches. Heddle supports none of them, so a fence is all that is
// left.
void manage_cache(Call call);
void manage_cache_line(Call call, const void* dest);
void info_get_version(Call call, int* major, int* minor);
void info_get_name(Call call, char* name);

// Calls by name in the picture of a traced job (`heddle run --trace`): the wrappers that note them
// are in a library that the launcher loads into the process before all others (observe/calls).

// Tells the wrappers, if there are any, that the job is joined; with a context of 0, that it is
// about to be left.
void tell_calls(heddle_context context);

}  // namespace heddle::shmem
