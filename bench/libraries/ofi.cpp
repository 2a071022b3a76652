// libfabric as a library that is measured over a network: puts, gets and messages, by an endpoint
// in a domain for each thread (FI_THREAD_DOMAIN), or one endpoint for all. A waiting thread reads
// the completion queue in a loop, as programs on libfabric do.
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sched.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "libraries/main.hpp"
#undef count_of  // libfabric's
#include "measure/all.hpp"

namespace heddle::bench::libraries {
namespace {

using measure::Identity;

constexpr std::uint32_t kQueue = 256;           // as Heddle asks
constexpr std::uint32_t kReceives = 64;         // of an endpoint
constexpr std::size_t kMostMessage = 64 << 10;  // head included
constexpr std::uint32_t kPatience = 2000;       // looks in vain before the core is given away

void must(long answer, const char* what) {
  if (answer >= 0) return;
  std::fprintf(stderr, "bench_ofi: %s: %s\n", what, fi_strerror(static_cast<int>(-answer)));
  std::exit(1);
}

// A rank's data for the others, in memory that all share since before the fork.
struct Card {
  std::byte addresses[measure::kLanes][256];
  std::uint64_t base;  // of the memory, as accesses name it
  std::uint64_t keys[measure::kLanes];
};
struct Cards {
  std::atomic<std::uint32_t> arrived;  // in all meetings so far; partner: the others' acquire of it
  Card card[2];
};

const char* value_of(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

// The provider and the network that Heddle's ofi transport would use.
fi_info* choose_provider(bool threads) {
  fi_info* hints = fi_allocinfo();
  hints->caps = FI_MSG | FI_RMA;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->threading = threads ? FI_THREAD_SAFE : FI_THREAD_DOMAIN;
  hints->domain_attr->control_progress = hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints->domain_attr->av_type = FI_AV_TABLE;
  hints->domain_attr->mr_mode = FI_MR_ALLOCATED | FI_MR_VIRT_ADDR;
  hints->tx_attr->size = hints->rx_attr->size = kQueue;
  // In the order of the transport's table.
  for (const char* provider : {"cxi", "efa", "psm3", "opx", "psm2", "verbs;ofi_rxm", "tcp", "tcp;ofi_rxm"}) {
    const char* named = value_of("HEDDLE_OFI_PROVIDER");
    std::free(hints->fabric_attr->prov_name);
    hints->fabric_attr->prov_name = strdup(named != nullptr ? named : provider);
    fi_info* list = nullptr;
    if (fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &list) != 0) continue;
    const char* domain = value_of("HEDDLE_NET_DEVICES");
    for (fi_info* info = list; info != nullptr; info = info->next) {
      if (domain != nullptr && std::strcmp(info->domain_attr->name, domain) != 0) continue;
      fi_info* chosen = fi_dupinfo(info);
      fi_freeinfo(list);
      fi_freeinfo(hints);
      return chosen;
    }
    fi_freeinfo(list);
  }
  must(-FI_ENODATA, "fi_getinfo");
  return nullptr;
}

// The identity of an operation until its completion.
struct Slot {
  fi_context2 context{};      // first: libfabric's
  std::byte* data = nullptr;  // of a receive
  std::atomic<bool> busy{false};
};

// A domain with what is in it.
struct alignas(harness::kApart) Endpoint {
  fid_domain* domain = nullptr;
  fid_av* av = nullptr;
  fid_cq* cq = nullptr;
  fid_ep* ep = nullptr;
  fid_mr* mr = nullptr;
  fi_addr_t peers[2] = {};  // by rank
  std::unique_ptr<std::byte[]> memory;
  std::array<Slot, kReceives> receives;
};

// How lanes use endpoints: one each; one each, and completions are reported by a descriptor too, as
// a program needs it that may sleep; one for all.
enum class Sharing : std::uint8_t { own, descriptor, shared };

class Ofi {
 public:
  Ofi(Cards& cards, const harness::Channel& channel, std::uint64_t region_bytes, std::uint32_t lanes, Sharing sharing)
      : cards_(cards),
        rank_(channel.rank()),
        sharing_(sharing),
        shared_(sharing == Sharing::shared),
        info_(choose_provider(shared_)),
        memory_(static_cast<std::byte*>(std::aligned_alloc(4096, (region_bytes + 4095) / 4096 * 4096))),
        endpoints_(shared_ ? 1 : lanes),
        lanes_(lanes) {
    std::memset(memory_.get(), 0, region_bytes);
    must(fi_fabric(info_->fabric_attr, &fabric_, nullptr), "fi_fabric");
    for (std::uint32_t i = 0; i < endpoints_.size(); ++i) open(endpoints_[i], i, region_bytes);
    const bool by_address = (info_->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
    cards_.card[rank_].base = by_address ? reinterpret_cast<std::uint64_t>(memory_.get()) : 0;
    wait_for_all([] {});
    for (std::uint32_t i = 0; i < endpoints_.size(); ++i) {
      for (const std::uint32_t rank : {0, 1}) {
        const Card& card = cards_.card[rank];
        must(fi_av_insert(endpoints_[i].av, card.addresses[i], 1, &endpoints_[i].peers[rank], 0, nullptr) - 1,
             "fi_av_insert");
      }
    }
    for (std::uint32_t i = 0; i < lanes; ++i) lanes_[i].endpoint = &endpoints_[shared_ ? 0 : i];
    meet();
    // The first operation on an endpoint connects it; that takes both sides.
    for (std::uint32_t i = 0; i < endpoints_.size(); ++i) {
      set_word(i, 1 - rank_, measure::word_at(i), 0);
      quiet(i);
    }
    meet();
  }
  Ofi(const Ofi&) = delete;
  Ofi& operator=(const Ofi&) = delete;
  ~Ofi() {
    meet();
    for (Endpoint& endpoint : endpoints_) {
      for (fid* object :
           {&endpoint.ep->fid, &endpoint.mr->fid, &endpoint.cq->fid, &endpoint.av->fid, &endpoint.domain->fid}) {
        fi_close(object);
      }
    }
    fi_close(&fabric_->fid);
    fi_freeinfo(info_);
    wait_for_all([] {});
  }

  [[nodiscard]] Identity identity() const {
    constexpr const char* kNames[] = {"own", "descriptor", "shared"};
    return {"ofi", kNames[static_cast<int>(sharing_)], "allocated", !shared_, false, true};
  }
  [[nodiscard]] std::byte* own(std::uint64_t offset) const { return memory_.get() + offset; }

  // ---- puts and gets ----
  bool put(std::uint32_t lane, std::uint32_t to, std::uint64_t offset, const void* data, std::uint64_t bytes) {
    const Endpoint& at = endpoint(lane);
    const iovec local{const_cast<void*>(data), bytes};
    const fi_rma_iov remote{cards_.card[to].base + offset, bytes, key(lane, to)};
    start(lane, "fi_writemsg", [&](Slot& slot) {
      const fi_msg_rma message{&local, nullptr, 1, at.peers[to], &remote, 1, &slot.context, 0};
      // it is done when it is in the target's memory
      return fi_writemsg(at.ep, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE);
    });
    return true;
  }
  bool get(std::uint32_t lane, std::uint32_t from, std::uint64_t offset, void* data, std::uint64_t bytes) {
    const Endpoint& at = endpoint(lane);
    start(lane, "fi_read", [&](Slot& slot) {
      return fi_read(at.ep, data, bytes, nullptr, at.peers[from], cards_.card[from].base + offset, key(lane, from),
                     &slot.context);
    });
    return true;
  }
  void flush(std::uint32_t lane, std::uint32_t) { quiet(lane); }
  void quiet(std::uint32_t lane) {
    for (Slot& slot : lanes_[lane].slots) {
      wait_until(lane, [&slot] { return !slot.busy.load(std::memory_order_acquire); });
    }
  }
  bool put_signal(std::uint32_t lane, std::uint32_t to, std::uint64_t offset, const void* data, std::uint64_t bytes,
                  std::uint64_t word, std::uint64_t value) {
    put(lane, to, offset, data, bytes);
    quiet(lane);
    set_word(lane, to, word, value);
    return false;
  }
  void set_word(std::uint32_t lane, std::uint32_t to, std::uint64_t word, std::uint64_t value) {
    Lane& mine = lanes_[lane];
    std::uint64_t& source = mine.values[mine.next % kQueue];  // as long as its slot is
    source = value;
    put(lane, to, word, &source, sizeof source);
  }
  void meet() {
    wait_for_all([this] {
      for (Endpoint& each : endpoints_) read_queue(each);
    });
  }
  bool progress(std::uint32_t lane) { return read_queue(endpoint(lane)); }

  // ---- messages: whether it is to be answered, then the data ----
  void message(std::uint32_t lane, std::uint32_t to, const void* data, std::uint64_t bytes, bool answered) {
    struct Small {
      std::uint64_t answered;
      std::byte data[120];
    } small;
    const Endpoint& at = endpoint(lane);
    if (bytes > sizeof small.data || bytes + sizeof small.answered > info_->tx_attr->inject_size)
      return send_long(lane, to, data, bytes, answered);
    small.answered = answered ? 1 : 0;
    std::memcpy(small.data, data, bytes);
    long answer = 0;
    while ((answer = fi_inject(at.ep, &small, sizeof small.answered + bytes, at.peers[to])) == -FI_EAGAIN) {
      progress(lane);
    }
    must(answer, "fi_inject");
  }
  [[nodiscard]] std::uint64_t arrived(std::uint32_t lane) const {
    return lanes_[lane].arrived.load(std::memory_order_acquire);
  }
  void await(std::uint32_t lane, std::uint64_t count) {
    wait_until(lane, [&] { return arrived(lane) >= count; });
  }

 private:
  struct alignas(harness::kApart) Lane {
    Endpoint* endpoint = nullptr;
    std::uint64_t next = 0;  // slot
    std::array<Slot, kQueue> slots;
    std::array<std::uint64_t, kQueue> values{};
    std::unique_ptr<std::byte[]> lent;  // of long messages, by slot
    std::atomic<std::uint64_t> arrived{0};
  };
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };

