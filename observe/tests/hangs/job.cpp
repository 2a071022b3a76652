#include <sched.h>

#include <algorithm>
#include <cstring>

#include "hang_rank.hpp"

namespace hangs {

namespace {

Header header_of(const heddle_am_arrival* message) {
  Header header{};
  if (message->header_bytes != sizeof header) hang_fail("a header", "of another length");
  std::memcpy(&header, message->header, sizeof header);
  if (header.step >= kMostSteps) hang_fail("a header", "of no step");
  return header;
}

void count(const heddle_am_arrival* message, void* arrivals) {
  ++(*static_cast<Arrivals*>(arrivals))[header_of(message).step];
}

// Asks its own program first whether it may go on.
void count_slowly(const heddle_am_arrival* message, void* arg) {
  auto& job = *static_cast<Job*>(arg);
  while (!job.may_answer) usleep(1000);
  count(message, message->handler == kSlowTask ? &job.tasks : &job.questions);
}

void open_workers(Job& job) {
  heddle_worker_options options{};
  options.size = sizeof options;
  options.sharing = job.script->sharing;
  job.workers.resize(job.script->workers);
  for (auto& worker : job.workers) must(heddle_worker_open(job.context, &options, &worker), "open a worker");
}

void register_handlers(Job& job) {
  must(heddle_am_register(job.context, kQuestion, count, &job.questions), "register");
  must(heddle_am_register(job.context, kAnswer, count, &job.answers), "register");
  must(heddle_am_register(job.context, kTask, count, &job.tasks), "register");
  must(heddle_am_register(job.context, kSlowQuestion, count_slowly, &job), "register");
  must(heddle_am_register(job.context, kSlowTask, count_slowly, &job), "register");
}

void open_memory(Job& job) {
  const std::size_t bytes = std::size_t{kMostSteps} * kSlotBytes;
  must(heddle_region_alloc(job.context, bytes, &job.heap), "allocate");
  job.own_memory.resize(bytes);
  must(heddle_region_register(job.context, job.own_memory.data(), bytes, &job.own), "register memory");
  std::memset(slot_of(job, 0), static_cast<int>('a' + job.rank), kPatternBytes);
  std::memset(job.own_memory.data(), static_cast<int>('a' + job.rank), kPatternBytes);
  job.heaps.resize(job.ranks);
  job.owns.resize(job.ranks);
  must(heddle_region_exchange(job.context, job.heap, job.heaps.data()), "exchange");
  must(heddle_region_exchange(job.context, job.own, job.owns.data()), "exchange");
}

}  // namespace

heddle_status must(heddle_status status, const char* what) {
  if (status < 0) {
    std::fprintf(stderr, "wrong: %s: %s: %s\n", what, heddle_status_name(status), heddle_last_error());
    _exit(99);
  }
  return status;
}

std::unique_ptr<Job> open_job(const Script& script, heddle_context context) {
  auto job = std::make_unique<Job>();
  job->script = &script;
  job->context = context;
  must(heddle_context_rank(context, &job->rank), "rank");
  must(heddle_context_size(context, &job->ranks), "size");
  register_handlers(*job);
  open_workers(*job);
  open_memory(*job);
  make_teams(*job);
  must(heddle_context_barrier(context, job->workers[0], HEDDLE_FOREVER), "barrier");
  return job;
}

void make_teams(Job& job) {
  auto& [world, again, half] = job.teams;
  must(heddle_team_world(job.context, &world), "team");
  must(heddle_team_world(job.context, &again), "team");
  must(heddle_team_split(world, colour_of(*job.script, job.rank), job.rank, &half), "split");
}

std::byte* slot_of(Job& job, std::uint32_t slot) {
  void* address = nullptr;
  must(heddle_region_address(job.heap, &address, nullptr), "address");
  return static_cast<std::byte*>(address) + std::size_t{slot} * kSlotBytes;
}

heddle_remote at(heddle_remote_region region, std::uint32_t slot, std::uint32_t offset) {
  return {region, std::uint64_t{slot} * kSlotBytes + offset};
}

// Tagged and active messages in the forms that programs use.

namespace {

std::byte byte_of(std::uint64_t tag, std::uint32_t rank) {
  return static_cast<std::byte>(tag * 7 + rank * 13 + 1);
}

void turn(heddle_worker worker, Form form) {
  if (form == Form::tried) {
    const int events = heddle_worker_progress(worker);
    if (events < 0) must(static_cast<heddle_status>(events), "progress");
    if (events == 0) sched_yield();
  } else {
    must(heddle_worker_wait(worker, HEDDLE_FOREVER), "wait");
  }
}

heddle_counter counter_of(Job& job) {
  heddle_counter_options options{};
  options.size = sizeof options;
  options.counts_done = 1;
  heddle_counter counter{};
  must(heddle_counter_create(job.context, &options, &counter), "counter");
  return counter;
}

void send_counted(Job& job, const Letter& letter, const void* data, heddle_worker worker) {
  heddle_completion completion{};
  completion.counter = counter_of(job);
  completion.when = letter.matched ? HEDDLE_WHEN_MATCHED : HEDDLE_WHEN_REMOTE;
  must(heddle_send(worker, letter.peer, letter.tag, data, letter.bytes, &completion), "send");
  must(heddle_counter_wait(worker, completion.counter, 1, HEDDLE_FOREVER), "the send's end");
  must(heddle_counter_free(completion.counter), "counter");
}

void note(void* arg, heddle_status status) {
  must(status, "the send's end");
  *static_cast<std::atomic<bool>*>(arg) = true;
}

void send_called(const Letter& letter, const void* data, heddle_worker worker) {
  std::atomic<bool> finished{false};
  heddle_completion completion{};
  completion.fn = note;
  completion.arg = &finished;
  completion.when = letter.matched ? HEDDLE_WHEN_MATCHED : HEDDLE_WHEN_REMOTE;
  if (must(heddle_send(worker, letter.peer, letter.tag, data, letter.bytes, &completion), "send") == HEDDLE_DONE)
    return;
  while (!finished) turn(worker, Form::called);
}

void send_tried(const Letter& letter, const void* data, heddle_worker worker) {
  while (must(heddle_try_send(worker, letter.peer, letter.tag, data, letter.bytes, nullptr), "send") == HEDDLE_AGAIN) {
    turn(worker, Form::tried);
  }
  while (must(heddle_try_flush(worker, letter.peer.rank), "flush") == HEDDLE_AGAIN) turn(worker, Form::tried);
}

std::vector<std::byte> text_of(Job& job, const Letter& letter) {
  return std::vector<std::byte>(letter.bytes + 1, byte_of(letter.tag, job.rank));
}

}  // namespace

void send(Job& job, const Letter& letter) {
  const auto data = text_of(job, letter);
  const heddle_worker worker = job.workers[letter.worker];
  if (letter.form == Form::called) {
    send_called(letter, data.data(), worker);
  } else if (letter.form == Form::counted || letter.matched) {
    send_counted(job, letter, data.data(), worker);
  } else if (letter.form == Form::tried) {
    send_tried(letter, data.data(), worker);
  } else {
    must(heddle_send(worker, letter.peer, letter.tag, data.data(), letter.bytes, nullptr), "send");
    must(heddle_flush(worker, letter.peer.rank), "flush");
  }
}

Receiving::Receiving(Job& job, const Letter& letter) : job_(job), letter_(letter), data_(letter.bytes + 1) {
  const heddle_wanted wanted{letter.peer, letter.tag, UINT64_MAX};
  const heddle_worker worker = job.workers[letter.worker];
  heddle_completion completion{};
  if (letter.form == Form::counted) completion.counter = counter_ = counter_of(job);
  const auto* told = letter.form == Form::counted ? &completion : nullptr;
  if (letter.form == Form::plain || letter.form == Form::counted) {
    must(heddle_recv(worker, &wanted, data_.data(), letter.bytes, &receive_, told), "receive");
    return;
  }
  while (must(heddle_try_recv(worker, &wanted, data_.data(), letter.bytes, &receive_, told), "receive") ==
         HEDDLE_AGAIN) {
    turn(worker, Form::tried);
  }
}

Receiving::~Receiving() {
  if (counter_.id != 0) must(heddle_counter_free(counter_), "counter");
}

void Receiving::wait() {
  const heddle_worker worker = job_.workers[letter_.worker];
  if (letter_.form == Form::plain) {
    must(heddle_recv_wait(worker, &receive_, HEDDLE_FOREVER), "receive");
  } else if (letter_.form == Form::counted) {
    must(heddle_counter_wait(worker, counter_, 1, HEDDLE_FOREVER), "receive");
  }
  wait_on(worker);
}

void Receiving::wait_on(heddle_worker worker) {
  while (std::atomic_ref(receive_.status).load() == HEDDLE_POSTED) turn(worker, letter_.form);
  must(receive_.status, "receive");
  if (receive_.bytes != letter_.bytes) hang_fail("a message", "of another length");
  for (std::uint32_t i = 0; i < letter_.bytes; ++i) {
    if (data_[i] != byte_of(receive_.tag, receive_.source.rank)) hang_fail("a message", "with other contents");
  }
}

void receive(Job& job, const Letter& letter) {
  Receiving(job, letter).wait();
}

void send_and_receive(Job& job, const Letter& out, const Letter& in) {
  Receiving receiving(job, in);
  send(job, out);
  receiving.wait();
}

void message(Job& job, std::uint32_t worker, heddle_peer target, std::uint32_t handler, std::uint32_t bytes,
             Form form) {
  const Header header{job.step, job.rank};
  const std::vector<std::byte> payload(bytes + 1);
  const heddle_am_message message{handler, sizeof header, &header, payload.data(), bytes};
  if (form != Form::tried) {
    must(heddle_am(job.workers[worker], target, &message, nullptr), "an active message");
  } else {
    while (must(heddle_try_am(job.workers[worker], target, &message, nullptr), "an active message") == HEDDLE_AGAIN) {
      turn(job.workers[worker], form);
    }
  }
  // A long one is fetched from this memory.
  quiet(job.workers[worker], form);
}

void await(Job& job, const Arrivals& arrivals, std::uint32_t count, heddle_worker worker, Form form) {
  while (arrivals[job.step] < count) turn(worker, form);
}

void run_tasks_until(Job& job, std::uint32_t count, heddle_worker worker, Form form) {
  const std::int64_t patience = form == Form::tried ? 1'000'000 : HEDDLE_FOREVER;
  while (job.tasks[job.step] < count) {
    const int ran = heddle_run_tasks(worker, 16, patience);
    if (ran < 0) must(static_cast<heddle_status>(ran), "tasks");
  }
}

void quiet(heddle_worker worker, Form form) {
  if (form != Form::tried) {
    must(heddle_quiet(worker), "quiet");
    return;
  }
  while (must(heddle_try_quiet(worker), "quiet") == HEDDLE_AGAIN) turn(worker, form);
}

// The correct steps, and the steps after the fault.

namespace {

std::uint32_t after(const Job& job, std::uint32_t distance) {
  return (job.rank + distance) % job.ranks;
}

std::uint32_t before(const Job& job, std::uint32_t distance) {
  return (job.rank + job.ranks - distance) % job.ranks;
}

// Worker 0 of an owner serves its registered memory: it must not wait on another worker meanwhile.
heddle_worker worker_of(Job& job, const Step& step) {
  return job.workers[step.registered ? 0 : step.worker];
}

heddle_remote_region memory_of(Job& job, const Step& step, std::uint32_t rank) {
  return step.registered ? job.owns[rank] : job.heaps[rank];
}

std::byte* my_slot(Job& job, const Step& step) {
  return step.registered ? job.own_memory.data() + std::size_t{job.step} * kSlotBytes : slot_of(job, job.step);
}

void play_put(Job& job, const Step& step) {
  const std::uint32_t bytes = step.bytes % 500 + 1;
  const std::vector<std::byte> data(bytes, static_cast<std::byte>('A' + job.rank));
  const std::uint32_t to = after(job, step.distance);
  const heddle_worker worker = worker_of(job, step);
  must(heddle_put(worker, data.data(), bytes, at(memory_of(job, step, to), job.step, 0), nullptr), "put");
  must(heddle_flush(worker, to), "flush");
  context_barrier(job, true);
  const auto expected = static_cast<std::byte>('A' + before(job, step.distance));
  if (my_slot(job, step)[bytes - 1] != expected) hang_fail("a put", "did not arrive");
}

void play_get(Job& job, const Step& step) {
  std::vector<std::byte> data(kPatternBytes);
  const std::uint32_t from = after(job, step.distance);
  const heddle_worker worker = worker_of(job, step);
  const heddle_remote source = at(memory_of(job, step, from), 0, 0);
  if (step.form == Form::plain) {
    must(heddle_get_wait(worker, data.data(), kPatternBytes, source), "get");
  } else {
    must(heddle_get(worker, data.data(), kPatternBytes, source, nullptr), "get");
    quiet(worker, step.form);
  }
  if (data[kPatternBytes - 1] != static_cast<std::byte>('a' + from)) hang_fail("a get", "got something else");
  context_barrier(job, true);
}

void play_atomic(Job& job, const Step& step) {
  const heddle_worker worker = worker_of(job, step);
  const heddle_remote word = at(memory_of(job, step, step.from), job.step, kCounterAt);
  if (step.form == Form::plain) {
    std::uint64_t old = 0;
    const heddle_fetch fetch{1, 0, &old};
    must(heddle_fetch_atomic_wait(worker, HEDDLE_ADD64, word, &fetch), "atomic");
  } else {
    must(heddle_atomic(worker, HEDDLE_ADD64, word, 1, nullptr), "atomic");
    quiet(worker, step.form);
  }
  context_barrier(job, true);
  std::uint64_t sum = 0;
  std::memcpy(&sum, my_slot(job, step) + kCounterAt, sizeof sum);
  if (job.rank == step.from && sum != job.ranks) hang_fail("an atomic", "was not done");
}

void play_signal(Job& job, const Step& step) {
  const std::vector<std::byte> data(step.bytes % 500 + 1, static_cast<std::byte>(job.rank));
  const std::uint32_t to = after(job, step.distance);
  const heddle_worker worker = job.workers[step.worker];
  const heddle_signal signal{at(job.heaps[to], job.step, kSignalAt), 1, HEDDLE_SIGNAL_ADD};
  must(heddle_put_signal(worker, data.data(), data.size(), at(job.heaps[to], job.step, 0), &signal, nullptr), "signal");
  const auto* word = reinterpret_cast<const std::uint64_t*>(slot_of(job, job.step) + kSignalAt);
  must(heddle_signal_wait(worker, word, HEDDLE_GE, 1, HEDDLE_FOREVER), "signal");
  quiet(worker, step.form);
}

void play_ask(Job& job, const Step& step) {
  const heddle_worker worker = job.workers[step.worker];
  message(job, step.worker, {after(job, step.distance), step.worker}, kQuestion, step.bytes, step.form);
  await(job, job.questions, 1, worker, step.form);
  message(job, step.worker, {before(job, step.distance), step.worker}, kAnswer, 0, step.form);
  await(job, job.answers, 1, worker, step.form);
}

void play_task(Job& job, const Step& step) {
  message(job, step.worker, {after(job, step.distance), step.worker}, kTask, step.bytes % 2000, step.form);
  run_tasks_until(job, 1, job.workers[step.worker], step.form);
}

void play_ring(Job& job, const Step& step) {
  const Letter out{step.worker, {after(job, step.distance), step.worker}, step.tag, step.bytes, step.form};
  const Letter in{step.worker, {before(job, step.distance), step.worker}, step.tag, step.bytes, step.form};
  send_and_receive(job, out, in);
}

void play_pair(Job& job, const Step& step) {
  if (job.rank == step.from) send(job, {step.worker, {step.to, step.worker}, step.tag, step.bytes, step.form});
  if (job.rank == step.to) receive(job, {step.worker, {step.from, step.worker}, step.tag, step.bytes, step.form});
}

}  // namespace

void context_barrier(Job& job, bool with_worker) {
  must(heddle_context_barrier(job.context, with_worker ? job.workers[0] : heddle_worker{}, HEDDLE_FOREVER), "barrier");
}

void play_step(Job& job, const Step& step) {
  switch (step.kind) {
    case Kind::put:
      return play_put(job, step);
    case Kind::get:
      return play_get(job, step);
    case Kind::atomic:
      return play_atomic(job, step);
    case Kind::signal:
      return play_signal(job, step);
    case Kind::ask:
      return play_ask(job, step);
    case Kind::task:
      return play_task(job, step);
    case Kind::ring:
      return play_ring(job, step);
    case Kind::pair:
      return play_pair(job, step);
    case Kind::barrier:
      return context_barrier(job, true);
    case Kind::collective:
      return collective(job, step.call);
  }
}

void play_relay(Job& job) {
  const auto& chain = job.script->chain;
  const Step& relay = job.script->relay;
  for (std::size_t i = 0; i < chain.size(); ++i) {
    if (chain[i] != job.rank) continue;
    Letter letter{relay.worker, {}, relay.tag, relay.bytes, relay.form};
    if (i > 0) {
      letter.peer = {chain[i - 1], relay.worker};
      receive(job, letter);
    }
    if (i + 1 < chain.size()) {
      letter.peer = {chain[i + 1], relay.worker};
      send(job, letter);
    }
  }
}

void play_meeting(Job& job) {
  if (job.script->meet == Meet::team) return collective(job, job.script->meeting);
  context_barrier(job, job.script->meet == Meet::context);
}

// Collective operations in their three forms.

namespace {

constexpr heddle_reduction kSum{HEDDLE_UINT64, HEDDLE_SUM, nullptr, nullptr, 0};

struct Buffers {
  std::vector<std::uint64_t> send;
  std::vector<std::uint64_t> receive;
};

heddle_status call_now(heddle_team team, const Call& call, Buffers& b) {
  const std::size_t bytes = call.count * sizeof(std::uint64_t);
  switch (call.op) {
    case Op::barrier:
      return heddle_barrier(team);
    case Op::allreduce:
      return heddle_allreduce(team, b.send.data(), b.receive.data(), call.count, &kSum);
    case Op::allgather:
      return heddle_allgather(team, b.send.data(), b.receive.data(), bytes);
    case Op::alltoall:
      return heddle_alltoall(team, b.send.data(), b.receive.data(), bytes);
    case Op::broadcast:
      return heddle_broadcast(team, b.send.data(), bytes, call.root);
    case Op::reduce:
      return heddle_reduce(team, b.send.data(), b.receive.data(), call.count, &kSum, call.root);
  }
  return HEDDLE_ERR_ARGUMENT;
}

heddle_status begin(heddle_team team, const Call& call, Buffers& b, heddle_collective* c) {
  const std::size_t bytes = call.count * sizeof(std::uint64_t);
  switch (call.op) {
    case Op::barrier:
      return heddle_barrier_start(team, c);
    case Op::allreduce:
      return heddle_allreduce_start(team, b.send.data(), b.receive.data(), call.count, &kSum, c);
    case Op::allgather:
      return heddle_allgather_start(team, b.send.data(), b.receive.data(), bytes, c);
    case Op::alltoall:
      return heddle_alltoall_start(team, b.send.data(), b.receive.data(), bytes, c);
    case Op::broadcast:
      return heddle_broadcast_start(team, b.send.data(), bytes, call.root, c);
    case Op::reduce:
      return heddle_reduce_start(team, b.send.data(), b.receive.data(), call.count, &kSum, call.root, c);
  }
  return HEDDLE_ERR_ARGUMENT;
}

heddle_status make(heddle_team team, const Call& call, Buffers& b, heddle_collective* c) {
  const std::size_t bytes = call.count * sizeof(std::uint64_t);
  switch (call.op) {
    case Op::barrier:
      return heddle_barrier_init(team, nullptr, c);
    case Op::allreduce:
      return heddle_allreduce_init(team, b.send.data(), b.receive.data(), call.count, &kSum, nullptr, c);
    case Op::allgather:
      return heddle_allgather_init(team, b.send.data(), b.receive.data(), bytes, nullptr, c);
    case Op::alltoall:
      return heddle_alltoall_init(team, b.send.data(), b.receive.data(), bytes, nullptr, c);
    case Op::broadcast:
      return heddle_broadcast_init(team, b.send.data(), bytes, call.root, nullptr, c);
    case Op::reduce:
      return heddle_reduce_init(team, b.send.data(), b.receive.data(), call.count, &kSum, call.root, nullptr, c);
  }
  return HEDDLE_ERR_ARGUMENT;
}

// The root's data go round as they are; for the others the sum is checked.
void check(Job& job, const Call& call, const Buffers& buffers) {
  std::uint64_t sum = 0;
  const auto members = members_of(*job.script, call.group, job.rank);
  for (const std::uint32_t member : members) sum += member + 1;
  if (call.op == Op::allreduce && buffers.receive[call.count - 1] != sum) hang_fail("allreduce", "has another sum");
  if (call.op == Op::broadcast && buffers.send[call.count - 1] != members[call.root] + 1) {
    hang_fail("broadcast", "has other data");
  }
}

}  // namespace

void collective(Job& job, const Call& call) {
  const heddle_team team = job.teams[static_cast<std::size_t>(call.group)];
  const std::size_t most = std::size_t{call.count} * job.ranks;
  Buffers buffers{std::vector<std::uint64_t>(most, job.rank + 1), std::vector<std::uint64_t>(most)};
  heddle_collective handle{};
  switch (call.way) {
    case Way::blocking:
      must(call_now(team, call, buffers), name_of(call.op));
      break;
    case Way::nonblocking:
      must(begin(team, call, buffers, &handle), name_of(call.op));
      must(heddle_collective_wait(handle, HEDDLE_FOREVER), name_of(call.op));
      break;
    case Way::persistent:
      must(make(team, call, buffers, &handle), name_of(call.op));
      must(heddle_collective_start(handle), name_of(call.op));
      must(heddle_collective_wait(handle, HEDDLE_FOREVER), name_of(call.op));
      // No member starts it again, but its buffers are in use until all have completed.
      must(heddle_barrier(team), "barrier");
      must(heddle_collective_free(handle), name_of(call.op));
      break;
  }
  check(job, call, buffers);
}

}  // namespace hangs
