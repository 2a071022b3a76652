#include "wiring.h"

static void clear(struct gate_wiring* gate) {
  *gate = (struct gate_wiring){kNoGate, kNoGate, kNoGate, kNoGate, kNoGate, kNoGate};
}

/* The gates of a rank form a ring: start, relay 1 … relay k-1, and back to start, which makes the
 * last combination. Gate j-1 sends the same value to gate j and to gate j of partner j. */
int wire_doubling(int rank, int size, struct gate_wiring gates[kMostGates]) {
  int stages = 0;
  while (1 << stages < size) stages++;
  const int count = stages > 0 ? stages : 1;
  for (int gate = 0; gate < count; gate++) {
    const int next = (gate + 1) % count;
    const int before = (gate + count - 1) % count;
    clear(&gates[gate]);
    gates[gate].src_local = before;
    gates[gate].dst_local = next;
    if (stages == 0) continue; /* a single rank: the start gate feeds itself */
    /* Gate 0 ends stage k; gate j ends stage j. The output of gate j takes part in stage j + 1. */
    gates[gate].src_rank = rank ^ (1 << before);
    gates[gate].src_gate = before;
    gates[gate].dst_rank = rank ^ (1 << gate);
    gates[gate].dst_gate = next;
  }
  return count;
}

/* Children of a rank in the binomial tree: rank + 2^j for every 2^j below its lowest bit set (any,
 * for rank 0). */
static int children_of(int rank, int size) {
  int children = 0;
  while ((rank & (1 << children)) == 0 && rank + (1 << children) < size) children++;
  return children;
}

static int parent_of(int rank) {
  return rank & (rank - 1);
}

/* The rank's index among its parent's children. */
static int place_of(int rank) {
  int place = 0;
  while ((rank & (1 << place)) == 0) place++;
  return place;
}

/* Gates of a rank with m children. 0: the start gate; 1 … m combine with child 0 … m-1 on the way
 * up; m+1 … 2m pass the result to child 0 … m-1 on the way down. A leaf has only the start gate: it
 * sends up and gets the result. */
static int up_gate(int child) {
  return 1 + child;
}
static int down_gate(int children, int child) {
  return 1 + children + child;
}

int wire_tree(int rank, int size, struct gate_wiring gates[kMostGates]) {
  const int children = children_of(rank, size);
  const int count = 1 + 2 * children;
  const int top = children; /* the last gate on the way up; the start gate of a leaf */
  for (int gate = 0; gate < count; gate++) clear(&gates[gate]);
  for (int child = 0; child < children; child++) {
    const int other = rank + (1 << child);
    struct gate_wiring* const up = &gates[up_gate(child)];
    struct gate_wiring* const down = &gates[down_gate(children, child)];
    gates[up_gate(child) - 1].dst_local = up_gate(child);
    up->src_local = up_gate(child) - 1;
    up->src_rank = other;
    up->src_gate = children_of(other, size);
    if (child > 0) {
      gates[down_gate(children, child) - 1].dst_local = down_gate(children, child);
      down->src_local = down_gate(children, child) - 1;
    }
    down->dst_rank = other;
    down->dst_gate = children_of(other, size) > 0 ? down_gate(children_of(other, size), 0) : 0;
  }
  if (children > 0) {
    gates[count - 1].dst_local = 0;
    gates[0].src_local = count - 1;
  }
  if (rank == 0) {
    /* a single rank: the start gate feeds itself */
    const int first = children > 0 ? down_gate(children, 0) : 0;
    gates[top].dst_local = first;
    gates[first].src_local = top;
  } else {
    const int parent = parent_of(rank);
    gates[top].dst_rank = parent;
    gates[top].dst_gate = up_gate(place_of(rank));
    const int entry = children > 0 ? down_gate(children, 0) : 0;
    gates[entry].src_rank = parent;
    gates[entry].src_gate = down_gate(children_of(parent, size), place_of(rank));
  }
  return count;
}