  [[nodiscard]] Endpoint& endpoint(std::uint32_t lane) { return *lanes_[lane].endpoint; }
  [[nodiscard]] std::uint64_t key(std::uint32_t lane, std::uint32_t rank) const {
    return cards_.card[rank].keys[shared_ ? 0 : lane];
  }
  template <class Done>
  void wait_until(std::uint32_t lane, const Done& done) {
    for (std::uint32_t idle = 0; !done();) {
      idle = progress(lane) ? 0 : idle + 1;
      if (idle > kPatience) sched_yield();
    }
  }
  // By the lane's next slot, when that is free and libfabric has room.
  template <class Post>
  void start(std::uint32_t lane, const char* what, const Post& post) {
    Lane& mine = lanes_[lane];
    Slot& slot = mine.slots[mine.next++ % kQueue];
    wait_until(lane, [&slot] { return !slot.busy.load(std::memory_order_acquire); });
    slot.busy.store(true, std::memory_order_relaxed);
    long answer = 0;
    while ((answer = post(slot)) == -FI_EAGAIN) progress(lane);
    must(answer, what);
  }
  void send_long(std::uint32_t lane, std::uint32_t to, const void* data, std::uint64_t bytes, bool answered) {
    constexpr std::uint64_t kHead = sizeof(std::uint64_t);
    if (kHead + bytes > kMostMessage) must(-FI_EMSGSIZE, "a message");
    Lane& mine = lanes_[lane];
    const Endpoint& at = endpoint(lane);
    if (mine.lent == nullptr) mine.lent.reset(new std::byte[kQueue * kMostMessage]);
    std::byte* copy = mine.lent.get() + mine.next % kQueue * kMostMessage;
    const std::uint64_t head = answered ? 1 : 0;
    start(lane, "fi_send", [&](Slot& slot) {  // now the slot's bytes are free
      std::memcpy(copy, &head, kHead);
      std::memcpy(copy + kHead, data, bytes);
      return fi_send(at.ep, copy, kHead + bytes, nullptr, at.peers[to], &slot.context);
    });
  }

