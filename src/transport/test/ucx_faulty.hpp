// The faults of faulty_ucp, a library between the transport and UCX. Tests ask for them; they find
// these functions by their names.
#pragma once

#include <ucs/type/status.h>

extern "C" {

// The next put ends with this error, in a later round of progress. UCX does not see it.
void faulty_ucp_fail_put(ucs_status_t status);
// From now on flushes of endpoints do not end; false: they end well in the next round of progress.
// A forced close of their endpoint ends them well, too.
void faulty_ucp_hold_flushes(bool hold);
// How many are held.
unsigned faulty_ucp_held();
// In the next round of progress, endpoints with a held flush are reported as broken.
void faulty_ucp_break();
}
