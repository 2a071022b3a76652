// Random collectives that move data.
#include <algorithm>
#include <numeric>

#include "collectives_cases.hpp"

namespace {

// Blocks of this many ints fit any number of elements of all layouts.
constexpr int kUnit = 12;
constexpr int kMostUnits = 4;

// One side of a call: a block for each partner.
struct Side {
  Layout layout;
  std::vector<int> units;   // of the blocks
  std::vector<int> counts;  // in elements
  std::vector<int> displacements;
  std::vector<int> bytes;  // displacements, for the w forms
  std::vector<MPI_Datatype> types;
  Area area;
  [[nodiscard]] int ints(int block) const { return units[static_cast<std::size_t>(block)] * kUnit; }
};

void place(Random& random, bool dense, Side* side) {
  const int blocks = static_cast<int>(side->units.size());
  std::vector<int> order(side->units.size());
  std::iota(order.begin(), order.end(), 0);
  if (!dense)
    for (int i = blocks - 1; i > 0; --i)
      std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(random.below(i + 1))]);
  side->counts.resize(side->units.size());
  side->displacements.resize(side->units.size());
  int at = 0;
  for (const int block : order) {
    const auto i = static_cast<std::size_t>(block);
    side->counts[i] = side->ints(block) / side->layout.ints();
    side->displacements[i] = at;
    at += side->counts[i] + (dense ? 0 : random.below(3));
  }
  for (std::size_t i = 0; i < side->units.size(); ++i) {
    side->bytes.push_back(side->displacements[i] * side->layout.extent * static_cast<int>(sizeof(int)));
    side->types.push_back(side->layout.type);
  }
  side->area = Area((at + 2) * side->layout.extent);
}

std::shared_ptr<Side> make_side(Random& random, const Layout& layout, std::vector<int> units, bool dense) {
  auto side = std::make_shared<Side>();
  side->layout = layout;
  side->units = std::move(units);
  place(random, dense, side.get());
  return side;
}

// Block `block` holds what `from` sends to `to`.
void write(Side& side, int block, int seed, int from, int to) {
  const int at = side.displacements[static_cast<std::size_t>(block)];
  for (int i = 0; i < side.ints(block); ++i) side.area.data(side.layout, at, i) = word(seed, from, to, i);
}
void compare(Side& side, int block, int seed, int from, int to) {
  const int at = side.displacements[static_cast<std::size_t>(block)];
  for (int i = 0; i < side.ints(block); ++i) CHECK(side.area.data(side.layout, at, i) == word(seed, from, to, i));
}

// The values that all processes draw alike: the kind, the units of each pair of processes, and so
// on.
struct Draw {
  int seed;
  int root;
  bool in_place;
  bool even;
  bool by_types;
  std::vector<int> table;
  Layout send;
  Layout receive;
  std::uint64_t own;  // seed of this process's own choices
  // For the block that `from` sends to `to`.
  [[nodiscard]] int units(int from, int to) const {
    if (even) return table[0];
    return table[static_cast<std::size_t>(from * 7 + to * 3) % table.size()];
  }
};

Draw draw(Random& random, const Where& where, const std::vector<Layout>& layouts, int seed) {
  Draw made;
  made.seed = seed;
  made.root = random.below(64);
  made.in_place = random.one_in(3) && !where.inter;
  made.even = random.one_in(2);
  made.by_types = random.one_in(2);
  const int most = random.one_in(4) ? 400 : kMostUnits;
  for (int i = 0; i < 11; ++i) made.table.push_back(random.one_in(6) ? 0 : 1 + random.below(most));
  made.own = random.next() + static_cast<std::uint64_t>(where.rank * 17 + where.side);
  Random own(made.own);
  made.send = layouts[static_cast<std::size_t>(own.below(static_cast<int>(layouts.size())))];
  made.receive = layouts[static_cast<std::size_t>(own.below(static_cast<int>(layouts.size())))];
  return made;
}