  void post(Endpoint& at, Slot& receive) {
    must(fi_recv(at.ep, receive.data, kMostMessage, nullptr, FI_ADDR_UNSPEC, &receive.context), "fi_recv");
  }
  bool read_queue(Endpoint& at) {
    std::array<fi_cq_msg_entry, 16> entries;
    const long count = fi_cq_read(at.cq, entries.data(), entries.size());
    if (count == -FI_EAGAIN) return false;
    must(count, "fi_cq_read");
    for (long i = 0; i < count; ++i) {
      const fi_cq_msg_entry& entry = entries[static_cast<std::size_t>(i)];
      if (entry.op_context == nullptr) continue;
      Slot& slot = *static_cast<Slot*>(entry.op_context);
      if (slot.data == nullptr) {
        slot.busy.store(false, std::memory_order_release);
      } else {
        on_message(slot.data, entry.len - sizeof(std::uint64_t));
        post(at, slot);
      }
    }
    return true;
  }
  void on_message(const std::byte* data, std::uint64_t bytes) {
    std::uint64_t words[2];  // whether to answer, the lane
    std::memcpy(words, data, sizeof words);
    const auto lane = static_cast<std::uint32_t>(words[1]);
    if (words[0] != 0) message(lane, 1 - rank_, data + sizeof words[0], bytes, false);
    lanes_[lane].arrived.fetch_add(1, std::memory_order_release);
  }

