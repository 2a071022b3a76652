// Collectives of random kinds, on random communicators, in random forms, compared with the expected
// results.
//
//     collectives_rank [SEED [ROUNDS [SEED-OF-A-ROUND]]]
//
// All ranks draw the same numbers, so they make the same calls. A failure prints the seed of its
// round.
#include <string>

#include "collectives_cases.hpp"

namespace {

int g_round_seed = 0;
std::string g_made;  // the cases of the round

Where about(MPI_Comm comm) {
  Where where;
  where.comm = comm;
  MUST(MPI_Comm_rank(comm, &where.rank));
  MUST(MPI_Comm_size(comm, &where.size));
  where.remote = where.size;
  return where;
}

Where about_inter(MPI_Comm comm, int side) {
  Where where = about(comm);
  MUST(MPI_Comm_remote_size(comm, &where.remote));
  where.inter = true;
  where.side = side;
  return where;
}

// Communicators that all ranks of the job have at the same place in the list; some have other
// members for some ranks.
std::vector<Where> make_communicators() {
  const int me = my_rank();
  std::vector<Where> made{about(MPI_COMM_WORLD), about(MPI_COMM_SELF)};
  MPI_Comm comm = MPI_COMM_NULL;
  MUST(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  made.push_back(about(comm));
  MUST(MPI_Comm_split(MPI_COMM_WORLD, 0, -me, &comm));  // backwards
  made.push_back(about(comm));
  MUST(MPI_Comm_split(MPI_COMM_WORLD, me % 2, me, &comm));
  made.push_back(about(comm));
  for (const int parts : {2, 3}) {
    if (ranks() < 2) break;
    // Side 0 has a half, or a third.
    const int side = me * parts < ranks() ? 0 : 1;
    const int first = (ranks() + parts - 1) / parts;  // of side 1
    MPI_Comm half = MPI_COMM_NULL;
    MUST(MPI_Comm_split(MPI_COMM_WORLD, side, me, &half));
    MUST(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, side == 0 ? first : 0, 7, &comm));
    MUST(MPI_Comm_free(&half));
    made.push_back(about_inter(comm, side));
  }
  for (std::size_t i = 2; i < made.size(); ++i) g_comms.push_back(made[i].comm);
  return made;
}

Case random_case(Random& random, const std::vector<Where>& comms, const std::vector<Layout>& layouts, int seed) {
  const int kind = random.below(10);
  const int number = kind == 0 ? 0 : random.below(static_cast<int>(comms.size()));
  const Where& where = comms[static_cast<std::size_t>(number)];
  Case made = kind == 0  ? random_neighbours(random, where, layouts, seed)
              : kind < 6 ? random_move(random, where, layouts, seed)
                         : random_reduction(random, where, seed);
  g_made += std::string(" ") + made.name + " on communicator " + std::to_string(number) + ";";
  return made;
}

// Requests end in any order, which each rank has of its own.
void finish(Random& own, std::vector<MPI_Request>& requests) {
  const int count = static_cast<int>(requests.size());
  const int how = own.below(3);
  if (how == 0) {
    MUST(MPI_Waitall(count, requests.data(), MPI_STATUSES_IGNORE));
    return;
  }
  for (int left = count; left > 0;) {
    int index = MPI_UNDEFINED;
    if (how == 1) {
      MUST(MPI_Waitany(count, requests.data(), &index, MPI_STATUS_IGNORE));
    } else {
      int flag = 0;
      MUST(MPI_Testany(count, requests.data(), &index, &flag, MPI_STATUS_IGNORE));
      if (flag == 0) continue;
    }
    CHECK(index != MPI_UNDEFINED);
    --left;
  }
}

// Some nonblocking ones under way at once, and a blocking one among them.
void several(Random& random, Random& own, const std::vector<Where>& comms, const std::vector<Layout>& layouts,
             int seed) {
  const int count = 1 + random.below(5);
  std::vector<Case> cases;
  std::vector<MPI_Request> requests;
  for (int i = 0; i < count; ++i) {
    cases.push_back(random_case(random, comms, layouts, seed + i * 100));
    cases.back().fill(0);
    requests.push_back(MPI_REQUEST_NULL);
    cases.back().call(Form::nonblocking, &requests.back());
    if (random.one_in(4)) {
      const Case blocking = random_case(random, comms, layouts, seed + 5000 + i);
      blocking.fill(0);
      blocking.call(Form::blocking, nullptr);
      blocking.check(0);
    }
  }
  finish(own, requests);
  for (const Case& one : cases) one.check(0);
}

// Some persistent ones, started together a few times.
void persistent(Random& random, Random& own, const std::vector<Where>& comms, const std::vector<Layout>& layouts,
                int seed) {
  const int count = 1 + random.below(3);
  std::vector<Case> cases;
  std::vector<MPI_Request> requests;
  for (int i = 0; i < count; ++i) {
    cases.push_back(random_case(random, comms, layouts, seed + i * 100));
    requests.push_back(MPI_REQUEST_NULL);
    cases.back().call(Form::persistent, &requests.back());
  }
  for (int run = 0; run < 3; ++run) {
    for (const Case& one : cases) one.fill(run);
    MUST(MPI_Startall(count, requests.data()));
    finish(own, requests);
    for (const Case& one : cases) one.check(run);
  }
  for (MPI_Request& request : requests) MUST(MPI_Request_free(&request));
}

// While a member waits in a collective, it still serves the others.
void progress() {
  constexpr int kMessages = 20000;
  if (ranks() < 2) return;
  std::vector<int> sent(kMessages);
  std::vector<MPI_Request> requests(kMessages, MPI_REQUEST_NULL);
  std::vector<char> much(std::size_t{4} << 20, 'x');
  for (const bool receive_first : {true, false}) {
    if (my_rank() == 0) {
      for (int i = 0; i < kMessages; ++i) {
        sent[static_cast<std::size_t>(i)] = i;
        MUST(MPI_Isend(&sent[static_cast<std::size_t>(i)], 1, MPI_INT, 1, 1, MPI_COMM_WORLD,
                       &requests[static_cast<std::size_t>(i)]));
      }
      MPI_Request large = MPI_REQUEST_NULL;
      MUST(MPI_Isend(much.data(), static_cast<int>(much.size()), MPI_CHAR, 1, 2, MPI_COMM_WORLD, &large));
      MUST(MPI_Barrier(MPI_COMM_WORLD));
      MUST(MPI_Waitall(kMessages, requests.data(), MPI_STATUSES_IGNORE));
      MUST(MPI_Wait(&large, MPI_STATUS_IGNORE));
      continue;
    }
    if (!receive_first) MUST(MPI_Barrier(MPI_COMM_WORLD));
    if (my_rank() == 1) {
      for (int i = 0; i < kMessages; ++i) {
        int got = -1;
        MUST(MPI_Recv(&got, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(got == i);
      }
      MUST(MPI_Recv(much.data(), static_cast<int>(much.size()), MPI_CHAR, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    }
    if (receive_first) MUST(MPI_Barrier(MPI_COMM_WORLD));
  }
}

}  // namespace

// Every failed check ends here.
extern "C" int MPI_Abort(MPI_Comm comm, int code) {
  std::fprintf(stderr, "rank %d: in the round of seed %d:%s\n", my_rank(), g_round_seed, g_made.c_str());
  return PMPI_Abort(comm, code);
}

int main(int argc, char** argv) {
  const int seed = argc > 1 ? std::atoi(argv[1]) : 1;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 150;
  const int only = argc > 3 ? std::atoi(argv[3]) : 0;
  MUST(MPI_Init(&argc, &argv));
  progress();
  const std::vector<Layout> layouts = make_layouts();
  const std::vector<Where> comms = make_communicators();
  for (int round = 0; round < rounds; ++round) {
    const int one = only != 0 ? only : seed * 100003 + round;
    g_round_seed = one;
    g_made.clear();
    Random random(static_cast<std::uint64_t>(one));
    Random own(static_cast<std::uint64_t>(one * 31 + my_rank()));
    switch (random.below(4)) {
      case 0:
        persistent(random, own, comms, layouts, one);
        break;
      case 1:
        several(random, own, comms, layouts, one);
        break;
      default: {
        const Case blocking = random_case(random, comms, layouts, one);
        blocking.fill(0);
        blocking.call(Form::blocking, nullptr);
        blocking.check(0);
      }
    }
  }
  free_all();
  MUST(MPI_Finalize());
  return 0;
}
