#include "tofu/emulator/world.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>

#include "tofu/emulator/model.hpp"

namespace tofu_emulator {
namespace {

constexpr std::uint64_t kMagic = 0x31756C75'6D65FEEDULL;
constexpr std::size_t kPage = 65'536;  // the largest page size of the machines on which this runs

// Settings that all processes must agree on, as stored in the world.
struct Agreed {
  std::uint32_t processes;
  std::uint32_t per_node;
  std::array<std::uint8_t, 8> shape;
  std::uint64_t seed;
  std::uint32_t mode;
  std::uint32_t toq_depth;
  std::uint32_t mrq_depth;
  std::uint32_t model;
  std::uint32_t numbering;
};

Agreed agreed_of(const EmulatorSettings& settings) {
  Agreed agreed{};
  agreed.processes = settings.processes;
  agreed.per_node = settings.per_node;
  std::copy(settings.shape.begin(), settings.shape.end(), agreed.shape.begin());
  agreed.seed = settings.seed;
  agreed.mode = static_cast<std::uint32_t>(settings.mode);
  agreed.toq_depth = settings.toq_depth;
  agreed.mrq_depth = settings.mrq_depth;
  agreed.model = (settings.model ? 1U : 0U) + (settings.spinners ? 1U : 0U);
  agreed.numbering = static_cast<std::uint32_t>(settings.numbering);
  return agreed;
}

std::string shape_text(const std::array<std::uint8_t, 8>& shape) {
  std::string text;
  for (std::size_t axis = 0; axis < 6; ++axis) text += (axis == 0 ? "" : "x") + std::to_string(shape.at(axis));
  return text;
}

// The variable that differs, with the values of this process and of the first one; empty: none.
std::string difference(const Agreed& mine, const Agreed& first) {
  const auto both = [](const char* name, const std::string& own, const std::string& other) {
    return std::string(name) + " is " + own + " here and " + other + " in the process that came first";
  };
  const auto numbers = [&](const char* name, std::uint64_t own, std::uint64_t other) {
    return own == other ? std::string() : both(name, std::to_string(own), std::to_string(other));
  };
  const auto mode = [](std::uint32_t value) {
    return std::string(value == static_cast<std::uint32_t>(Mode::strict) ? "strict" : "plain");
  };
  const auto numbering = [](std::uint32_t value) {
    return std::string(value == static_cast<std::uint32_t>(Numbering::vendor) ? "vendor" : "random");
  };
  if (mine.mode != first.mode) return both("UTOFU_EMU_MODE", mode(mine.mode), mode(first.mode));
  if (mine.numbering != first.numbering)
    return both("UTOFU_EMU_NUMBERING", numbering(mine.numbering), numbering(first.numbering));
  if (mine.shape != first.shape) return both("UTOFU_EMU_SHAPE", shape_text(mine.shape), shape_text(first.shape));
  for (const std::string& text :
       {numbers("UTOFU_EMU_PROCESSES", mine.processes, first.processes),
        numbers("UTOFU_EMU_PPN", mine.per_node, first.per_node), numbers("UTOFU_EMU_SEED", mine.seed, first.seed),
        numbers("UTOFU_EMU_TOQ", mine.toq_depth, first.toq_depth),
        numbers("UTOFU_EMU_MRQ", mine.mrq_depth, first.mrq_depth),
        numbers("UTOFU_EMU_MODEL", mine.model, first.model)}) {
    if (!text.empty()) return text;
  }
  return {};
}

struct KernelsWord {
  bool ended = false;         // a zombie, or gone
  std::uint64_t started = 0;  // in ticks since boot; 0: unknown
};

// What the kernel knows of a process. Without a readable file the result is empty.
KernelsWord ask_kernel(std::uint32_t pid) {
  if (::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH) return {true, 0};
  std::string line;
  std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/stat"), line);
  const std::size_t name = line.rfind(')');
  if (name == std::string::npos) return {};
  std::istringstream fields(line.substr(name + 1));
  std::string field;
  fields >> field;
  KernelsWord word{field == "Z" || field == "X", 0};
  for (int i = 4; i <= 22; ++i) fields >> field;
  std::istringstream(field) >> word.started;
  return word;
}

// The status of a zombie that this user may inspect, in waitpid()'s format.
std::optional<int> exit_status(std::uint32_t pid) {
  std::string line;
  std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/stat"), line);
  const std::size_t name = line.rfind(')');
  if (name == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name + 1));
  std::string field;
  fields >> field;
  if (field != "Z") return std::nullopt;
  constexpr int kStatusField = 52;
  for (int i = 4; i <= kStatusField; ++i) fields >> field;
  int status = 0;
  // 0 is also given where the status is hidden
  if (!(std::istringstream(field) >> status) || status == 0) return std::nullopt;
  return status;
}

// Whether it has certainly ended: a process that was considered dead stays dead.
bool ended_for_certain(const ProcessEntry& entry) {
  const KernelsWord word = ask_kernel(entry.pid.load(std::memory_order_relaxed));
  const std::uint64_t started = entry.started.load(std::memory_order_relaxed);
  return word.ended || (word.started != 0 && started != 0 && word.started != started);
}

constexpr std::size_t up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// A lock of this process on the whole file, released when the process ends. (Not flock: processes
// that have inherited a descriptor are one holder for flock.)
class FileLock {
 public:
  explicit FileLock(int fd) : fd_(fd) { set(F_WRLCK); }
  ~FileLock() { set(F_UNLCK); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  void set(short type) const {
    struct flock lock{};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    while (::fcntl(fd_, F_SETLKW, &lock) != 0 && errno == EINTR) {
    }
  }
  int fd_;
};

std::string with_errno(const std::string& text) {
  return text + ": " + std::strerror(errno);
}

}  // namespace

struct World::Header {
  std::atomic<std::uint64_t> magic;  // kMagic: `agreed` is written. Protected by the file's lock
  Agreed agreed;
  std::atomic<std::uint32_t> ended;
  // the number of processes that have left; protected by the file's lock
  std::atomic<std::uint32_t> left;
};

std::unique_ptr<World> World::join(const EmulatorSettings& settings, const Machine& machine, std::string* problem) {
  std::unique_ptr<World> world(new World());
  world->processes_ = settings.processes;
  world->process_ = settings.process;
  const bool alone = settings.world_fd < 0 && settings.world_path.empty();
  if (alone && settings.processes != 1) {
    *problem = "UTOFU_EMU_PROCESSES=" + std::to_string(settings.processes) +
               " needs a world that they share: start them with `heddle run --utofu` or utofu-mpirun, or set "
               "UTOFU_EMU_WORLD to a "
               "path";
    return nullptr;
  }
  for (;;) {
    if (!alone && !world->open_shared(settings, problem)) return nullptr;
    if (alone) {
      if (!world->map(settings, machine, -1, problem) || !world->enter(settings, problem)) return nullptr;
      return world;
    }
    const FileLock lock(world->file_.get());
    struct stat status{};
    if (::fstat(world->file_.get(), &status) != 0) {
      *problem = with_errno("fstat of the world");
      return nullptr;
    }
    // the last process of another job has just removed it
    if (!settings.world_path.empty() && status.st_nlink == 0) continue;
    if (!world->map(settings, machine, world->file_.get(), problem) || !world->enter(settings, problem)) return nullptr;
    return world;
  }
}

bool World::open_shared(const EmulatorSettings& settings, std::string* problem) {
  if (settings.world_fd >= 0) {
    // A duplicate descriptor, which this process may close.
    file_.reset(::fcntl(settings.world_fd, F_DUPFD_CLOEXEC, 0));
    if (!file_.valid())
      *problem = with_errno("UTOFU_EMU_FD=" + std::to_string(settings.world_fd) + " is no open descriptor");
    return file_.valid();
  }
  constexpr int kFlags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
  do {
    file_.reset(::open(settings.world_path.c_str(), kFlags));
    if (!file_.valid() && errno == ENOENT)
      file_.reset(::open(settings.world_path.c_str(), kFlags | O_CREAT | O_EXCL, 0600));
  } while (!file_.valid() && (errno == EEXIST || errno == ENOENT) && ::access(settings.world_path.c_str(), F_OK) == 0);
  if (!file_.valid()) {
    *problem = with_errno("UTOFU_EMU_WORLD=" + settings.world_path + " cannot be opened");
    return false;
  }
  struct stat status{};
  if (::fstat(file_.get(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != ::geteuid() ||
      (status.st_mode & 077) != 0) {
    *problem = "UTOFU_EMU_WORLD=" + settings.world_path + " is not a file of this user alone; name a new one";
    return false;
  }
  path_ = settings.world_path;
  return true;
}

bool World::map(const EmulatorSettings& settings, const Machine& machine, int fd, std::string* problem) {
  nodes_ = machine.node_of(settings.processes - 1) + 1;
  // Rings are touched over their whole length in time, so jobs of many processes get small ones. A
  // ring holds more than two of the largest packets.
  ring_bytes_ = settings.processes <= 16 ? 65'536 : 16'384;
  const std::size_t entries = up(sizeof(Header), kPage);
  const std::size_t cqs = entries + up(sizeof(ProcessEntry) * processes_, kPage);
  const std::size_t gates = cqs + up(sizeof(Word) * nodes_ * kTnis * kCqs, kPage);
  const std::size_t rings = gates + up(sizeof(Word) * nodes_ * kTnis * kGates, kPage);
  const std::size_t links = up(rings + std::size_t{processes_} * processes_ * kChannels * ring_bytes_, kPage);
  bytes_ = links + (settings.model ? Links::bytes(machine) : 0);
  struct stat status{};
  if (fd >= 0 && ::fstat(fd, &status) == 0 && status.st_size == 0 && ::ftruncate(fd, static_cast<off_t>(bytes_)) != 0) {
    *problem = with_errno("the world's " + std::to_string(bytes_) + " bytes of address space");
    return false;
  }
  if (fd >= 0 && status.st_size != 0 && static_cast<std::size_t>(status.st_size) < kPage) {
    *problem = "the file given as the world is none; name a new one in UTOFU_EMU_WORLD";
    return false;
  }
  // A world made by others may have another size: then the headers differ, and enter() detects this
  // before any other access.
  const int flags = MAP_SHARED | MAP_NORESERVE | (fd < 0 ? MAP_ANONYMOUS : 0);
  void* memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (memory == MAP_FAILED) {
    *problem = with_errno("mapping the world's " + std::to_string(bytes_) + " bytes of address space");
    return false;
  }
  memory_ = static_cast<std::byte*>(memory);
  // The kernel's zeros are valid objects of all these types.
  header_ = reinterpret_cast<Header*>(memory_);
  entries_ = reinterpret_cast<ProcessEntry*>(memory_ + entries);
  cqs_ = reinterpret_cast<Word*>(memory_ + cqs);
  gates_ = reinterpret_cast<Word*>(memory_ + gates);
  rings_ = memory_ + rings;
  links_ = settings.model ? memory_ + links : nullptr;
  return true;
}

// Requires the lock on the file.
bool World::enter(const EmulatorSettings& settings, std::string* problem) {
  const Agreed mine = agreed_of(settings);
  if (header_->magic.load(std::memory_order_acquire) == 0) {
    header_->agreed = mine;
    header_->magic.store(kMagic, std::memory_order_release);
  } else if (header_->magic.load(std::memory_order_acquire) != kMagic) {
    *problem = "the file given as the world is none; name a new one in UTOFU_EMU_WORLD";
    return false;
  } else if (const std::string text = difference(mine, header_->agreed); !text.empty()) {
    *problem = text + "; all must have the same";
    return false;
  }
  ProcessEntry& own = entries_[process_];
  if (own.presence.load(std::memory_order_acquire) != Presence::absent) {
    *problem = !ended_for_certain(own)
                   ? "there is already a process " + std::to_string(process_) +
                         " in this world; each needs a UTOFU_EMU_RANK of its own"
                   : "process " + std::to_string(process_) +
                         " of this world has ended; a new job needs a new world (UTOFU_EMU_WORLD: remove the file)";
    return false;
  }
  own.pid.store(static_cast<std::uint32_t>(::getpid()), std::memory_order_relaxed);
  own.started.store(ask_kernel(static_cast<std::uint32_t>(::getpid())).started, std::memory_order_relaxed);
  own.presence.store(Presence::joined, std::memory_order_release);
  entered_ = true;
  return true;
}

World::~World() {
  if (entered_) {
    entries_[process_].engine_runs.store(0, std::memory_order_release);
    entries_[process_].presence.store(Presence::left, std::memory_order_release);
    if (!path_.empty()) {
      const FileLock lock(file_.get());
      if (header_->left.fetch_add(1, std::memory_order_relaxed) + 1 == processes_) ::unlink(path_.c_str());
    }
  }
  if (memory_ != nullptr) ::munmap(memory_, bytes_);
}

std::atomic<std::uint32_t>& World::ended() const {
  return header_->ended;
}

bool World::died(std::uint32_t process) const {
  const ProcessEntry& other = entries_[process];
  return process != process_ && other.presence.load(std::memory_order_acquire) == Presence::joined &&
         ended_for_certain(other);
}

std::string World::describe_death(std::uint32_t process) const {
  const std::uint32_t pid = entries_[process].pid.load(std::memory_order_relaxed);
  const std::string who = "process " + std::to_string(process) + " (pid " + std::to_string(pid) + ") has ";
  const std::optional<int> status = ended_for_certain(entries_[process]) ? exit_status(pid) : std::nullopt;
  if (!status)
    return who +
           "ended without leaving the emulated machine: killed, or by _exit() or exec(); how, is known to its parent";
  if (WIFSIGNALED(*status)) {
    const char* name = ::strsignal(WTERMSIG(*status));
    return who + "been killed by signal " + std::to_string(WTERMSIG(*status)) + " (" + (name != nullptr ? name : "") +
           ")";
  }
  return who + "ended with status " + std::to_string(WEXITSTATUS(*status)) +
         " without leaving the emulated machine: by _exit(), or exec()";
}

World::Word* World::cq_word(std::uint32_t node, std::uint16_t tni, std::uint16_t cq) const {
  return node < nodes_ ? &cqs_[(std::size_t{node} * kTnis + tni) * kCqs + cq] : nullptr;
}
World::Word* World::gate_word(std::uint32_t node, std::uint16_t tni, std::uint16_t gate) const {
  return node < nodes_ ? &gates_[(std::size_t{node} * kTnis + tni) * kGates + gate] : nullptr;
}

// A word of the directory: the owner's number + 1 in the lower half, the generation above.
namespace {
DirectoryOwner owner_of(const std::atomic<std::uint64_t>* word) {
  if (word == nullptr) return {};
  const std::uint64_t value = word->load(std::memory_order_acquire);
  return {static_cast<std::uint32_t>(value) - 1, static_cast<std::uint32_t>(value >> 32)};
}
void release_word(std::atomic<std::uint64_t>* word) {
  word->fetch_and(~std::uint64_t{0xFFFFFFFF}, std::memory_order_acq_rel);
}
}  // namespace

bool World::claim(Word* word) const {
  std::uint64_t value = word->load(std::memory_order_acquire);
  do {
    if (static_cast<std::uint32_t>(value) != 0) return false;
  } while (!word->compare_exchange_weak(value, ((value >> 32) + 1) << 32 | (process_ + 1), std::memory_order_acq_rel,
                                        std::memory_order_acquire));
  return true;
}

bool World::claim_cq(std::uint32_t node, std::uint16_t tni, std::uint16_t cq) {
  return claim(cq_word(node, tni, cq));
}
void World::release_cq(std::uint32_t node, std::uint16_t tni, std::uint16_t cq) {
  release_word(cq_word(node, tni, cq));
}
DirectoryOwner World::cq_owner(std::uint32_t node, std::uint16_t tni, std::uint16_t cq) const {
  return owner_of(cq_word(node, tni, cq));
}
bool World::claim_gate(std::uint32_t node, std::uint16_t tni, std::uint16_t gate) {
  return claim(gate_word(node, tni, gate));
}
void World::release_gate(std::uint32_t node, std::uint16_t tni, std::uint16_t gate) {
  release_word(gate_word(node, tni, gate));
}
DirectoryOwner World::gate_owner(std::uint32_t node, std::uint16_t tni, std::uint16_t gate) const {
  return owner_of(gate_word(node, tni, gate));
}

std::byte* World::ring(std::uint32_t from, std::uint32_t to, Channel channel) const {
  const std::size_t index = (std::size_t{from} * processes_ + to) * kChannels + static_cast<std::size_t>(channel);
  return rings_ + index * ring_bytes_;
}
heddle::queue::RecordProducer<> World::producer(std::uint32_t from, std::uint32_t to, Channel channel) const {
  std::byte* place = ring(from, to, channel);
  return {reinterpret_cast<heddle::queue::RingControl<>*>(place), place + sizeof(heddle::queue::RingControl<>),
          heddle::queue::ring_capacity(ring_bytes_)};
}
heddle::queue::RecordConsumer<> World::consumer(std::uint32_t from, std::uint32_t to, Channel channel) const {
  const std::byte* place = ring(from, to, channel);
  return {reinterpret_cast<heddle::queue::RingControl<>*>(ring(from, to, channel)),
          place + sizeof(heddle::queue::RingControl<>), heddle::queue::ring_capacity(ring_bytes_)};
}

}  // namespace tofu_emulator
