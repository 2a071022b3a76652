#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "team.hpp"

namespace heddle::python {

namespace {

using Made = std::optional<std::shared_ptr<Team>>;

// Null: this rank is no member.
template <class Make>
Made made(const std::shared_ptr<Context>& context, Make&& make) {
  const Use use(context->users(), kContextLeft);
  heddle_team team{};
  checked_released([&] { return make(&team); });
  if (team.id == 0) return std::nullopt;
  return std::make_shared<Team>(context, team);
}

Made world(const std::shared_ptr<Context>& context) {
  return made(context, [&](heddle_team* team) { return heddle_team_world(context->handle(), team); });
}

Made split(const Team& parent, std::optional<std::uint32_t> colour, std::int64_t key) {
  return made(parent.context(), [&](heddle_team* team) {
    return heddle_team_split(parent.handle(), colour.value_or(HEDDLE_NO_COLOUR), key, team);
  });
}

Made subset(const Team& parent, const std::vector<std::uint32_t>& ranks) {
  const auto count = static_cast<std::uint32_t>(ranks.size());
  return made(parent.context(),
              [&](heddle_team* team) { return heddle_team_subset(parent.handle(), ranks.data(), count, team); });
}

std::optional<std::uint32_t> translate(const Team& from, std::uint32_t rank, const Team& to) {
  const Use use(from.context()->users(), kContextLeft);
  std::uint32_t found = HEDDLE_NO_RANK;
  check(heddle_team_translate(from.handle(), rank, to.handle(), &found));
  if (found == HEDDLE_NO_RANK) return std::nullopt;
  return found;
}

void free_team(const Team& team) {
  const Use use(team.context()->users(), kContextLeft);
  check(heddle_team_free(team.handle()));
}

}  // namespace

// Programs see it as heddle.teams.Team.
void bind_teams(nb::module_& module) {
  nb::class_<Team> team(module, "TeamHandle", "Of heddle.Team.");
  team.def_prop_ro("rank", &Team::rank)
      .def_prop_ro("size", &Team::size)
      .def("split", &split, nb::arg("colour").none(), nb::arg("key"))
      .def("subset", &subset, nb::arg("ranks"))
      .def("translate", &translate, nb::arg("rank"), nb::arg("to"))
      .def("free", &free_team);
  module.def("world", &world, nb::arg("context"), "Of heddle.Team.");
  bind_collectives(module, team);
}

// Collective operations: how a call describes its buffers, and the three forms. heddle/teams.py has
// the operations as programs see them.

namespace {

// ---- elements -----------------------------------------------------------------------------------

heddle_type type_of(const Element& element) {
  constexpr std::array<std::pair<std::pair<char, std::size_t>, heddle_type>, 12> kTypes = {{
      {{'i', 1}, HEDDLE_INT8},
      {{'i', 2}, HEDDLE_INT16},
      {{'i', 4}, HEDDLE_INT32},
      {{'i', 8}, HEDDLE_INT64},
      {{'u', 1}, HEDDLE_UINT8},
      {{'u', 2}, HEDDLE_UINT16},
      {{'u', 4}, HEDDLE_UINT32},
      {{'u', 8}, HEDDLE_UINT64},
      {{'f', 4}, HEDDLE_FLOAT},
      {{'f', 8}, HEDDLE_DOUBLE},
      {{'c', 8}, HEDDLE_COMPLEX_FLOAT},
      {{'c', 16}, HEDDLE_COMPLEX_DOUBLE},
  }};
  if (element.kind == 'b') return HEDDLE_UINT8;
  for (const auto& [known, type] : kTypes) {
    if (known.first == element.kind && known.second == element.bytes) return type;
  }
  raise(PyExc_TypeError,
        "these elements cannot be combined: integers of 8 to 64 bits, booleans, float32, float64, complex64 and "
        "complex128 "
        "in the machine's byte order can");
}

heddle_operator operator_of(const std::string& name) {
  constexpr std::array<std::pair<const char*, heddle_operator>, 10> kNames = {{{"sum", HEDDLE_SUM},
                                                                               {"product", HEDDLE_PRODUCT},
                                                                               {"min", HEDDLE_MIN},
                                                                               {"max", HEDDLE_MAX},
                                                                               {"band", HEDDLE_BAND},
                                                                               {"bor", HEDDLE_BOR},
                                                                               {"bxor", HEDDLE_BXOR},
                                                                               {"land", HEDDLE_LAND},
                                                                               {"lor", HEDDLE_LOR},
                                                                               {"lxor", HEDDLE_LXOR}}};
  for (const auto& [known, op] : kNames) {
    if (name == known) return op;
  }
  raise(HEDDLE_ERR_ARGUMENT,
        "the operator '" + name + "' is none of sum, product, min, max, band, bor, bxor, land, lor, lxor");
}

// ---- a call and its forms -----------------------------------------------------------------------

using Counts = std::optional<std::vector<std::size_t>>;
using Ranks = std::vector<std::uint32_t>;

// The buffers of a call, and their description. The buffers stay until the operation has completed;
// the rest is read during the call.
struct Call {
  Memory send;
  Memory receive;
  std::size_t bytes = 0;  // of one block
  std::size_t count = 0;  // of elements, where they are combined
  heddle_reduction reduction{};
  std::uint32_t root = 0;
  heddle_blocks send_blocks{};
  heddle_blocks receive_blocks{};
  heddle_neighbors neighbors{};
};

enum class Form : std::uint8_t { blocking, nonblocking, persistent };

struct How {
  Form form;
  const heddle_collective_options* options;
  heddle_collective* collective;
};

// One function of the C API in its three forms.
template <auto blocking, auto start, auto init, class... Arguments>
heddle_status in_form(const How& how, Arguments... arguments) {
  switch (how.form) {
    case Form::blocking:
      return blocking(arguments...);
    case Form::nonblocking:
      return start(arguments..., how.collective);
    case Form::persistent:
      return init(arguments..., how.options, how.collective);
  }
  return HEDDLE_ERR_ARGUMENT;
}

using Issue = heddle_status (*)(heddle_team team, const Call& call, const How& how);

const void* sent(const Call& call) {
  return call.send.data();
}

heddle_status barrier(heddle_team team, const Call&, const How& how) {
  return in_form<heddle_barrier, heddle_barrier_start, heddle_barrier_init>(how, team);
}
heddle_status broadcast(heddle_team team, const Call& call, const How& how) {
  return in_form<heddle_broadcast, heddle_broadcast_start, heddle_broadcast_init>(how, team, call.receive.data(),
                                                                                  call.bytes, call.root);
}
heddle_status reduce(heddle_team team, const Call& call, const How& how) {
  return in_form<heddle_reduce, heddle_reduce_start, heddle_reduce_init>(how, team, sent(call), call.receive.data(),
                                                                         call.count, &call.reduction, call.root);
}
template <auto blocking, auto start, auto init>
heddle_status combining(heddle_team team, const Call& call, const How& how) {
  return in_form<blocking, start, init>(how, team, sent(call), call.receive.data(), call.count, &call.reduction);
}
template <auto blocking, auto start, auto init>
heddle_status moving(heddle_team team, const Call& call, const How& how) {
  return in_form<blocking, start, init>(how, team, sent(call), call.receive.data(), call.bytes);
}
template <auto blocking, auto start, auto init>
heddle_status rooted(heddle_team team, const Call& call, const How& how) {
  return in_form<blocking, start, init>(how, team, sent(call), call.receive.data(), call.bytes, call.root);
}
heddle_status allgatherv(heddle_team team, const Call& call, const How& how) {
  return in_form<heddle_allgatherv, heddle_allgatherv_start, heddle_allgatherv_init>(
      how, team, sent(call), call.receive.data(), &call.receive_blocks);
}
heddle_status alltoallv(heddle_team team, const Call& call, const How& how) {
  return in_form<heddle_alltoallv, heddle_alltoallv_start, heddle_alltoallv_init>(
      how, team, sent(call), &call.send_blocks, call.receive.data(), &call.receive_blocks);
}
heddle_status gatherv(heddle_team team, const Call& call, const How& how) {
  return in_form<heddle_gatherv, heddle_gatherv_start, heddle_gatherv_init>(
      how, team, sent(call), call.send.bytes(), call.receive.data(), &call.receive_blocks, call.root);
}
heddle_status scatterv(heddle_team team, const Call& call, const How& how) {
  return in_form<heddle_scatterv, heddle_scatterv_start, heddle_scatterv_init>(
      how, team, sent(call), &call.send_blocks, call.receive.data(), call.receive.bytes(), call.root);
}
heddle_status neighbor_alltoallv(heddle_team team, const Call& call, const How& how) {
  return in_form<heddle_neighbor_alltoallv, heddle_neighbor_alltoallv_start, heddle_neighbor_alltoallv_init>(
      how, team, &call.neighbors, sent(call), &call.send_blocks, call.receive.data(), &call.receive_blocks);
}
template <auto blocking, auto start, auto init>
heddle_status with_neighbors(heddle_team team, const Call& call, const How& how) {
  return in_form<blocking, start, init>(how, team, &call.neighbors, sent(call), call.receive.data(), call.bytes);
}

// ---- the table ----------------------------------------------------------------------------------

// How many blocks a buffer has.
enum class Blocks : std::uint8_t {
  none,     // there is no such buffer
  one,      // the buffer is one block
  members,  // one for each member
  listed,   // as counted by the call
  sources,  // one for each neighbour
  targets,
};
// The members that need the buffer.
enum class Needed : std::uint8_t { everywhere, at_root };

struct Side {
  Blocks blocks;
  Needed needed = Needed::everywhere;
};

struct Kind {
  const char* name;
  Issue issue;
  Side send;
  Side receive;
  bool combines = false;
  // the C function takes the length of send from the receiver's list
  bool own_block_is_listed = false;
  // listed blocks are one for each neighbour, not for each member
  bool among_neighbors = false;
};

constexpr std::array<Kind, 17> kKinds = {{
    {"barrier", barrier, {Blocks::none}, {Blocks::none}},
    {"broadcast", broadcast, {Blocks::none}, {Blocks::one}},
    {"reduce", reduce, {Blocks::one}, {Blocks::one, Needed::at_root}, true},
    {"allreduce",
     combining<heddle_allreduce, heddle_allreduce_start, heddle_allreduce_init>,
     {Blocks::one},
     {Blocks::one},
     true},
    {"gather",
     rooted<heddle_gather, heddle_gather_start, heddle_gather_init>,
     {Blocks::one},
     {Blocks::members, Needed::at_root}},
    {"allgather",
     moving<heddle_allgather, heddle_allgather_start, heddle_allgather_init>,
     {Blocks::one},
     {Blocks::members}},
    {"scatter",
     rooted<heddle_scatter, heddle_scatter_start, heddle_scatter_init>,
     {Blocks::members, Needed::at_root},
     {Blocks::one}},
    {"alltoall",
     moving<heddle_alltoall, heddle_alltoall_start, heddle_alltoall_init>,
     {Blocks::members},
     {Blocks::members}},
    {"reduce_scatter",
     combining<heddle_reduce_scatter, heddle_reduce_scatter_start, heddle_reduce_scatter_init>,
     {Blocks::members},
     {Blocks::one},
     true},
    {"scan", combining<heddle_scan, heddle_scan_start, heddle_scan_init>, {Blocks::one}, {Blocks::one}, true},
    {"allgatherv", allgatherv, {Blocks::one}, {Blocks::listed}, false, true},
    {"alltoallv", alltoallv, {Blocks::listed}, {Blocks::listed}},
    {"gatherv", gatherv, {Blocks::one}, {Blocks::listed, Needed::at_root}},
    {"scatterv", scatterv, {Blocks::listed, Needed::at_root}, {Blocks::one}},
    {"neighbor_alltoall",
     with_neighbors<heddle_neighbor_alltoall, heddle_neighbor_alltoall_start, heddle_neighbor_alltoall_init>,
     {Blocks::targets},
     {Blocks::sources}},
    {"neighbor_allgather",
     with_neighbors<heddle_neighbor_allgather, heddle_neighbor_allgather_start, heddle_neighbor_allgather_init>,
     {Blocks::one},
     {Blocks::sources}},
    {"neighbor_alltoallv", neighbor_alltoallv, {Blocks::listed}, {Blocks::listed}, false, false, true},
}};

const Kind& kind_of(const std::string& name) {
  for (const Kind& one : kKinds) {
    if (name == one.name) return one;
  }
  raise(HEDDLE_ERR_ARGUMENT, "no such collective operation: " + name);
}

// ---- what a call says ---------------------------------------------------------------------------

// All arguments of a call that are not buffers. They live during the call.
struct Said {
  std::string op;
  std::uint32_t root = 0;
  Counts send_counts;
  Counts receive_counts;
  Ranks sources;
  Ranks targets;
};

class Preparation {
 public:
  Preparation(const Team& team, const Kind& kind, const Said& said) : team_(team), kind_(kind), said_(said) {
    call_.root = said.root;
    call_.neighbors = {said.sources.data(), said.sources.size(), said.targets.data(), said.targets.size()};
  }
  Call made(nb::handle send, nb::handle receive) {
    take(kind_.send, "send", send, Access::read, &call_.send);
    take(kind_.receive, "receive", receive, Access::write, &call_.receive);
    list(kind_.send, "send_counts", said_.send_counts, call_.send, &call_.send_blocks);
    list(kind_.receive, "receive_counts", said_.receive_counts, call_.receive, &call_.receive_blocks);
    divide(kind_.send, "send", call_.send);
    divide(kind_.receive, "receive", call_.receive);
    check_order(send, receive);
    if (kind_.own_block_is_listed) check_own_block();
    if (kind_.combines) combine();
    call_.bytes = block_bytes_.value_or(0);
    return std::move(call_);
  }

