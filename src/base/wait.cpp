#include "base/wait.hpp"

#include <pthread.h>

namespace heddle::base {

void step_aside() {
  cpu_set_t all;
  if (pthread_getaffinity_np(pthread_self(), sizeof all, &all) != 0) return;
  const int here = sched_getcpu();
  cpu_set_t others = all;
  if (here >= 0) CPU_CLR(here, &others);
  if (CPU_COUNT(&others) == 0) return;
  if (pthread_setaffinity_np(pthread_self(), sizeof others, &others) != 0) return;
  pthread_setaffinity_np(pthread_self(), sizeof all, &all);
}

}  // namespace heddle::base