  template <class Progress>
  void wait_for_all(const Progress& progress) {
    const std::uint32_t target = ++meetings_ * 2;
    cards_.arrived.fetch_add(1, std::memory_order_acq_rel);
    while (static_cast<std::int32_t>(cards_.arrived.load(std::memory_order_acquire) - target) < 0) progress();
  }
  void open(Endpoint& at, std::uint32_t number, std::uint64_t region_bytes) {
    fi_av_attr av{};
    av.type = FI_AV_TABLE;
    fi_cq_attr cq{};
    cq.format = FI_CQ_FORMAT_MSG;
    cq.size = 2 * kQueue;
    cq.wait_obj = sharing_ == Sharing::descriptor ? FI_WAIT_FD : FI_WAIT_NONE;
    must(fi_domain(fabric_, info_, &at.domain, nullptr), "fi_domain");
    must(fi_av_open(at.domain, &av, &at.av, nullptr), "fi_av_open");
    must(fi_cq_open(at.domain, &cq, &at.cq, nullptr), "fi_cq_open");
    must(fi_endpoint(at.domain, info_, &at.ep, nullptr), "fi_endpoint");
    must(fi_ep_bind(at.ep, &at.av->fid, 0), "fi_ep_bind");
    must(fi_ep_bind(at.ep, &at.cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    must(fi_enable(at.ep), "fi_enable");
    must(fi_mr_reg(at.domain, memory_.get(), region_bytes, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, 0, &at.mr, nullptr),
         "fi_mr_reg");
    Card& mine = cards_.card[rank_];
    mine.keys[number] = fi_mr_key(at.mr);
    std::size_t bytes = sizeof mine.addresses[number];
    must(fi_getname(&at.ep->fid, mine.addresses[number], &bytes), "fi_getname");
    at.memory.reset(new std::byte[kReceives * kMostMessage]);
    for (std::uint32_t i = 0; i < kReceives; ++i) {
      at.receives[i].data = at.memory.get() + i * kMostMessage;
      post(at, at.receives[i]);
    }
  }

  static inline std::uint32_t meetings_ = 0;  // of all objects
  Cards& cards_;
  const std::uint32_t rank_;
  const Sharing sharing_;
  const bool shared_;
  fi_info* info_;
  fid_fabric* fabric_ = nullptr;
  std::unique_ptr<std::byte, Free> memory_;
  std::vector<Endpoint> endpoints_;
  std::vector<Lane> lanes_;
};

void run(harness::BenchSession& session, Cards& cards) {
  measure::Bench bench(session);
  const measure::Needs needs = measure::needs_of(session);
  for (const Sharing sharing : {Sharing::own, Sharing::descriptor, Sharing::shared}) {
    Ofi library(cards, session.channel(), needs.region_bytes, needs.lanes, sharing);
    bench.use(library);
    measure::network(bench, library, sharing != Sharing::shared, true);
  }
}

}  // namespace
}  // namespace heddle::bench::libraries

int main(int argc, char** argv) {
  using namespace heddle::bench;
  const harness::BenchOptions options = libraries::options_or_exit(argc, argv);
  harness::Channel channel = libraries::channel_or_exit(options);
  void* shared = mmap(nullptr, sizeof(libraries::Cards), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (options.processes != 2 || shared == MAP_FAILED) {
    std::fprintf(stderr, "%s: it needs 2 processes, and memory\n", argv[0]);
    return 2;
  }
  // The buffers of the layer over connections, as Heddle has them.
  for (const char* name : {"FI_OFI_RXM_MSG_RX_SIZE", "FI_OFI_RXM_MSG_TX_SIZE"}) setenv(name, "128", 0);
  for (const char* name : {"FI_OFI_RXM_RX_SIZE", "FI_OFI_RXM_TX_SIZE"}) setenv(name, "256", 0);
  return harness::run_group(channel, options.processes, [&](std::uint32_t) {
    harness::BenchSession session(channel, options, harness::print_sample);
    libraries::run(session, *static_cast<libraries::Cards*>(shared));
    return 0;
  });
}
