#include "bootstrap/hosted/hosted.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/threads.hpp"
#include "base/wait.hpp"
#include "bootstrap/board.hpp"
#include "bootstrap/common.hpp"
#include "bootstrap/hosted/connect.hpp"
#include "bootstrap/hosted/host.hpp"
#include "bootstrap/local/local.hpp"

namespace heddle::bootstrap::hosted {

Service::Service() : pid_(::getpid()) {}

base::Result<std::unique_ptr<Service>> Service::start() {
  std::unique_ptr<Service> service(new Service());
  try {
    service->thread_ = base::start_quiet_thread([raw = service.get()] { raw->serve(); });
  } catch (const std::system_error& error) {
    return base::fail(HEDDLE_ERR_SYSTEM, "cannot start the thread that calls the launcher: %s", error.what());
  }
  pthread_setname_np(service->thread_.native_handle(), "heddle-launch");
  return service;
}

Service::~Service() {
  if (::getpid() != pid_) {
    if (thread_.joinable()) thread_.detach();
    return;
  }
  if (thread_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.of.notify_all();
    thread_.join();
  }
  changed_.of.~condition_variable();
}

base::Status Service::call(Work work) {
  if (::getpid() != pid_) {
    return base::fail(HEDDLE_ERR_STATE, "the launcher hears the process that joined only, not a child of it");
  }
  auto command = std::make_shared<Command>();
  command->work = std::move(work);
  std::unique_lock lock(mutex_);
  commands_.push_back(command);
  changed_.of.notify_all();
  changed_.of.wait(lock, [&] { return command->done; });
  return command->message.empty() ? command->status : base::fail(command->status, "%s", command->message.c_str());
}

void Service::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.of.wait(lock, [this] { return ending_ || !commands_.empty(); });
    if (commands_.empty()) return;
    const std::shared_ptr<Command> command = std::move(commands_.front());
    commands_.pop_front();
    lock.unlock();
    const base::Status status = command->work();
    command->work = nullptr;  // its contents are destroyed on this thread
    lock.lock();
    command->status = status;
    if (status < 0) command->message = base::last_message();
    command->done = true;
    changed_.of.notify_all();
  }
}

namespace {

// A thread of rank 0 takes frames, whatever the program does. If it takes none for so long, it is
// stopped or its machine is lost; for connections to other machines the kernel reports that after
// the same time (prepare_stream).
constexpr std::int64_t kBrokerTakesNothingNs = 30'000'000'000;

// The state of a rank before it is a member. Created and destroyed by one thread; the service makes
// the launcher's calls.
struct Joining {
  std::unique_ptr<Service> service;
  std::unique_ptr<ForeignLauncher> launcher;
  std::unique_ptr<Host> host;  // rank 0's
  Contact contact;
  Connection connection;
};

class Hosted final : public local::Member {
 public:
  Hosted(Joining joining, const local::Seat& seat, local::Greeting greeting, local::Reader reader, const base::Log& log)
      : Member(seat, std::move(greeting), joining.contact.secret, std::move(reader)),
        log_(log),
        parts_(std::move(joining)) {}
  ~Hosted() override;

  // Learns which rank is on which machine, and gets the board of this one. Waits for all ranks.
  base::Status learn_hosts();

  [[nodiscard]] const char* name() const override { return parts_.launcher->name(); }
  [[nodiscard]] std::uint32_t host(std::uint32_t rank) const override { return hosts_[rank]; }
  // Appends the descriptor's name to the bytes: rank 0 passes descriptors on, but only on its
  // machine.
  [[nodiscard]] base::Status publish(const Card& card) override;
  [[nodiscard]] base::Result<Card> fetch(std::uint32_t rank) override;
  [[nodiscard]] base::Result<Card> fetch_bytes(std::uint32_t rank) override;
  void note_all_leave() override { all_leave_ = true; }
  void leave() override;
  [[noreturn]] void abort(int code, const char* message) override;

 private:
  void lost(const char* what, const char* why) override;
  base::Result<Card> fetch_named(std::uint32_t peer, DescriptorName* name);
  [[nodiscard]] std::vector<std::byte> own_part(const Machine& machine);
  void get_board(std::uint32_t first, std::span<const std::byte> part);

