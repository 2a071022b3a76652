// A rank for launch_test.cpp and launch_ends_test.cpp: does what its first argument says, on the
// bootstrap alone. Exits with 0 if all was as it should be, with 99 and a line on standard error if
// not.
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "base/mappings.hpp"
#include "base/wait.hpp"
#include "bootstrap/bootstrap.hpp"

namespace {

using heddle::base::Status;
using heddle::bootstrap::Bootstrap;
using Parts = std::vector<std::vector<std::byte>>;

[[noreturn]] void wrong(const char* what) {
  std::fprintf(stderr, "wrong: %s: %s\n", what, heddle::base::last_message());
  std::_Exit(99);
}

void check(bool good, const char* what) {
  if (!good) wrong(what);
}

void say(const char* word, long long number) {
  std::printf("%s %lld\n", word, number);
  std::fflush(stdout);
}

long long now_ns() {
  return static_cast<long long>(heddle::base::SystemClock().now_ns());
}

std::unique_ptr<Bootstrap> join() {
  auto opened = heddle::bootstrap::open({}, {});
  if (!opened) wrong("join");
  return std::move(*opened);
}

Status exchange(Bootstrap& bootstrap, std::span<const std::byte> mine, Parts* all) {
  heddle::base::SystemClock clock;
  heddle::base::Waiter waiter(clock, 60'000'000'000);
  Status status = bootstrap.exchange_start(mine);
  if (status != HEDDLE_DONE) return status;
  while ((status = bootstrap.exchange_test(all)) == HEDDLE_AGAIN) check(waiter.idle(), "an exchange hangs");
  return status;
}

Status barrier(Bootstrap& bootstrap) {
  Parts none;
  return exchange(bootstrap, {}, &none);
}

void await_failure(const Bootstrap& bootstrap, std::uint32_t rank) {
  heddle::base::SystemClock clock;
  heddle::base::Waiter waiter(clock, 60'000'000'000);
  while (bootstrap.failure_epoch().load(std::memory_order_acquire) == 0) check(waiter.idle(), "not told of a death");
  check(bootstrap.failed(rank), "the wrong rank is said to be gone");
}

// A card is there, with its file where the peer is on the same machine.
heddle::base::Fd file_of(const Bootstrap& bootstrap, std::uint32_t peer, const heddle::bootstrap::Card& card) {
  heddle::base::Fd file(card.fd);
  const bool near = bootstrap.host(peer) == bootstrap.host(bootstrap.rank());
  check(card.pid > 1 && file.valid() == near, "a card");
  return file;
}

using Word = std::atomic_ref<std::uint32_t>;

Word line_of(std::span<std::byte> board, std::uint32_t rank) {
  return Word(reinterpret_cast<std::uint32_t&>(board[std::size_t{rank} * 128]));
}

// The ranks of a machine see what each of them writes on its board, and nobody else's.
void check_board(Bootstrap& bootstrap) {
  const std::uint32_t rank = bootstrap.rank();
  const auto board = bootstrap.board();
  const bool shared = bootstrap.place(rank).size > 1;
  check(board.size() == (shared ? heddle::bootstrap::kBoardBytes : 0), "the size of the board");
  check(!shared || line_of(board, rank).exchange(rank + 1) == 0, "a board that is not zero");
  check(barrier(bootstrap) == HEDDLE_DONE, "barrier");
  for (std::uint32_t peer = 0; shared && peer < bootstrap.size(); ++peer) {
    const bool near = bootstrap.host(peer) == bootstrap.host(rank);
    check(line_of(board, peer).load() == (near ? peer + 1 : 0), "a line of the board");
  }
}

// Cards with files, the board, then exchanges of changing size.
int all_together() {
  const auto bootstrap = join();
  const std::uint32_t rank = bootstrap->rank();
  check_board(*bootstrap);
  const heddle::base::Fd file(::memfd_create("card", MFD_CLOEXEC));
  check(::write(file.get(), &rank, sizeof rank) == sizeof rank, "write");
  check(bootstrap->publish({file.get(), ::getpid(), std::vector<std::byte>(rank), nullptr}) == HEDDLE_DONE, "publish");
  for (std::uint32_t peer = 0; peer < bootstrap->size(); ++peer) {
    auto card = bootstrap->fetch_wait(peer);
    check(card.ok(), "fetch");
    const heddle::base::Fd copy = file_of(*bootstrap, peer, *card);
    std::uint32_t read = ~0U;
    check(!copy.valid() || (::pread(copy.get(), &read, sizeof read, 0) == sizeof read && read == peer),
          "a card's file");
    check(card->bytes.size() == peer, "a card's bytes");
  }
  for (std::uint32_t round = 0; round < 20; ++round) {
    Parts all;
    check(exchange(*bootstrap, std::vector<std::byte>(rank * 100, static_cast<std::byte>(round)), &all) == HEDDLE_DONE,
          "exchange");
    for (std::uint32_t peer = 0; peer < bootstrap->size(); ++peer) {
      check(all[peer] == std::vector<std::byte>(peer * 100, static_cast<std::byte>(round)), "an exchange's part");
    }
  }
  bootstrap->leave();
  return 0;
}

// Rank 1 kills itself; the others must hear of it while they wait.
int one_dies() {
  const auto bootstrap = join();
  check(barrier(*bootstrap) == HEDDLE_DONE, "barrier");
  if (bootstrap->rank() == 1) {
    say("dies", now_ns());
    ::raise(SIGKILL);
  }
  check(bootstrap->fetch_wait(1).status() == HEDDLE_ERR_PEER_FAILED, "fetch of the dead");
  await_failure(*bootstrap, 1);
  say("told", now_ns());
  check(barrier(*bootstrap) == HEDDLE_ERR_PEER_FAILED, "barrier with the dead");
  bootstrap->leave();
  return 0;
}

// Rank 0 kills itself while the others wait for it. A rank that is not ended at once gets the
// error, and ends regularly.
int first_dies() {
  const auto bootstrap = join();
  const Status met = barrier(*bootstrap);
  if (bootstrap->rank() == 0) {
    check(met == HEDDLE_DONE, "barrier");
    say("dies", now_ns());
    ::raise(SIGKILL);
  }
  // If rank 0 hosts the broker, its death may lose news that the others have not got yet.
  check(met == HEDDLE_DONE || met == HEDDLE_ERR_PEER_FAILED, "barrier");
  check(barrier(*bootstrap) == HEDDLE_ERR_PEER_FAILED, "barrier with the dead");
  await_failure(*bootstrap, 0);
  bootstrap->leave();
  return 0;
}

// As first-dies, but rank 0 has a child that lives on until rank 1 has ended: it must not keep the
// connections by which the others know rank 0.
int first_dies_with_a_child() {
  const auto bootstrap = join();
  check(bootstrap->publish({-1, ::getpid(), {}, nullptr}) == HEDDLE_DONE, "publish");
  const auto card = bootstrap->fetch_wait(1);
  check(card.ok(), "a card");
  const heddle::base::Fd waits(static_cast<int>(::syscall(SYS_pidfd_open, card->pid, 0)));
  const Status met = barrier(*bootstrap);
  check(met == HEDDLE_DONE || (met == HEDDLE_ERR_PEER_FAILED && bootstrap->rank() != 0), "barrier");
  if (bootstrap->rank() == 0) {
    if (::fork() == 0) {
      pollfd end{waits.get(), POLLIN, 0};
      ::poll(&end, 1, 70'000);
      std::_Exit(0);
    }
    ::raise(SIGKILL);
  }
  check(barrier(*bootstrap) == HEDDLE_ERR_PEER_FAILED, "barrier with the dead");
  await_failure(*bootstrap, 0);
  bootstrap->leave();
  return 0;
}

// Rank 1 writes on the board and kills itself: its line stays, and the others still share it.
int one_dies_on_the_board() {
  const auto bootstrap = join();
  const std::uint32_t rank = bootstrap->rank();
  check_board(*bootstrap);
  check(barrier(*bootstrap) == HEDDLE_DONE, "barrier, before anybody changes its line");
  if (rank == 1) ::raise(SIGKILL);
  await_failure(*bootstrap, 1);
  check(line_of(bootstrap->board(), 1).load() == 2, "the line of the dead");
  line_of(bootstrap->board(), rank).store(100 + rank);
  check(barrier(*bootstrap) == HEDDLE_ERR_PEER_FAILED, "barrier with the dead");
  check(line_of(bootstrap->board(), 2 - rank).load() == 102 - rank, "a line after a death");
  bootstrap->leave();
  return 0;
}

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

std::size_t mapped_boards() {
  std::size_t count = 0;
  for (const auto& range : heddle::base::read_mappings()) {
    if (range.name.starts_with("/memfd:heddle-board")) ++count;
  }
  return count;
}

// A rank has its board mapped as long as its bootstrap, and no descriptor for it.
int board_ends() {
  const std::size_t before = open_descriptors();
  auto bootstrap = join();
  check(open_descriptors() == before, "a descriptor more");
  check(mapped_boards() == (bootstrap->size() > 1 ? 1 : 0), "not one mapping");
  check_board(*bootstrap);
  bootstrap->leave();
  bootstrap.reset();
  check(open_descriptors() == before, "a descriptor is left");
  check(mapped_boards() == 0, "a mapping is left");
  return 0;
}

int no_board() {
  const auto bootstrap = join();
  check(bootstrap->board().empty(), "a board");
  check(barrier(*bootstrap) == HEDDLE_DONE, "barrier");
  bootstrap->leave();
  return 0;
}

// Where this rank is, as one line.
int place() {
  const auto bootstrap = join();
  const auto here = bootstrap->place(bootstrap->rank());
  std::printf("rank %u of %u by %s, here %u of %u, machines %u\n", bootstrap->rank(), bootstrap->size(),
              bootstrap->name(), here.rank, here.size, here.hosts);
  std::fflush(stdout);
  check(barrier(*bootstrap) == HEDDLE_DONE, "barrier");
  bootstrap->leave();
  return 0;
}

int one_goes_without_leaving() {
  auto bootstrap = join();
  check(barrier(*bootstrap) == HEDDLE_DONE, "barrier");
  if (bootstrap->rank() == 1) std::_Exit(0);
  await_failure(*bootstrap, 1);
  bootstrap->leave();
  return 0;
}

// Until the kernel says that process has ended; its launcher does not reap it before the job ends.
void await_end(std::int32_t pid) {
  heddle::base::SystemClock clock;
  heddle::base::Waiter waiter(clock, 60'000'000'000);
  for (;;) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string line;
    if (!std::getline(file, line) || line.find(") Z ") != std::string::npos) return;
    check(waiter.idle(), "the others do not end");
  }
}

// Rank 1 leaves in good order and ends last, with the code given; the others end with 4 because it
// has left.
int one_leaves_first(int code) {
  const auto bootstrap = join();
  check(bootstrap->publish({-1, ::getpid(), {}, nullptr}) == HEDDLE_DONE, "publish");
  std::vector<std::int32_t> others;
  for (const std::uint32_t peer : {0U, 2U}) {
    const auto card = bootstrap->fetch_wait(peer);
    check(card.ok(), "a card");
    others.push_back(card->pid);
  }
  check(barrier(*bootstrap) == HEDDLE_DONE, "barrier");
  if (bootstrap->rank() != 1) {
    await_failure(*bootstrap, 1);
    bootstrap->leave();
    return 4;
  }
  bootstrap->leave();
  for (const std::int32_t pid : others) await_end(pid);
  return code;
}

int one_never_joins() {
  if (std::string_view(std::getenv("HEDDLE_LOCAL_RANK")) == "1") return 0;
  const auto bootstrap = join();
  check(barrier(*bootstrap) == HEDDLE_ERR_PEER_FAILED, "barrier with who never joined");
  await_failure(*bootstrap, 1);
  bootstrap->leave();
  return 0;
}

// Rank 1 ends well without joining, once rank 0 has joined, which dies when it is told. `gate`: a
// named pipe.
int one_never_joins_and_one_dies(const char* gate) {
  if (std::string_view(std::getenv("HEDDLE_LOCAL_RANK")) == "1") {
    check(heddle::base::Fd(::open(gate, O_RDONLY | O_CLOEXEC)).valid(), "open the gate to read");
    return 0;
  }
  const auto bootstrap = join();
  check(heddle::base::Fd(::open(gate, O_WRONLY | O_CLOEXEC)).valid(), "open the gate to write");
  await_failure(*bootstrap, 1);
  return ::raise(SIGKILL);
}

int one_aborts() {
  const auto bootstrap = join();
  check(barrier(*bootstrap) == HEDDLE_DONE, "barrier");
  if (bootstrap->rank() == 1) bootstrap->abort(42, "the warp is torn");
  for (;;) ::pause();
}

// As one-aborts, but the job has done its work.
int one_ends_all() {
  const auto bootstrap = join();
  check(barrier(*bootstrap) == HEDDLE_DONE, "barrier");
  if (bootstrap->rank() == 1) bootstrap->abort(0, "");
  for (;;) ::pause();
}

// Each at about the same time.
int all_end_all() {
  const auto bootstrap = join();
  check(barrier(*bootstrap) == HEDDLE_DONE, "barrier");
  bootstrap->abort(0, "");
  for (;;) ::pause();
}

// Things that a process must not do, and descriptors that its children must not get.
int misuse(const char* self) {
  const std::string fd = std::getenv("HEDDLE_LOCAL_FD");
  const auto bootstrap = join();
  check(heddle::bootstrap::open({}, {}).status() == HEDDLE_ERR_BOOTSTRAP, "a second join");
  std::printf("second: %s\n", heddle::base::last_message());
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl(self, self, "join", nullptr);
    std::_Exit(98);
  }
  int status = 0;
  check(::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 99, "a child that joins");
  check(barrier(*bootstrap) == HEDDLE_DONE, "barrier after misuse");
  bootstrap->leave();
  return 0;
}

// It opens none of the standard streams, which all are open.
int streams() {
  const auto bootstrap = join();
  const heddle::base::Fd file(::memfd_create("own", MFD_CLOEXEC));
  check(file.get() > STDERR_FILENO, "a descriptor is a standard stream");
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    struct stat about{};
    check(::fstat(fd, &about) == 0, "a standard stream is closed");
    check(S_ISCHR(about.st_mode) || S_ISFIFO(about.st_mode), "a standard stream is something else");
  }
  say("streams", 1);
  check(barrier(*bootstrap) == HEDDLE_DONE, "barrier");
  bootstrap->leave();
  return 0;
}

// Runs a program that may not make the call of this number: it fails with EPERM.
int without_call(int number, char** program) {
  std::array<sock_filter, 4> filter{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(number), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog all{filter.size(), filter.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all) != 0) {
    std::fprintf(stderr, "no filter of calls here\n");
    return 97;
  }
  ::execv(program[0], program);
  return 98;
}

int stubborn() {
  ::signal(SIGTERM, SIG_IGN);
  ::signal(SIGINT, SIG_IGN);
  say("pid", ::getpid());
  for (;;) ::pause();
}

// Rank 1 publishes its card only when rank 0 has asked for it many times: a fetch that waits would
// wait for ever. Then several threads of all ranks ask for all cards at once.
int first_contact() {
  const auto bootstrap = join();
  if (bootstrap->rank() == 0) {
    for (int i = 0; i < 1000; ++i)
      check(bootstrap->fetch(1).status() == HEDDLE_AGAIN, "a card before it was published");
  }
  check(barrier(*bootstrap) == HEDDLE_DONE, "barrier");
  const heddle::base::Fd file(::memfd_create("card", MFD_CLOEXEC));
  check(bootstrap->publish({file.get(), ::getpid(), {}, nullptr}) == HEDDLE_DONE, "publish");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (std::uint32_t peer = 0; peer < bootstrap->size(); ++peer) {
        heddle::base::SystemClock clock;
        heddle::base::Waiter waiter(clock, 60'000'000'000);
        auto card = bootstrap->fetch(peer);
        for (; card.status() == HEDDLE_AGAIN; card = bootstrap->fetch(peer)) check(waiter.idle(), "a card never comes");
        check(card.ok(), "fetch");
        static_cast<void>(file_of(*bootstrap, peer, *card));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  check(barrier(*bootstrap) == HEDDLE_DONE, "barrier");
  bootstrap->leave();
  return 0;
}

// Every rank lacks descriptors for a while. That must cost the cards, and nothing else.
int few_descriptors() {
  const auto bootstrap = join();
  const heddle::base::Fd file(::memfd_create("card", MFD_CLOEXEC));
  check(bootstrap->publish({file.get(), ::getpid(), {}, nullptr}) == HEDDLE_DONE, "publish");
  check(barrier(*bootstrap) == HEDDLE_DONE, "barrier");
  rlimit before{};
  check(::getrlimit(RLIMIT_NOFILE, &before) == 0, "getrlimit");
  heddle::base::Fd next(::fcntl(0, F_DUPFD_CLOEXEC, 0));
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(next.get());
  next.reset();
  check(::setrlimit(RLIMIT_NOFILE, &none) == 0, "setrlimit");
  for (std::uint32_t peer = 0; peer < bootstrap->size(); ++peer) {
    check(bootstrap->fetch_wait(peer).status() == HEDDLE_ERR_NO_MEMORY, "a card without room for it");
    check(std::strstr(heddle::base::last_message(), "ulimit -n") != nullptr, "the message");
  }
  check(barrier(*bootstrap) == HEDDLE_DONE, "barrier without descriptors");
  check(::setrlimit(RLIMIT_NOFILE, &before) == 0, "setrlimit");
  for (std::uint32_t peer = 0; peer < bootstrap->size(); ++peer) {
    const auto card = bootstrap->fetch_wait(peer);
    check(card.ok() && heddle::base::Fd(card->fd).valid(), "a card with room for it");
  }
  check(barrier(*bootstrap) == HEDDLE_DONE, "barrier");
  bootstrap->leave();
  return 0;
}

// A child that has inherited the connection, started before the rank joins, tries to join after it.
int sibling(const char* self) {
  std::array<int, 2> gate{};
  check(::pipe(gate.data()) == 0, "pipe");
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(gate[0], STDIN_FILENO);
    ::close(gate[1]);
    ::execl(self, self, "join-when-told", nullptr);
    std::_Exit(98);
  }
  const auto bootstrap = join();
  check(barrier(*bootstrap) == HEDDLE_DONE, "barrier before the sibling");
  check(bootstrap->exchange_start({}) == HEDDLE_DONE, "an exchange under way");
  ::close(gate[0]);
  ::close(gate[1]);
  int status = 0;
  check(::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0, "the sibling");
  Parts none;
  heddle::base::SystemClock clock;
  heddle::base::Waiter waiter(clock, 60'000'000'000);
  while ((status = bootstrap->exchange_test(&none)) == HEDDLE_AGAIN) check(waiter.idle(), "the exchange hangs");
  check(status == HEDDLE_DONE, "the exchange");
  check(bootstrap->publish({-1, ::getpid(), {}, nullptr}) == HEDDLE_DONE, "publish");
  for (std::uint32_t peer = 0; peer < bootstrap->size(); ++peer) check(bootstrap->fetch_wait(peer).ok(), "fetch");
  check(barrier(*bootstrap) == HEDDLE_DONE, "barrier after the sibling");
  bootstrap->leave();
  return 0;
}

int join_when_told() {
  char end = 0;
  check(::read(STDIN_FILENO, &end, 1) == 0, "the gate");
  check(heddle::bootstrap::open({}, {}).status() == HEDDLE_ERR_STATE, "a second process that joins");
  std::printf("refused: %s\n", heddle::base::last_message());
  return 0;
}

// Leaves its process group for that of its launcher, and wants to live on.
int elsewhere() {
  check(::setpgid(0, ::getpgid(::getppid())) == 0, "setpgid");
  ::prctl(PR_SET_PDEATHSIG, 0);
  return stubborn();
}

// The process that joins has a session of its own, and is stopped: nothing but SIGKILL to it by
// number ends it.
int other_session() {
  const pid_t child = ::fork();
  if (child == 0) {
    ::setsid();
    ::signal(SIGTERM, SIG_IGN);
    const auto bootstrap = join();
    check(bootstrap->exchange_start({}) == HEDDLE_DONE, "exchange");
    say("pid", ::getpid());
    for (;;) ::raise(SIGSTOP);
  }
  ::signal(SIGTERM, SIG_IGN);
  for (;;) ::pause();
}

// Joins and stays until it is ended; a child of its own does too.
int stay() {
  const auto bootstrap = join();
  say("pid", ::getpid());
  if (::fork() == 0) {
    say("pid", ::getpid());
    for (;;) ::pause();
  }
  for (;;) ::pause();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argc > 1 ? argv[1] : "";
  if (mode == "all-together") return all_together();
  if (mode == "one-dies") return one_dies();
  if (mode == "first-dies") return first_dies();
  if (mode == "first-dies-with-a-child") return first_dies_with_a_child();
  if (mode == "place") return place();
  if (mode == "one-dies-on-the-board") return one_dies_on_the_board();
  if (mode == "board-ends") return board_ends();
  if (mode == "no-board") return no_board();
  if (mode == "one-goes-without-leaving") return one_goes_without_leaving();
  if (mode == "one-leaves-first") return one_leaves_first(argc > 2 ? std::atoi(argv[2]) : 0);
  if (mode == "one-never-joins") return one_never_joins();
  if (mode == "one-never-joins-and-one-dies" && argc > 2) return one_never_joins_and_one_dies(argv[2]);
  if (mode == "one-aborts") return one_aborts();
  if (mode == "one-ends-all") return one_ends_all();
  if (mode == "all-end-all") return all_end_all();
  if (mode == "misuse") return misuse(argv[0]);
  if (mode == "stay") return stay();
  if (mode == "streams") return streams();
  if (mode == "without-call" && argc > 3) return without_call(std::atoi(argv[2]), argv + 3);
  if (mode == "stubborn") return stubborn();
  if (mode == "first-contact") return first_contact();
  if (mode == "few-descriptors") return few_descriptors();
  if (mode == "sibling") return sibling(argv[0]);
  if (mode == "join-when-told") return join_when_told();
  if (mode == "elsewhere") return elsewhere();
  if (mode == "other-session") return other_session();
  if (mode == "join-and-die") {
    const auto bootstrap = join();
    std::_Exit(0);
  }
  if (mode == "join") {
    join()->leave();
    return 0;
  }
  std::fprintf(stderr, "unknown mode\n");
  return 98;
}