// Processes of the groups have different numbers, so that no two senders are alike.
int id(const Where& where, bool remote, int rank) {
  return where.inter ? rank + 100 * (remote ? 1 - where.side : where.side) : rank;
}

std::vector<int> lengths(const Draw& drawn, const Where& where, bool sending, int partners) {
  std::vector<int> units;
  for (int i = 0; i < partners; ++i) {
    const int mine = id(where, false, where.rank);
    const int other = id(where, where.inter, i);
    units.push_back(sending ? drawn.units(mine, other) : drawn.units(other, mine));
  }
  return units;
}

Case broadcast(const Draw& drawn, const Where& where) {
  // The root of an intercommunicator is in the group of side 0.
  const int root = drawn.root % (where.inter ? (where.side == 0 ? where.size : where.remote) : where.size);
  const bool gives = (!where.inter || where.side == 0) && where.rank == root;
  const bool gets = where.inter ? where.side == 1 : !gives;
  Random own(drawn.own);
  auto data = make_side(own, drawn.send, {drawn.units(root, 0)}, true);
  const int argument = !where.inter || where.side == 1 ? root : gives ? MPI_ROOT : MPI_PROC_NULL;
  const int from = where.inter ? root : root;
  const int seed = drawn.seed;
  Case made{"broadcast", {}, {}, {}};
  made.fill = [=](int run) {
    data->area.clear();
    if (gives) write(*data, 0, seed + run, from, 0);
  };
  made.call = [=](Form form, MPI_Request* request) {
    call_in<MPI_Bcast, MPI_Ibcast, MPI_Bcast_init>(form, request, static_cast<void*>(data->area.base()),
                                                   data->counts[0], data->layout.type, argument, where.comm);
  };
  made.check = [=](int run) {
    if (gives || gets) compare(*data, 0, seed + run, from, 0);
    CHECK(data->area.rest_is_empty());
  };
  return made;
}

// Gather and scatter, even or listed: one root, and everybody (of an intercommunicator: of side 1).
Case rooted(const Draw& drawn, const Where& where, bool gather) {
  const int root = drawn.root % (where.inter ? (where.side == 0 ? where.size : where.remote) : where.size);
  const bool at_root = (!where.inter || where.side == 0) && where.rank == root;
  const bool member = !where.inter || where.side == 1;
  const bool in_place = drawn.in_place && at_root;
  const int argument = member ? root : at_root ? MPI_ROOT : MPI_PROC_NULL;
  const int root_id = where.inter ? root : root;
  const int mine = id(where, false, where.rank);
  Random own(drawn.own);
  std::vector<int> all;
  if (at_root) {
    for (int i = 0; i < where.remote; ++i) {
      const int other = id(where, where.inter, i);
      all.push_back(gather ? drawn.units(other, root_id) : drawn.units(root_id, other));
    }
  }
  auto many = make_side(own, drawn.receive, all, drawn.even);
  auto one = make_side(own, drawn.send, {gather ? drawn.units(mine, root_id) : drawn.units(root_id, mine)}, true);
  const int seed = drawn.seed;
  const bool even = drawn.even;
  const int partners = at_root ? where.remote : 0;
  Case made{gather ? "gather" : "scatter", {}, {}, {}};
  made.fill = [=](int run) {
    many->area.clear();
    one->area.clear();
    const int now = seed + run;
    if (!gather)
      for (int i = 0; i < partners; ++i) write(*many, i, now, root_id, id(where, where.inter, i));
    else if (in_place)
      write(*many, where.rank, now, mine, root_id);
    else if (member)
      write(*one, 0, now, mine, root_id);
  };
  made.call = [=](Form form, MPI_Request* request) {
    void* const alone = in_place ? MPI_IN_PLACE : one->area.base();
    const void* const sent = alone;
    const int count = one->counts[0];
    void* const base = many->area.base();
    const int first = at_root && partners > 0 ? many->counts[0] : 0;
    const MPI_Datatype type = one->layout.type;
    const MPI_Datatype types = many->layout.type;
    if (gather && even)
      call_in<MPI_Gather, MPI_Igather, MPI_Gather_init>(form, request, sent, count, type, base, first, types, argument,
                                                        where.comm);
    else if (gather)
      call_in<MPI_Gatherv, MPI_Igatherv, MPI_Gatherv_init>(
          form, request, sent, count, type, base, static_cast<const int*>(many->counts.data()),
          static_cast<const int*>(many->displacements.data()), types, argument, where.comm);
    else if (even)
      call_in<MPI_Scatter, MPI_Iscatter, MPI_Scatter_init>(form, request, static_cast<const void*>(base), first, types,
                                                           alone, count, type, argument, where.comm);
    else
      call_in<MPI_Scatterv, MPI_Iscatterv, MPI_Scatterv_init>(
          form, request, static_cast<const void*>(base), static_cast<const int*>(many->counts.data()),
          static_cast<const int*>(many->displacements.data()), types, alone, count, type, argument, where.comm);
  };
  made.check = [=](int run) {
    const int now = seed + run;
    for (int i = 0; i < partners; ++i) {
      const int other = id(where, where.inter, i);
      compare(*many, i, now, gather ? other : root_id, gather ? root_id : other);
    }
    if (member && !in_place) compare(*one, 0, now, gather ? mine : root_id, gather ? root_id : mine);
    CHECK(many->area.rest_is_empty());
    CHECK(one->area.rest_is_empty());
  };
  return made;
}

