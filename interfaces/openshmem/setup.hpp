// Beginning and end of the OpenSHMEM part of a program, and what it can ask about itself.
#pragma once

#include "openshmem/state.hpp"

namespace heddle::shmem {

// May be called again while it is initialised: then it only counts, and as many calls of finalize
// end it (version 1.6).
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
// For a profiling tool that puts its own function in front; by itself the library records nothing
// that could be switched.
void pcontrol(Call call, int level);
// Of machines whose caches are not coherent. Heddle is for none of them; what is left is a fence.
void manage_cache(Call call);
void manage_cache_line(Call call, const void* dest);
void info_get_version(Call call, int* major, int* minor);
void info_get_name(Call call, char* name);

}  // namespace heddle::shmem