  const base::Log log_;
  Joining parts_;
  std::vector<std::uint32_t> hosts_;
  base::Fd board_file_;  // of the board of a machine that is not rank 0's; its first rank has it
  bool left_ = false;
  bool all_leave_ = false;
};

Hosted::~Hosted() {
  const bool own = is_own_process();
  end();
  if (!own) {
    // Threads and the launcher's connection are the parent's.
    if (parts_.host != nullptr) parts_.host->abandon();
    static_cast<void>(parts_.launcher.release());
    return;
  }
  parts_.host.reset();  // waits for the others, which may still be leaving
  static_cast<void>(parts_.service->call([this] {
    // A launcher that sees a rank end without this call ends the others, as it should if the rank
    // did not leave.
    if (left_) parts_.launcher->finish();
    parts_.launcher.reset();
    return HEDDLE_DONE;
  }));
}

// A rank's part of the exchange in which the ranks learn where they are: its machine, then the name
// of a file for the board of that machine, if this rank may be the first one there. Rank 0 is, and
// who has met it by a local socket is not; the others know only when they have all parts.
std::vector<std::byte> Hosted::own_part(const Machine& machine) {
  const auto whole = [](const auto& value) { return std::as_bytes(std::span(&value, 1)); };
  const auto place = whole(machine);
  std::vector<std::byte> part(place.begin(), place.end());
  const bool hosts = parts_.host != nullptr;
  if (!hosts && parts_.connection.local) return part;
  if (!hosts) board_file_ = make_board_file();
  const auto name = name_descriptor(hosts ? parts_.host->board().get() : board_file_.get());
  if (!name) return part;
  part.insert(part.end(), whole(*name).begin(), whole(*name).end());
  return part;
}

// `first`: the first rank of this machine, `part`: what it gave. The others have the board from the
// broker or open the first one's file by its name, as descriptors of cards; if they may not, they
// have none.
void Hosted::get_board(std::uint32_t first, std::span<const std::byte> part) {
  if (first != rank()) board_file_.reset();
  if (place(rank()).size == 1) {
    board_file_.reset();
    set_board({});
    return;
  }
  if (!board().empty()) return;
  if (first == rank()) return set_board(NodeBoard::map(board_file_));
  DescriptorName name;
  if (part.size() != sizeof(Machine) + sizeof name) return;
  std::memcpy(&name, part.data() + sizeof(Machine), sizeof name);
  if (name.number < 0) return;
  const auto file = open_descriptor(name, first);
  if (file) set_board(NodeBoard::map(*file));
}

base::Status Hosted::learn_hosts() {
  const auto machine = this_machine();
  if (!machine) return machine.status();
  if (const auto status = exchange_start(own_part(*machine)); status != HEDDLE_DONE) return status;
  std::vector<std::vector<std::byte>> all;
  base::Nap nap;
  base::Status status{};
  while ((status = exchange_test(&all)) == HEDDLE_AGAIN) nap.take();
  if (status != HEDDLE_DONE) return status;
  std::vector<std::uint32_t> firsts;  // by host
  for (std::uint32_t peer = 0; peer < all.size(); ++peer) {
    if (all[peer].size() < sizeof(Machine)) {
      return base::fail(HEDDLE_ERR_PROTOCOL, "rank %u does not say which machine it is on", peer);
    }
    const auto alike = [&](std::uint32_t first) {
      return std::memcmp(all[first].data(), all[peer].data(), sizeof(Machine)) == 0;
    };
    const auto at = std::find_if(firsts.begin(), firsts.end(), alike);
    hosts_.push_back(static_cast<std::uint32_t>(at - firsts.begin()));
    if (at == firsts.end()) firsts.push_back(peer);
  }
  const std::uint32_t first = firsts[host(rank())];
  get_board(first, all[first]);
  return HEDDLE_DONE;
}

base::Status Hosted::publish(const Card& card) {
  if (const base::Status status = check_card(card); status != HEDDLE_DONE) return status;
  const auto name = name_descriptor(card.fd);
  if (!name) return name.status();
  Card named{card.fd, card.pid, card.bytes, nullptr};
  const auto* tail = reinterpret_cast<const std::byte*>(&*name);
  named.bytes.insert(named.bytes.end(), tail, tail + sizeof *name);
  return publish_checked(named);
}

// The card as its rank gave it, and the name of its descriptor.
base::Result<Card> Hosted::fetch_named(std::uint32_t peer, DescriptorName* name) {
  auto card = Member::fetch(peer);
  if (!card) return card;
  if (card->bytes.size() < sizeof *name) {
    const base::Fd fd(card->fd);
    return base::fail(HEDDLE_ERR_PROTOCOL, "the card of rank %u has no end that says what its descriptor is", peer);
  }
  const auto tail = card->bytes.end() - static_cast<std::ptrdiff_t>(sizeof *name);
  std::memcpy(name, &*tail, sizeof *name);
  card->bytes.erase(tail, card->bytes.end());
  return card;
}

base::Result<Card> Hosted::fetch_bytes(std::uint32_t peer) {
  DescriptorName name;
  auto card = fetch_named(peer, &name);
  if (card) base::Fd(std::exchange(card->fd, -1)).reset();
  return card;
}

base::Result<Card> Hosted::fetch(std::uint32_t peer) {
  DescriptorName name;
  auto card = fetch_named(peer, &name);
  if (!card) return card;
  base::Fd fd(card->fd);
  if (!fd.valid() && name.number >= 0 && host(peer) == host(rank())) {
    auto opened = open_descriptor(name, peer);
    if (!opened) return opened.status();
    fd = std::move(*opened);
  }
  card->fd = fd.release();
  return card;
}

void Hosted::leave() {
  Member::leave();
  left_ = true;
  if (parts_.host != nullptr) parts_.host->leave(all_leave_);
}

void Hosted::abort(int code, const char* message) {
  print_abort(rank(), code, message);
  static_cast<void>(parts_.service->call([&] {
    parts_.launcher->abort(code, message != nullptr ? message : "");
    return HEDDLE_DONE;
  }));
  std::_Exit(code);
}

void Hosted::lost(const char* what, const char* why) {
  log_.line(base::Level::error, "rank 0, which keeps this job together, %s%s; all other ranks count as failed", what,
            why);
  count_all_gone(0);
}

base::Status open_launcher_on(Service& service, const OpenLauncher& open_launcher,
                              std::unique_ptr<ForeignLauncher>* launcher) {
  return service.call([&] {
    auto opened = open_launcher();
    if (!opened) return opened.status();
    *launcher = std::move(*opened);
    const std::uint32_t size = (*launcher)->size();
    if (size >= 1 && size <= kMaxRanks && (*launcher)->rank() < size) return HEDDLE_DONE;
    const base::Status status =
        base::fail(HEDDLE_ERR_BOOTSTRAP, "the launcher says rank %u of %u; up to %u ranks are possible",
                   (*launcher)->rank(), size, kMaxRanks);
    launcher->reset();
    return status;
  });
}

// Rank 0 begins to listen and gives all ranks its contact; the others connect to it.
base::Status meet(Joining& joining, const base::Log& log, std::uint64_t hang_seconds) {
  ForeignLauncher& launcher = *joining.launcher;
  std::string mine;
  if (launcher.rank() == 0) {
    bool one_host = false;
    static_cast<void>(joining.service->call([&] {
      one_host = launcher.one_host();
      return HEDDLE_DONE;
    }));
    Host::Options options{launcher.size(), !one_host, log};
    options.hang_seconds = hang_seconds;
    auto host = Host::open(options);
    if (!host) return host.status();
    joining.host = std::move(*host);
    mine = encode(joining.host->contact());
  }
  std::string told;
  const base::Status shared = joining.service->call([&] {
    auto value = launcher.share(mine);
    if (value) told = std::move(*value);
    return value.status();
  });
  if (shared != HEDDLE_DONE) return shared;
  auto contact = decode_contact(told);
  if (!contact) return contact.status();
  joining.contact = std::move(*contact);
  if (joining.host != nullptr) {
    joining.connection = {joining.host->own_end(), true};
    return HEDDLE_DONE;
  }
  auto connection = connect(joining.contact, launcher.rank());
  if (!connection) return connection.status();
  joining.connection = std::move(*connection);
  return HEDDLE_DONE;
}

}  // namespace