Case allgather(const Draw& drawn, const Where& where) {
  constexpr int kAll = 0;
  const int mine = id(where, false, where.rank);
  const bool in_place = drawn.in_place;
  Random own(drawn.own);
  std::vector<int> all;
  for (int i = 0; i < where.remote; ++i) all.push_back(drawn.units(id(where, where.inter, i), kAll));
  auto many = make_side(own, drawn.receive, all, drawn.even);
  auto one = make_side(own, drawn.send, {drawn.units(mine, kAll)}, true);
  const int seed = drawn.seed;
  const bool even = drawn.even;
  Case made{"allgather", {}, {}, {}};
  made.fill = [=](int run) {
    many->area.clear();
    one->area.clear();
    if (in_place)
      write(*many, where.rank, seed + run, mine, kAll);
    else
      write(*one, 0, seed + run, mine, kAll);
  };
  made.call = [=](Form form, MPI_Request* request) {
    const void* const sent = in_place ? MPI_IN_PLACE : one->area.base();
    void* const base = many->area.base();
    if (even)
      call_in<MPI_Allgather, MPI_Iallgather, MPI_Allgather_init>(form, request, sent, one->counts[0], one->layout.type,
                                                                 base, many->counts[0], many->layout.type, where.comm);
    else
      call_in<MPI_Allgatherv, MPI_Iallgatherv, MPI_Allgatherv_init>(
          form, request, sent, one->counts[0], one->layout.type, base, static_cast<const int*>(many->counts.data()),
          static_cast<const int*>(many->displacements.data()), many->layout.type, where.comm);
  };
  made.check = [=](int run) {
    for (int i = 0; i < where.remote; ++i) compare(*many, i, seed + run, id(where, where.inter, i), kAll);
    CHECK(many->area.rest_is_empty());
  };
  return made;
}