 private:
  [[nodiscard]] bool needs(const Side& side) const {
    return side.blocks != Blocks::none && (side.needed == Needed::everywhere || team_.rank() == said_.root);
  }
  void take(const Side& side, const char* name, nb::handle object, Access access, Memory* memory) const {
    if (!needs(side)) return;
    if (object.is_none()) raise(PyExc_TypeError, std::string(kind_.name) + " needs " + name + " here");
    *memory = Memory(object, access);
  }
  [[nodiscard]] std::size_t blocks_of(const Side& side) const {
    switch (side.blocks) {
      case Blocks::members:
        return team_.size();
      case Blocks::sources:
        return said_.sources.size();
      case Blocks::targets:
        return said_.targets.size();
      default:
        return 1;
    }
  }
  // Counts of elements, one block after the other, that fit the buffer.
  void list(const Side& side, const char* name, const Counts& counts, const Memory& memory, heddle_blocks* blocks) {
    if (side.blocks != Blocks::listed || !needs(side)) return;
    if (!counts) raise(PyExc_TypeError, std::string(kind_.name) + " needs " + name + " here");
    const std::size_t expected = !kind_.among_neighbors ? team_.size()
                                 : &side == &kind_.send ? said_.targets.size()
                                                        : said_.sources.size();
    if (counts->size() != expected) {
      raise(HEDDLE_ERR_ARGUMENT, std::string(kind_.name) + ": " + name + " has " + std::to_string(counts->size()) +
                                     " counts; " + std::to_string(expected) + " are needed");
    }
    const std::size_t element = std::max<std::size_t>(memory.element().bytes, 1);
    std::size_t left = memory.bytes() / element;
    for (const std::size_t count : *counts) {
      if (count > left) {
        raise(HEDDLE_ERR_ARGUMENT, std::string(kind_.name) + ": " + name + " says more elements than the buffer's " +
                                       std::to_string(memory.bytes() / element));
      }
      left -= count;
    }
    *blocks = {counts->data(), nullptr, element};
  }
  // The bytes of one block, by each buffer that has equal ones; both must say the same.
  void divide(const Side& side, const char* name, const Memory& memory) {
    if (side.blocks == Blocks::listed || !needs(side)) return;
    const std::size_t blocks = blocks_of(side);
    if (blocks == 0) return;
    const std::size_t bytes = memory.bytes() / blocks;
    const bool of_lists = kind_.send.blocks == Blocks::listed || kind_.receive.blocks == Blocks::listed;
    if (bytes * blocks != memory.bytes() || (block_bytes_ && *block_bytes_ != bytes && !of_lists)) {
      raise(HEDDLE_ERR_ARGUMENT,
            std::string(kind_.name) + ": " + name + " has " + std::to_string(memory.bytes()) +
                " bytes, which are not " + std::to_string(blocks) + " blocks of " +
                (block_bytes_ ? std::to_string(*block_bytes_) + " bytes, as of the other buffer" : "one length"));
    }
    block_bytes_ = bytes;
  }