base::Result<std::unique_ptr<Bootstrap>> open(const OpenLauncher& open_launcher, const base::Environment& environment) {
  Joining joining;
  auto service = Service::start();
  if (!service) return service.status();
  joining.service = std::move(*service);
  base::Status status = open_launcher_on(*joining.service, open_launcher, &joining.launcher);
  if (status != HEDDLE_DONE) return status;
  const local::Seat seat_of{-1, joining.launcher->rank(), joining.launcher->size()};
  base::Level level = base::Level::warn;
  static_cast<void>(base::Log::parse(environment.config.text(base::Var::log), &level));
  const base::Log log(level, seat_of.rank);
  status = meet(joining, log, environment.config.number(base::Var::hang_seconds));
  const local::Seat seat{joining.connection.socket.get(), seat_of.rank, seat_of.size, joining.connection.local,
                         kBrokerTakesNothingNs};
  local::Reader reader(local::Direction::to_rank, seat.size);
  local::Greeting greeting;
  if (status == HEDDLE_DONE) {
    auto greeted = local::greet(seat, reader);
    status = greeted.status();
    if (greeted) greeting = std::move(*greeted);
  }
  if (status != HEDDLE_DONE) {
    const std::string why = base::last_message();
    // Without finish(): a launcher that hears nothing more of this rank ends the job, which could
    // not come together.
    static_cast<void>(joining.service->call([&] {
      joining.launcher.reset();
      return HEDDLE_DONE;
    }));
    return base::fail(status, "%s", why.c_str());
  }
  auto hosted = std::make_unique<Hosted>(std::move(joining), seat, std::move(greeting), std::move(reader), log);
  status = hosted->start();
  if (status == HEDDLE_DONE) status = hosted->learn_hosts();
  if (status != HEDDLE_DONE) return status;
  return std::unique_ptr<Bootstrap>(std::move(hosted));
}

}  // namespace heddle::bootstrap::hosted
