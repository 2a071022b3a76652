// One endpoint of libfabric with its address vector and completion queue, the buffers into which it
// receives, the memory that is registered for it, and its domain, if it has one of its own
// (DomainPlan). The device has one for notes, each port has one.
//
// Domains are open for all threads, since any thread may register a region in them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "transport/network/lists.hpp"
#include "transport/ofi/fabric.hpp"
#include "transport/ofi/memory.hpp"

namespace heddle::transport::ofi {

// The context by which libfabric names an operation until its completion. Its first part is
// libfabric's.
struct OperationContext {
  enum class Kind : std::uint8_t { receive, packet, transfer, note };
  fi_context2 context{};
  Kind kind;
  // A put or get that only has to report its end.
  bool usual_transfer;

  explicit OperationContext(Kind of) : kind(of), usual_transfer(of == Kind::transfer) {}
  [[nodiscard]] static OperationContext* of(void* context) { return static_cast<OperationContext*>(context); }
};
static_assert(offsetof(OperationContext, context) == 0);

// A buffer into which one message arrives; the bytes follow it.
struct Receive : OperationContext {
  Receive* next = nullptr;
  Receive() : OperationContext(Kind::receive) {}
};

class Endpoint {
 public:
  static constexpr std::size_t kEntries = 32;  // completions that are read at once
  // How many messages may arrive between two polls; more of them wait in libfabric.
  static constexpr std::uint32_t kReceives = 64;

  Endpoint() = default;
  ~Endpoint() { close(); }
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // SYSTEM, NO_MEMORY, CONFIG.
  base::Status open(Fabric& fabric);
  // Registers memory that is sent from, or received into, until close(), if the provider wants
  // that; else *descriptor stays null. Before that, it is not moved or freed.
  base::Status add_buffers(const void* memory, std::size_t bytes, void** descriptor);
  // The same for the caller's memory: opens the object that callers_memory() then returns. It
  // throws std::bad_alloc.
  void open_callers_memory(const base::Environment& environment);
  // Cancels everything under way: libfabric uses no memory any more, unless the endpoint is kept()
  // now. If it is, all that is registered stays until the process ends.
  void stop();
  // Stops it, and closes the rest. Nobody has memory from callers_memory() any more.
  void close();

  [[nodiscard]] fid_ep* ep() const { return ep_; }
  [[nodiscard]] fid_domain* domain() const { return domain_; }
  // The scope of regions that are registered for this endpoint.
  [[nodiscard]] Scope scope() const { return {domain_, fabric_->plan().by_endpoint ? ep_ : nullptr}; }
  // Null: the provider wants none of it registered.
  [[nodiscard]] CallersMemory* callers_memory() { return callers_.has_value() ? &*callers_ : nullptr; }
  [[nodiscard]] const network::Bytes& address() const { return address_; }
  [[nodiscard]] int descriptor() const { return descriptor_; }
  // Gets the number of a peer's endpoint. Negative: the reason why libfabric rejects the address.
  long insert(std::span<const std::byte> address, fi_addr_t* number);
  // libfabric has not closed it, and may go on to write to all that it was given: receive
  // buffers, operations, the caller's memory. The owner of such memory keeps it until the process
  // ends.
  [[nodiscard]] bool kept() const { return kept_; }

  // Hands out finished operations to these functions of the sink:
  //   on_receive(data, bytes)   a message; its bytes are there until this returns. Null: one that
  //                             is longer than any of this job
  //   on_done(entry, end)       messages, puts and gets are done, the first one at least; returns
  //                             the first entry that is left
  //   on_finished(operation, error)   it has failed with libfabric's positive number
  // Returns how much there was; less than kEntries: that was all.
  template <class Sink>
  std::size_t progress(Sink& sink);
  // The descriptor will report the next completion. False: there is something now.
  [[nodiscard]] bool arm();

 private:
  base::Status fail(const char* what, long answer) const;
  base::Status open_queue();
  int open_endpoint();
  base::Status find_address();
  base::Status post_receives();
  void post(Receive* receive);
  void post_again();
  static std::byte* bytes_of(Receive* receive) { return reinterpret_cast<std::byte*>(receive + 1); }
  bool take_error(fi_cq_err_entry* error);
  template <class Sink>
  [[gnu::cold]] std::size_t hand_out_error(Sink& sink);

  Fabric* fabric_ = nullptr;  // the device's
  fid_domain* domain_ = nullptr;
  fid_av* av_ = nullptr;
  fid_cq* cq_ = nullptr;
  fid_ep* ep_ = nullptr;
  int descriptor_ = -1;
  network::Bytes address_;
  std::unique_ptr<std::byte[]> memory_;  // of the receives
  void* descriptor_of_memory_ = nullptr;
  Receive* unposted_ = nullptr;  // that libfabric did not take; posted by a later progress
  std::vector<fid_mr*> buffers_;
  std::optional<CallersMemory> callers_;
  bool kept_ = false;  // libfabric has not let go
};

inline void Endpoint::post(Receive* receive) {
  if (fi_recv(ep_, bytes_of(receive), kEagerBytes, descriptor_of_memory_, FI_ADDR_UNSPEC, &receive->context) == 0)
      [[likely]]
    return;
  receive->next = unposted_;
  unposted_ = receive;
}

template <class Sink>
inline std::size_t Endpoint::progress(Sink& sink) {
  if (unposted_ != nullptr) [[unlikely]]
    post_again();
  std::array<fi_cq_msg_entry, kEntries> entries;  // NOLINT(cppcoreguidelines-pro-type-member-init): written by the call
  const ssize_t count = fi_cq_read(cq_, entries.data(), entries.size());
  if (count <= 0) return count == -FI_EAVAIL ? hand_out_error(sink) : 0;
  const fi_cq_msg_entry* const end = entries.data() + count;
  for (const fi_cq_msg_entry* entry = entries.data(); entry != end;) {
    OperationContext* operation = OperationContext::of(entry->op_context);
    if (operation->kind != OperationContext::Kind::receive) {
      entry = sink.on_done(entry, end);
      continue;
    }
    auto* receive = static_cast<Receive*>(operation);
    sink.on_receive(bytes_of(receive), entry->len);
    post(receive);
    ++entry;
  }
  return static_cast<std::size_t>(count);
}

template <class Sink>
std::size_t Endpoint::hand_out_error(Sink& sink) {
  fi_cq_err_entry error{};
  if (!take_error(&error)) return 0;
  if (error.op_context == nullptr) return kEntries;  // of a message that libfabric has copied
  OperationContext* operation = OperationContext::of(error.op_context);
  if (operation->kind != OperationContext::Kind::receive) {
    sink.on_finished(*operation, error.err != 0 ? error.err : FI_EOTHER);
    return kEntries;
  }
  if (error.err == FI_ETRUNC) sink.on_receive(nullptr, error.len + error.olen);
  post(static_cast<Receive*>(operation));
  return kEntries;
}

}  // namespace heddle::transport::ofi
