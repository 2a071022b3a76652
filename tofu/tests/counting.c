/* A profiling tool as a library: it is linked before libtofucom, counts puts, and calls the putofu_
 * names, which it does not define. */
#include "counting.h"

#include <utofu_profile.h>

static unsigned long puts_seen;

unsigned long counted_puts(void) {
  return puts_seen;
}

int utofu_put(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd,
              size_t length, uint64_t edata, unsigned long int flags, void* cbdata) {
  ++puts_seen;
  return putofu_put(vcq_hdl, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags, cbdata);
}