  void check_own_block() const {
    const std::size_t listed = (*said_.receive_counts)[team_.rank()] * call_.receive_blocks.element_bytes;
    if (listed == call_.send.bytes()) return;
    raise(HEDDLE_ERR_ARGUMENT, std::string(kind_.name) + ": send has " + std::to_string(call_.send.bytes()) +
                                   " bytes; the counts say " + std::to_string(listed) + " for this member");
  }
  // Memory is taken as it lies there.
  void check_order(nb::handle send, nb::handle receive) const {
    if (!needs(kind_.send) || !needs(kind_.receive) || call_.send.fortran() == call_.receive.fortran()) return;
    if (rank_of(send) < 2 || rank_of(receive) < 2) return;
    raise(PyExc_BufferError,
          std::string(kind_.name) +
              ": one array is in C's order and the other one in Fortran's: elements would change their "
              "places");
  }
  // Dimensions.
  static int rank_of(nb::handle object) { return nb::hasattr(object, "ndim") ? nb::cast<int>(object.attr("ndim")) : 1; }
  void combine() {
    const Element& element = call_.send.element();
    if (needs(kind_.receive) &&
        (call_.receive.element().kind != element.kind || call_.receive.element().bytes != element.bytes)) {
      raise(PyExc_TypeError, std::string(kind_.name) + ": the elements of send and receive are of different types");
    }
    call_.reduction.type = type_of(element);
    call_.reduction.op = operator_of(said_.op);
    if (element.kind == 'b' && (call_.reduction.op == HEDDLE_SUM || call_.reduction.op == HEDDLE_PRODUCT)) {
      raise(PyExc_TypeError, std::string(kind_.name) + " of booleans: use the operator lor or land");
    }
    const std::size_t bytes = block_bytes_.value_or(0);
    if (bytes % element.bytes != 0) {
      raise(HEDDLE_ERR_ARGUMENT, std::string(kind_.name) + ": a block of " + std::to_string(bytes) +
                                     " bytes has no whole number of elements");
    }
    call_.count = bytes / element.bytes;
  }

