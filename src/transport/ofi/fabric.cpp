#include "transport/ofi/fabric.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>
#include <system_error>
#include <vector>

#include "transport/network/device.hpp"

namespace heddle::transport::ofi {

namespace {

// Sets variables that libfabric and its providers read once, when libfabric is first asked for
// providers, and for which there is no argument. The user's own values take precedence.
void set_variables() {
  // The libraries of PSM handle the signals of crashes once they are loaded, even where there is no
  // such network.
  setenv("IPATH_NO_BACKTRACE", "1", 0);
  setenv("HFI_NO_BACKTRACE", "1", 0);
  // The layer for providers that have connections makes its buffers by the thousand, 16 KiB each
  // otherwise. Ours need room for the longest message.
  setenv("FI_OFI_RXM_BUFFER_SIZE", std::to_string(kEagerBytes).c_str(), 0);
  // So does the provider tcp since 1.18. Only messages that find no receive buffer use them, and
  // longer ones then get memory of their own.
  setenv("FI_TCP_MAX_RX_SIZE", "1024", 0);
  setenv("FI_OFI_RXM_MSG_RX_SIZE", "128", 0);
  setenv("FI_OFI_RXM_MSG_TX_SIZE", "128", 0);
  setenv("FI_OFI_RXM_RX_SIZE", "256", 0);
  setenv("FI_OFI_RXM_TX_SIZE", "256", 0);
  // The connections of an endpoint share the buffers into which they receive, as they do over tcp
  // anyway. With buffers of their own, the layer posts one again to a connection that it has just
  // destroyed, if something arrives while that is closed: the process crashes (1.17 to 2.4,
  // libfabric's issue 11828).
  setenv("FI_OFI_RXM_USE_SRX", "1", 0);
}

}  // namespace

base::Result<const Library*> Library::open(const std::string& name) {
  return network::open_once<Library>(name, [&]() -> base::Result<std::unique_ptr<Library>> {
    std::unique_ptr<Library> library(new Library);
    if (const base::Status status = library->load(name); status != HEDDLE_DONE) return status;
    return library;
  });
}

base::Status Library::load(const std::string& name) {
  set_variables();
  const auto handle = network::load_library(name, "libfabric (Debian: libfabric1)", "HEDDLE_LIBRARIES=ofi=…");
  if (!handle) return handle.status();
  call_ = Functions(*handle);
  if (!call_.complete()) {
    return base::fail(HEDDLE_ERR_CONFIG, "\"%s\" is no libfabric, or one older than 1.17", name.c_str());
  }
  version_ = std::to_string(FI_MAJOR(call_.version())) + "." + std::to_string(FI_MINOR(call_.version()));
  if (!at_least(1, 17)) {
    return base::fail(HEDDLE_ERR_CONFIG, "\"%s\" is libfabric %s; 1.17 or newer is needed", name.c_str(),
                      version_.c_str());
  }
  return HEDDLE_DONE;
}

namespace {

// Operations under way in one endpoint, as libfabric counts them.
constexpr std::size_t kQueue = 256;
// How many bytes this transport wants to send without keeping them: a head and a short message.
constexpr std::size_t kInject = 128;

// Providers, the best first. The others are taken only if they are named: they are slower paths to
// what one of these reaches (net, sockets, udp;ofi_rxd), do not leave the machine (shm), or stand
// on what Heddle reaches itself (ucx).
constexpr std::array<std::string_view, 8> kBest = {"cxi",  "efa",           "psm3", "opx",
                                                   "psm2", "verbs;ofi_rxm", "tcp",  "tcp;ofi_rxm"};

// Those of them for adapters that only libfabric drives.
constexpr std::array<std::string_view, 5> kOwn = {"cxi", "efa", "psm3", "opx", "psm2"};

// Those of them whose adapters change words by themselves; see begin_atomic().
constexpr std::array<std::string_view, 1> kAtomics = {"cxi"};

std::size_t order_of(const fi_info& info) {
  const std::string_view name(info.fabric_attr->prov_name);
  return static_cast<std::size_t>(std::ranges::find(kBest, name) - kBest.begin());
}

// Optional abilities that are asked for, besides those that this transport needs.
struct Wish {
  std::size_t inject = 0;
  bool atomics = false;
};

Info ask_for(const Library& library, const char* provider, const Wish& wish) {
  Info hints(library.call().dupinfo(nullptr), {&library});
  if (hints == nullptr) return hints;
  hints->caps = FI_MSG | FI_RMA | (wish.atomics ? FI_ATOMIC : 0);
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  // Regions are registered by any thread, also in the domains of workers.
  hints->domain_attr->threading = FI_THREAD_SAFE;
  hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;  // tcp would start a thread by itself
  hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints->domain_attr->av_type = FI_AV_TABLE;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_VIRT_ADDR | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
  hints->tx_attr->msg_order = FI_ORDER_SAS;
  hints->rx_attr->msg_order = FI_ORDER_SAS;
  hints->tx_attr->size = hints->rx_attr->size = kQueue;
  hints->tx_attr->inject_size = wish.inject;
  if (provider != nullptr) hints->fabric_attr->prov_name = strdup(provider);
  return hints;
}

// All that libfabric offers; null: nothing.
Info offers(const Library& library, const char* provider, const Wish& wish, int* answer) {
  const Info hints = ask_for(library, provider, wish);
  fi_info* list = nullptr;
  *answer = hints != nullptr ? library.call().getinfo(kApi, nullptr, nullptr, 0, hints.get(), &list) : -FI_ENOMEM;
  return {list, {&library}};
}

bool is_named(const fi_info& info, const std::string& domain) {
  return domain.empty() || domain == info.domain_attr->name;
}

// libfabric puts the networks of one provider in their order, with the loopback interface last.
const fi_info* best_of(const fi_info* list, const std::string& domain, bool named) {
  const fi_info* best = nullptr;
  for (const fi_info* info = list; info != nullptr; info = info->next) {
    if (!is_named(*info, domain) || (!named && order_of(*info) == kBest.size())) continue;
    if (best == nullptr || order_of(*info) < order_of(*best)) best = info;
  }
  return best;
}

std::string name_of(const fi_info& info) {
  return std::string(info.fabric_attr->prov_name) + " (" + info.domain_attr->name + ")";
}

// The layer for providers with connections sends messages longer than these limits in steps of its
// own, and shorter messages overtake them: messages would arrive out of order.
base::Status check_layer(const std::string& provider) {
  if (provider.find("ofi_rxm") == std::string::npos) return HEDDLE_DONE;
  for (const char* name : {"FI_OFI_RXM_BUFFER_SIZE", "FI_OFI_RXM_EAGER_LIMIT"}) {
    const char* text = std::getenv(name);
    if (text != nullptr && std::strtoull(text, nullptr, 0) < kEagerBytes)
      return base::fail(HEDDLE_ERR_CONFIG, "%s is \"%s\"; the ofi transport needs at least %u", name, text,
                        kEagerBytes);
  }
  return HEDDLE_DONE;
}

// Whether threads can sleep until something arrives. Only an open queue shows that. If none can be
// opened for other reasons, that does not speak against the provider.
bool has_descriptor(const Library& library, const fi_info* offered) {
  const Info info(library.call().dupinfo(offered), {&library});
  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;
  fid_cq* queue = nullptr;
  if (info == nullptr || library.call().fabric(info->fabric_attr, &fabric, nullptr) != 0) return true;
  fi_cq_attr wanted{};
  wanted.format = FI_CQ_FORMAT_MSG;
  wanted.wait_obj = FI_WAIT_FD;
  int descriptor = -1;
  int answer = 0;
  if (fi_domain(fabric, info.get(), &domain, nullptr) == 0) {
    answer = fi_cq_open(domain, &wanted, &queue, nullptr);
    if (answer == 0) answer = fi_control(&queue->fid, FI_GETWAIT, &descriptor);
    if (queue != nullptr) fi_close(&queue->fid);
    fi_close(&domain->fid);
  }
  fi_close(&fabric->fid);
  return answer != -FI_ENOSYS;
}

// libfabric's own variable hides all others.
std::string filter_of_providers() {
  const char* filter = std::getenv("FI_PROVIDER");
  if (filter == nullptr) return {};
  return std::string("; FI_PROVIDER=") + filter + " hides others";
}

}  // namespace

base::Result<Info> choose_provider(const Library& library, const base::Config& config, Atomics atomics) {
  const std::string& provider = config.text(base::Var::ofi_provider);
  const std::string domain = network::named_devices(config);
  int answer = 0;
  Info list = offers(library, provider.empty() ? nullptr : provider.c_str(), {}, &answer);
  const fi_info* best = list != nullptr ? best_of(list.get(), domain, !provider.empty()) : nullptr;
  if (best == nullptr) {
    return base::fail(
        HEDDLE_ERR_CONFIG,
        "libfabric %s has no provider for HEDDLE_OFI_PROVIDER=\"%s\", HEDDLE_NET_DEVICES=\"%s\" (%s); it has "
        "%s%s",
        library.version().c_str(), provider.c_str(), domain.c_str(),
        answer != 0 ? library.why(answer) : "no such domain", list_providers(library).c_str(),
        filter_of_providers().c_str());
  }
  // Asks once more, for that provider alone: how many bytes it takes without keeping them is asked
  // by name. Some providers take fewer than we want, or lack something that we want.
  const std::string chosen = best->fabric_attr->prov_name;
  if (const base::Status status = check_layer(chosen); status != HEDDLE_DONE) return status;
  const bool own_atomics = atomics == Atomics::by_network && std::ranges::find(kAtomics, chosen) != kAtomics.end();
  for (const Wish& wish : {Wish{.inject = kInject, .atomics = own_atomics}, Wish{.inject = kInject}, Wish{}}) {
    const Info detailed = offers(library, chosen.c_str(), wish, &answer);
    for (const fi_info* info = detailed.get(); info != nullptr; info = info->next) {
      if (name_of(*info) != name_of(*best) || info->addr_format != best->addr_format) continue;
      if (Info copy(library.call().dupinfo(info), {&library}); copy != nullptr) return copy;
      return base::fail(HEDDLE_ERR_NO_MEMORY, "no memory for libfabric's description of %s", chosen.c_str());
    }
  }
  return base::fail(HEDDLE_ERR_SYSTEM, "libfabric's provider %s is gone (%s)", chosen.c_str(), library.why(answer));
}

// Adapters are renamed after their PCI slots (rdmap0s6), so it is their drivers that tell.
bool has_own_adapter(const std::filesystem::path& classes) {
  std::error_code none;
  if (std::filesystem::exists(classes / "cxi", none)) return true;
  std::filesystem::directory_iterator adapters(classes / "infiniband", none);
  for (; !none && adapters != std::filesystem::directory_iterator(); adapters.increment(none)) {
    std::error_code unknown;
    const std::string driver = std::filesystem::read_symlink(adapters->path() / "device/driver", unknown).filename();
    if (driver == "efa" || driver == "hfi1") return true;
  }
  return false;
}

bool drives_own_adapter(std::string_view provider) {
  return std::ranges::find(kOwn, provider) != kOwn.end();
}

std::string list_providers(const Library& library) {
  int answer = 0;
  const Info list = offers(library, nullptr, {}, &answer);
  std::vector<const fi_info*> all;
  for (const fi_info* info = list.get(); info != nullptr; info = info->next) all.push_back(info);
  for (std::size_t i = 1; i < all.size(); ++i) {  // the order of equal ones stays
    for (std::size_t k = i; k > 0 && order_of(*all[k]) < order_of(*all[k - 1]); --k) std::swap(all[k], all[k - 1]);
  }
  std::string text;
  std::string unfit;
  for (const fi_info* info : all) {
    const std::string name = name_of(*info);
    if (text.find(name) != std::string::npos || unfit.find(name) != std::string::npos) continue;
    std::string& list_of = has_descriptor(library, info) ? text : unfit;
    list_of += (list_of.empty() ? "" : ", ") + name;
  }
  if (text.empty()) text = "none";
  if (unfit.empty()) return text;
  return text + "; these do not serve Heddle, for want of a descriptor on which a thread could sleep: " + unfit;
}

base::Result<DomainPlan> plan_domains(int mr_mode, const std::string& asked) {
  DomainPlan plan;
  plan.local = (mr_mode & FI_MR_LOCAL) != 0;
  plan.provider_keys = (mr_mode & FI_MR_PROV_KEY) != 0;
  plan.by_endpoint = (mr_mode & FI_MR_ENDPOINT) != 0;
  plan.by_address = (mr_mode & FI_MR_VIRT_ADDR) != 0;
  // A packed region has room for one key.
  const bool needs_one = plan.provider_keys && !plan.by_endpoint;
  plan.shared = asked == "shared" || (asked == "auto" && (plan.provider_keys || plan.by_endpoint));
  if (asked != "auto" && asked != "shared" && asked != "worker") {
    return base::fail(HEDDLE_ERR_CONFIG, "HEDDLE_OFI_DOMAINS is \"%s\"; worker, shared or auto", asked.c_str());
  }
  if (needs_one && !plan.shared) {
    return base::fail(HEDDLE_ERR_CONFIG,
                      "HEDDLE_OFI_DOMAINS=worker, but this provider of libfabric chooses the keys of regions itself: "
                      "all workers of a rank need one domain; set auto");
  }
  return plan;
}

std::string DomainPlan::describe() const {
  std::string text = shared ? "one domain" : "a domain per worker";
  if (local) text += ", local memory registered";
  if (by_endpoint) text += ", regions at the device's endpoint";
  return text;
}

base::Status Fabric::open() {
  int answer = library_.call().fabric(info_->fabric_attr, &fabric_, nullptr);
  if (answer != 0) fabric_ = nullptr;
  if (answer == 0 && plan_.shared && (answer = open_domain(&domain_)) != 0) domain_ = nullptr;
  if (answer == 0) return HEDDLE_DONE;
  return base::fail(answer == -FI_ENOMEM ? HEDDLE_ERR_NO_MEMORY : HEDDLE_ERR_SYSTEM,
                    "libfabric opens no fabric %s of %s: %s", info_->fabric_attr->name, info_->fabric_attr->prov_name,
                    library_.why(answer));
}

void Fabric::close() {
  if (domain_ != nullptr) static_cast<void>(fi_close(&domain_->fid));
  if (fabric_ != nullptr) static_cast<void>(fi_close(&fabric_->fid));
  domain_ = nullptr;
  fabric_ = nullptr;
}

int Fabric::add(const Scope& scope, const Memory& memory, fid_mr** mr) const {
  int answer = fi_mr_reg(scope.domain, memory.address, memory.bytes, memory.access, 0, memory.key, 0, mr, nullptr);
  if (answer != 0 || scope.endpoint == nullptr) return answer;
  // It is of no use before it has its endpoint.
  answer = fi_mr_bind(*mr, &scope.endpoint->fid, 0);
  if (answer == 0) answer = fi_mr_enable(*mr);
  if (answer != 0) static_cast<void>(fi_close(&(*mr)->fid));
  return answer;
}

}  // namespace heddle::transport::ofi