Case alltoall(const Draw& drawn, const Where& where) {
  const int mine = id(where, false, where.rank);
  // In place, both directions are of one length.
  Draw both = drawn;
  if (drawn.in_place) both.even = true;
  const bool in_place = drawn.in_place;
  const bool even = both.even && !drawn.by_types;
  Random own(drawn.own);
  auto from = make_side(own, drawn.send, lengths(both, where, true, where.remote), even);
  auto to = make_side(own, drawn.receive, lengths(both, where, false, where.remote), even);
  const int seed = drawn.seed;
  const bool by_types = drawn.by_types;
  Case made{"alltoall", {}, {}, {}};
  made.fill = [=](int run) {
    from->area.clear();
    to->area.clear();
    for (int i = 0; i < where.remote; ++i)
      write(in_place ? *to : *from, i, seed + run, mine, id(where, where.inter, i));
  };
  made.call = [=](Form form, MPI_Request* request) {
    const void* const sent = in_place ? MPI_IN_PLACE : from->area.base();
    void* const base = to->area.base();
    const int* const send_counts = from->counts.data();
    const int* const receive_counts = to->counts.data();
    const int* const send_at = from->displacements.data();
    const int* const receive_at = to->displacements.data();
    if (even)
      call_in<MPI_Alltoall, MPI_Ialltoall, MPI_Alltoall_init>(form, request, sent, send_counts[0], from->layout.type,
                                                              base, receive_counts[0], to->layout.type, where.comm);
    else if (by_types)
      call_in<MPI_Alltoallw, MPI_Ialltoallw, MPI_Alltoallw_init>(
          form, request, sent, send_counts, static_cast<const int*>(from->bytes.data()),
          static_cast<const MPI_Datatype*>(from->types.data()), base, receive_counts,
          static_cast<const int*>(to->bytes.data()), static_cast<const MPI_Datatype*>(to->types.data()), where.comm);
    else
      call_in<MPI_Alltoallv, MPI_Ialltoallv, MPI_Alltoallv_init>(form, request, sent, send_counts, send_at,
                                                                 from->layout.type, base, receive_counts, receive_at,
                                                                 to->layout.type, where.comm);
  };
  made.check = [=](int run) {
    for (int i = 0; i < where.remote; ++i) compare(*to, i, seed + run, id(where, where.inter, i), mine);
    CHECK(to->area.rest_is_empty());
  };
  return made;
}

Case meeting(const Where& where) {
  Case made{"barrier", [](int) {}, {}, [](int) {}};
  made.call = [where](Form form, MPI_Request* request) {
    call_in<MPI_Barrier, MPI_Ibarrier, MPI_Barrier_init>(form, request, where.comm);
  };
  return made;
}

}  // namespace

std::vector<Layout> make_layouts() {
  std::vector<Layout> layouts;
  layouts.push_back({MPI_INT, {0}, 1});
  const auto add = [&](MPI_Datatype type, std::vector<int> places, int extent) {
    MUST(MPI_Type_commit(&type));
    g_types.push_back(type);
    layouts.push_back({type, std::move(places), extent});
  };
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MUST(MPI_Type_contiguous(3, MPI_INT, &type));
  add(type, {0, 1, 2}, 3);
  MUST(MPI_Type_vector(2, 1, 3, MPI_INT, &type));
  add(type, {0, 3}, 4);
  const int lengths[] = {1, 2};
  const int at[] = {4, -1};
  MPI_Datatype wide = MPI_DATATYPE_NULL;
  MUST(MPI_Type_indexed(2, lengths, at, MPI_INT, &type));
  MUST(MPI_Type_create_resized(type, -static_cast<int>(sizeof(int)), 7 * sizeof(int), &wide));
  MUST(MPI_Type_free(&type));
  add(wide, {4, -1, 0}, 7);
  return layouts;
}

Case random_move(Random& random, const Where& where, const std::vector<Layout>& layouts, int seed) {
  const int kind = random.below(12);
  const Draw drawn = draw(random, where, layouts, seed);
  switch (kind) {
    case 0:
      return meeting(where);
    case 1:
    case 2:
      return broadcast(drawn, where);
    case 3:
    case 4:
      return rooted(drawn, where, true);
    case 5:
    case 6:
      return rooted(drawn, where, false);
    case 7:
    case 8:
      return allgather(drawn, where);
    default:
      return alltoall(drawn, where);
  }
}