  const Team& team_;
  const Kind& kind_;
  const Said& said_;
  Call call_;
  std::optional<std::size_t> block_bytes_;
};

// ---- what Python has of an operation ------------------------------------------------------------

// A nonblocking or persistent operation, with the memory that belongs to it. Several threads may
// wait for it; only one at a time is in the library.
class Collective {
 public:
  Collective(std::shared_ptr<Team> team, Call&& call, bool persistent)
      : team_(std::move(team)), call_(std::make_shared<Call>(std::move(call))), persistent_(persistent) {}
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;
  ~Collective() {
    if (handle_.id == 0) return;
    // Under way, perhaps while the context leaves: its memory belongs to the library until it has.
    Context& context = *team_->context();
    const bool inside = context.users().enter();
    if (!inside || !persistent_ || heddle_collective_free(handle_) != HEDDLE_DONE) {
      context.keep(std::shared_ptr<void>(call_));
    }
    if (inside) context.users().leave();
  }
  void issue(const Kind& kind, const heddle_collective_options& options) {
    const How how{persistent_ ? Form::persistent : Form::nonblocking, &options, &handle_};
    checked_released([&] { return kind.issue(team_->handle(), *call_, how); });
    under_way_ = !persistent_;
  }

  void start() {
    if (!persistent_) raise(HEDDLE_ERR_STATE, "only a persistent operation is started; this one was, when it was made");
    const Use use(users(), kContextLeft);
    checked_released([&] {
      const std::lock_guard lock(mutex_);
      const heddle_status status = heddle_collective_start(handle_);
      if (status < 0) return status;
      under_way_ = true;
      outcome_ = HEDDLE_DONE;
      return status;
    });
  }
  bool test() {
    const Use use(users(), kContextLeft);
    std::shared_ptr<Call> over;  // goes with the GIL
    std::string text;
    const heddle_status status = released([&] {
      const std::unique_lock lock(mutex_, std::try_to_lock);
      return lock.owns_lock() ? look(0, &over, &text) : HEDDLE_AGAIN;  // another thread waits
    });
    if (status < 0) raise(status, text);
    return status != HEDDLE_AGAIN;
  }
  void wait(const nb::object& seconds) {
    const Use use(users(), kContextLeft);
    std::shared_ptr<Call> over;  // goes with the GIL
    std::string text;
    const heddle_status status = in_slices(users(), timeout_ns(seconds), [&](std::int64_t slice_ns) {
      const std::lock_guard lock(mutex_);
      return look(slice_ns, &over, &text);
    });
    if (status == HEDDLE_ERR_TIMEOUT) raise(status, "the operation has not completed in the given time; it goes on");
    if (status < 0) raise(status, text);
  }
  [[nodiscard]] bool persistent() const { return persistent_; }
  [[nodiscard]] std::string algorithm() {
    const char* name = "";
    ask([&] { return heddle_collective_algorithm(handle_, &name); });
    return name;
  }
  [[nodiscard]] bool offloaded() {
    int is = 0;
    ask([&] { return heddle_collective_offloaded(handle_, &is); });
    return is != 0;
  }
  void free() {
    if (!persistent_) raise(HEDDLE_ERR_STATE, "only a persistent operation is freed; wait() ends this one");
    const Use use(users(), kContextLeft);
    std::shared_ptr<Call> over;  // goes with the GIL
    checked_released([&] {
      const std::lock_guard lock(mutex_);
      const heddle_status status = heddle_collective_free(handle_);
      if (status != HEDDLE_DONE) return status;
      handle_ = {};
      over.swap(call_);
      return status;
    });
  }

