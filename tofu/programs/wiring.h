/* The connections of the barrier gates of a group of processes, as pure functions of rank and size.
 * There are two graphs.
 *
 * Recursive doubling, for a power of two: rank r and its partner r ^ 2^(j-1) combine in stage j.
 * Tree, for any size: values are combined on the way up a binomial tree and the result goes down
 * the same tree. */
#ifndef WIRING_H
#define WIRING_H

enum { kNoGate = -1, kMostGates = 33 /* of one rank: enough for 65536 of them */ };

/* One gate of this rank. Local gates are named by their index (0: the start gate), remote ones by
 * rank and index. */
struct gate_wiring {
  int src_local, src_rank, src_gate;
  int dst_local, dst_rank, dst_gate;
};

/* Fill `gates` and return their number. */
int wire_doubling(int rank, int size, struct gate_wiring gates[kMostGates]);
int wire_tree(int rank, int size, struct gate_wiring gates[kMostGates]);

#endif
