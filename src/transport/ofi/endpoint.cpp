#include "transport/ofi/endpoint.hpp"

#include <new>

#include "transport/network/wire.hpp"

namespace heddle::transport::ofi {
namespace {

constexpr int kMostAttempts = 16;  // to open an endpoint
constexpr std::size_t kStride = (sizeof(Receive) + kEagerBytes + 63) & ~std::size_t{63};
static_assert(kEagerBytes >= sizeof(network::Head) + network::kMostMessage);

}  // namespace

base::Status Endpoint::fail(const char* what, long answer) const {
  const bool memory = answer == -FI_ENOMEM;
  return base::fail(memory ? HEDDLE_ERR_NO_MEMORY : HEDDLE_ERR_SYSTEM,
                    "libfabric's provider %s gives no %s: %s; it needs memory, descriptors (ulimit -n) and over TCP a "
                    "free port",
                    fabric_->info()->fabric_attr->prov_name, what, fabric_->library().why(answer));
}

base::Status Endpoint::open(Fabric& fabric) {
  fabric_ = &fabric;
  domain_ = fabric.domain();
  if (domain_ == nullptr) {
    if (const int answer = fabric.open_domain(&domain_); answer != 0) return fail("domain", answer);
  }
  if (const base::Status status = open_queue(); status != HEDDLE_DONE) return status;
  if (const base::Status status = find_address(); status != HEDDLE_DONE) return status;
  return post_receives();
}

base::Status Endpoint::open_queue() {
  fi_info* info = fabric_->info();
  fi_av_attr av{};
  av.type = FI_AV_TABLE;
  if (const int answer = fi_av_open(domain_, &av, &av_, nullptr); answer != 0) return fail("address vector", answer);
  fi_cq_attr cq{};
  cq.format = FI_CQ_FORMAT_MSG;
  cq.wait_obj = FI_WAIT_FD;
  cq.size = info->tx_attr->size + info->rx_attr->size;
  int wanted = fi_cq_open(domain_, &cq, &cq_, nullptr);
  if (wanted != 0 && wanted != -FI_ENOSYS) return fail("completion queue", wanted);
  if (wanted == 0) wanted = fi_control(&cq_->fid, FI_GETWAIT, &descriptor_);
  if (wanted != 0) {
    return base::fail(HEDDLE_ERR_CONFIG,
                      "libfabric's provider %s has no descriptor on which a thread could sleep (%s); name another with "
                      "HEDDLE_OFI_PROVIDER",
                      info->fabric_attr->prov_name, fabric_->library().why(wanted));
  }
  int answer = open_endpoint();
  for (int more = kMostAttempts - 1; answer == -FI_EADDRINUSE && more > 0; --more) answer = open_endpoint();
  return answer == 0 ? HEDDLE_DONE : fail("endpoint", answer);
}

// Over TCP, two endpoints that are opened at once, by any processes of the machine, may be given
// one port. Only the first can listen on it (FI_EADDRINUSE).
int Endpoint::open_endpoint() {
  int answer = fi_endpoint(domain_, fabric_->info(), &ep_, nullptr);
  if (answer != 0) {
    ep_ = nullptr;
    return answer;
  }
  answer = fi_ep_bind(ep_, &av_->fid, 0);
  if (answer == 0) answer = fi_ep_bind(ep_, &cq_->fid, FI_TRANSMIT | FI_RECV);
  if (answer == 0) answer = fi_enable(ep_);
  if (answer != 0) fi_close(&std::exchange(ep_, nullptr)->fid);
  return answer;
}

base::Status Endpoint::find_address() {
  std::size_t bytes = 0;
  static_cast<void>(fi_getname(&ep_->fid, nullptr, &bytes));  // says how many
  address_.resize(bytes);
  const int answer = fi_getname(&ep_->fid, address_.data(), &bytes);
  return answer == 0 ? HEDDLE_DONE : fail("address", answer);
}

base::Status Endpoint::post_receives() {
  memory_.reset(new (std::nothrow) std::byte[kStride * kReceives]);
  if (memory_ == nullptr) return fail("memory", -FI_ENOMEM);
  if (const auto status = add_buffers(memory_.get(), kStride * kReceives, &descriptor_of_memory_);
      status != HEDDLE_DONE)
    return status;
  for (std::uint32_t i = 0; i < kReceives; ++i) post(new (memory_.get() + i * kStride) Receive);
  return HEDDLE_DONE;
}

// ---- registered memory --------------------------------------------------------------------------

base::Status Endpoint::add_buffers(const void* memory, std::size_t bytes, void** descriptor) {
  if (!fabric_->plan().local) return HEDDLE_DONE;
  buffers_.reserve(buffers_.size() + 1);
  fid_mr* mr = nullptr;
  constexpr std::uint64_t kUses = FI_SEND | FI_RECV | FI_READ | FI_WRITE;
  if (const int answer = fabric_->add(scope(), {memory, bytes, kUses, fabric_->new_key()}, &mr); answer != 0)
    return fail("registered memory", answer);
  buffers_.push_back(mr);
  *descriptor = fi_mr_desc(mr);
  return HEDDLE_DONE;
}

void Endpoint::open_callers_memory(const base::Environment& environment) {
  if (fabric_->plan().local) callers_.emplace(*fabric_, scope(), environment.config, environment.log);
}

// Some providers accept no flag. So only an address that was rejected is inserted again with the
// flag that asks why.
long Endpoint::insert(std::span<const std::byte> address, fi_addr_t* number) {
  int answer = fi_av_insert(av_, address.data(), 1, number, 0, nullptr);
  int why = 0;
  if (answer == 0 && fi_av_insert(av_, address.data(), 1, number, FI_SYNC_ERR, &why) == 1) answer = 1;
  if (answer == 1) return 0;
  *number = FI_ADDR_NOTAVAIL;
  if (answer == 0) answer = why > 0 ? -why : why;
  return answer < 0 ? answer : -FI_EOTHER;
}

// ---- progress -----------------------------------------------------------------------------------

[[gnu::cold]] void Endpoint::post_again() {
  for (Receive* receive = std::exchange(unposted_, nullptr); receive != nullptr;) {
    post(std::exchange(receive, receive->next));
  }
}

[[gnu::cold]] bool Endpoint::take_error(fi_cq_err_entry* error) {
  return fi_cq_readerr(cq_, error, 0) > 0;
}

bool Endpoint::arm() {
  fid* queue = &cq_->fid;
  return fi_trywait(fabric_->fabric(), &queue, 1) == FI_SUCCESS;
}

namespace {

template <class Object>
bool end(Object** object) {
  if (*object != nullptr && fi_close(&(*object)->fid) != 0) return false;
  *object = nullptr;
  return true;
}

}  // namespace

void Endpoint::stop() {
  if (kept_ || end(&ep_)) return;
  kept_ = true;
  ep_ = nullptr;
  if (callers_.has_value()) callers_->keep();
}

void Endpoint::close() {
  stop();
  callers_.reset();
  if (!kept_) {
    for (fid_mr* mr : buffers_) static_cast<void>(fi_close(&mr->fid));
    kept_ = !end(&cq_) || !end(&av_);
    const bool own = domain_ != nullptr && domain_ != fabric_->domain();
    kept_ = kept_ || (own && !end(&domain_));
  }
  if (kept_) static_cast<void>(memory_.release());
  buffers_.clear();
  cq_ = nullptr;
  av_ = nullptr;
  domain_ = nullptr;
}

}  // namespace heddle::transport::ofi