 private:
  [[nodiscard]] Users& users() const { return team_->context()->users(); }
  template <class Question>
  void ask(Question&& question) {
    const Use use(users(), kContextLeft);
    bool open = true;
    const heddle_status status = released([&] {
      const std::lock_guard lock(mutex_);
      open = handle_.id != 0;
      return open ? question() : HEDDLE_DONE;
    });
    if (!open) raise(HEDDLE_ERR_HANDLE, "the operation has completed, or is freed");
    check(status);
  }
  // With the mutex. ns 0: makes progress once. *over: its buffers, when it has completed without an
  // error. After one peers may still access them: they stay as long as this. *text: of an error.
  heddle_status look(std::int64_t ns, std::shared_ptr<Call>* over, std::string* text) {
    if (under_way_) {
      const heddle_status status = ns == 0 ? heddle_collective_test(handle_) : heddle_collective_wait(handle_, ns);
      if (status == HEDDLE_AGAIN || status == HEDDLE_ERR_TIMEOUT) return status;
      under_way_ = false;
      outcome_ = status;
      if (status < 0) failure_ = heddle_last_error();
      if (!persistent_) handle_ = {};
      if (!persistent_ && status == HEDDLE_DONE) over->swap(call_);
    }
    if (outcome_ < 0) *text = failure_;
    return outcome_;
  }

  std::shared_ptr<Team> team_;
  std::shared_ptr<Call> call_;
  const bool persistent_;
  std::mutex mutex_;  // guards what follows
  heddle_collective handle_{};
  bool under_way_ = false;
  heddle_status outcome_ = HEDDLE_DONE;  // of the last run
  std::string failure_;                  // its text
};

struct Options {
  std::optional<std::string> algorithm;
  std::uint64_t segment_bytes;
};

nb::object run(Team& team, const std::string& name, int form, nb::handle send, nb::handle receive, const Said& said,
               const Options& given) {
  const Use use(team.context()->users(), kContextLeft);
  const Kind& kind = kind_of(name);
  Call call = Preparation(team, kind, said).made(send, receive);
  const auto wanted = static_cast<Form>(form);
  if (wanted == Form::blocking) {
    checked_released([&] { return kind.issue(team.handle(), call, {wanted, nullptr, nullptr}); });
    return nb::none();
  }
  heddle_collective_options options{};
  options.size = sizeof options;
  options.algorithm = given.algorithm ? given.algorithm->c_str() : nullptr;
  options.segment_bytes = given.segment_bytes;
  auto made = std::make_shared<Collective>(team.shared_from_this(), std::move(call), wanted == Form::persistent);
  made->issue(kind, options);
  return nb::cast(made);
}

}  // namespace

void bind_collectives(nb::module_& module, nb::class_<Team>& team) {
  nb::class_<Collective>(module, "Collective",
                         "A collective operation that was started, or a persistent one, which is started again and "
                         "again. Its buffers stay until it has completed.\n\nAwait it under asyncio, or call wait().")
      .def("start", &Collective::start, "Of a persistent operation: begin a run; waits for no member.")
      .def("test", &Collective::test, "Make progress once; whether the run has completed.")
      .def("wait", &Collective::wait, nb::arg("timeout").none() = nb::none(),
           nb::sig("def wait(self, timeout: float | None = None) -> None"),
           "Make progress until the run has completed; raise its error.\n\n"
           "timeout: seconds. TimedOut: it goes on. PeerFailedError: a member has died.")
      .def("free", &Collective::free, "Close a persistent operation, between runs.")
      .def(
          "__await__",
          [](nb::handle self) {
            return nb::module_::import_("heddle.aio").attr("wait_for_collective")(self).attr("__await__")();
          },
          nb::sig("def __await__(self) -> collections.abc.Generator[typing.Any, None, None]"),
          "Wait for the run under asyncio: the loop looks at it, once a millisecond when it lasts.")
      .def_prop_ro("persistent", &Collective::persistent, "Whether it can be started again.")
      .def_prop_ro("algorithm", &Collective::algorithm, "Such as 'broadcast.binomial'.")
      .def_prop_ro("offloaded", &Collective::offloaded, "Whether the network's interface runs it.");
  team.def(
      "run",
      [](Team& self, const std::string& name, int form, nb::handle send, nb::handle receive, const std::string& op,
         std::uint32_t root, const Counts& send_counts, const Counts& receive_counts, const Ranks& sources,
         const Ranks& targets, const std::optional<std::string>& algorithm, std::uint64_t segment_bytes) {
        const Said said{op, root, send_counts, receive_counts, sources, targets};
        return run(self, name, form, send, receive, said, {algorithm, segment_bytes});
      },
      nb::arg("name"), nb::arg("form"), nb::arg("send").none(), nb::arg("receive").none(), nb::arg("op"),
      nb::arg("root"), nb::arg("send_counts").none(), nb::arg("receive_counts").none(), nb::arg("sources"),
      nb::arg("targets"), nb::arg("algorithm").none(), nb::arg("segment_bytes"));
}

}  // namespace heddle::python
