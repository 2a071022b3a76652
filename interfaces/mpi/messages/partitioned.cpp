// Partitioned communication, by the engine's. A type that is not contiguous is packed part by part.
#include <algorithm>
#include <new>
#include <vector>

#include <units/partitioned.hpp>
#include "mpi/messages/message.hpp"
#include "mpi/messages/request.hpp"

namespace heddle::mpi {
namespace {

constexpr std::int64_t kNoWait = 0;

class Partitioned final : public MpiOperation {
 public:
  Partitioned(Comm& comm, const Data& part, std::uint32_t parts, int peer, int tag)
      : comm_(comm), part_(part), parts_(parts), peer_(peer), tag_(tag), states_(parts) {
    retain(part_.type);
  }
  ~Partitioned() override {
    if (handle_.id != 0) static_cast<void>(heddle_partitioned_free(handle_));
    release(part_.type);
  }
  int init(bool sends) {
    sends_ = sends;
    if (peer_ == MPI_PROC_NULL) return MPI_SUCCESS;
    void* data = begin_of(part_.buffer, *part_.type);
    if (!part_.type->contiguous && part_.bytes() != 0) {
      packed_.reset(new (std::nothrow) std::byte[part_.bytes() * parts_]);
      if (packed_ == nullptr) return error(MPI_ERR_NO_MEM, "no memory to pack %u parts", parts_);
      data = packed_.get();
    }
    const MemberAddress& member = comm_.members[static_cast<std::size_t>(peer_)];
    const heddle_worker worker = comm_.lane->worker;
    return code_of(sends ? heddle_psend_init(worker, data, parts_, part_.bytes(), member.peer,
                                             wire_tag(member.number, tag_), &handle_)
                         : heddle_precv_init(worker, data, parts_, part_.bytes(), member.peer,
                                             wire_tag(comm_.number, tag_), &handle_));
  }
  [[nodiscard]] Kind kind() const override { return Kind::partitioned; }
  int start() override {
    for (auto& state : states_) state.store(Part::packed, std::memory_order_relaxed);
    running_ = true;
    return peer_ == MPI_PROC_NULL ? MPI_SUCCESS : code_of(heddle_partitioned_start(handle_));
  }
  bool test(Outcome* outcome) override {
    *outcome = {peer_, tag_, MPI_SUCCESS, 0, false};
    if (peer_ == MPI_PROC_NULL) {
      *outcome = kNoProcess;
      running_ = false;
      return true;
    }
    const heddle_status status = heddle_partitioned_wait(handle_, kNoWait);
    if (status == HEDDLE_ERR_TIMEOUT) {
      progress(lane());
      return false;
    }
    outcome->code = code_of(status);
    if (outcome->code == MPI_SUCCESS && !unpack_all()) return false;
    running_ = false;
    if (outcome->code != MPI_SUCCESS) return true;
    if (!sends_) outcome->bytes = static_cast<MPI_Count>(received());
    return true;
  }
  Lane& lane() override { return *comm_.lane; }
  Comm* comm() override { return &comm_; }

  int ready(int low, int high) {
    if (const int code = check(low, high, true); code != MPI_SUCCESS) return code;
    if (peer_ == MPI_PROC_NULL) return MPI_SUCCESS;
    for (int i = low; packed_ != nullptr && i <= high; ++i) {
      const auto at = static_cast<std::size_t>(i) * part_.bytes();
      pack(address(static_cast<std::uint32_t>(i)), part_.count, *part_.type, packed_.get() + at);
    }
    return code_of(heddle_pready_range(handle_, static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(high)));
  }
  int arrived(int partition, int* flag) {
    if (const int code = check(partition, partition, false); code != MPI_SUCCESS) return code;
    *flag = 1;
    if (peer_ == MPI_PROC_NULL || !running_) return MPI_SUCCESS;
    const heddle_status status = heddle_parrived(handle_, static_cast<std::uint32_t>(partition));
    *flag = status == HEDDLE_DONE && unpack_one(static_cast<std::uint32_t>(partition)) ? 1 : 0;
    return code_of(status);
  }

 private:
  enum class Part : std::uint8_t { packed, unpacking, unpacked };

  int check(int low, int high, bool sends) const {
    if (sends != sends_) return error(MPI_ERR_REQUEST, "the request is a partitioned %s", sends_ ? "send" : "receive");
    if (low < 0 || high < low || high >= static_cast<int>(parts_))
      return error(MPI_ERR_ARG, "partitions %d-%d: the operation has 0-%u", low, high, parts_ - 1);
    return MPI_SUCCESS;
  }
  [[nodiscard]] std::byte* address(std::uint32_t part) const {
    return static_cast<std::byte*>(part_.buffer) + static_cast<std::ptrdiff_t>(part) * part_.count * part_.type->extent;
  }
  // The bytes that the sender has sent, at most as many as there is room for. Known when a part has
  // arrived.
  [[nodiscard]] std::size_t received() const {
    std::uint64_t bytes = 0;
    static_cast<void>(heddle_partitioned_bytes(handle_, &bytes));
    return static_cast<std::size_t>(bytes);
  }
  // False: another thread is unpacking it.
  bool unpack_one(std::uint32_t part) {
    if (packed_ == nullptr) return true;
    Part seen = Part::packed;
    if (!states_[part].compare_exchange_strong(seen, Part::unpacking, std::memory_order_acquire))
      return seen == Part::unpacked;
    const std::size_t before = part * part_.bytes();
    const std::size_t all = received();
    const std::size_t bytes = all <= before ? 0 : std::min(part_.bytes(), all - before);
    if (bytes > 0)
      unpack(packed_.get() + before, static_cast<MPI_Count>(bytes), address(part), part_.count, *part_.type);
    states_[part].store(Part::unpacked, std::memory_order_release);
    return true;
  }
  // False: other threads are unpacking some parts.
  bool unpack_all() {
    bool all = true;
    for (std::uint32_t i = 0; !sends_ && i < parts_; ++i) all = unpack_one(i) && all;
    return all;
  }

  Comm& comm_;
  const Data part_;
  const std::uint32_t parts_;
  const int peer_;
  const int tag_;
  bool sends_ = false;
  std::atomic<bool> running_{false};
  heddle_partitioned handle_{};
  std::unique_ptr<std::byte[]> packed_;
  // By part, for this run. Release: a thread has unpacked it; acquire: a thread reports that it has
  // arrived.
  std::vector<std::atomic<Part>> states_;
};

struct Init {
  bool sends;
  int partitions;
  int peer;
  int tag;
};

int init_partitioned(Call call, const Init& what, void* buf, MPI_Count count, MPI_Datatype datatype, MPI_Comm handle,
                     MPI_Request* request) {
  if (const int code = check_running(); code != MPI_SUCCESS) return report(call, code);
  Comm* const comm = comm_of(handle);
  if (comm == nullptr) return report(call, bad_comm(handle));
  if (request == nullptr) return report(call, comm, null_argument("request"));
  Data part;
  int code = check_target(*comm, what.peer, what.sends ? "dest" : "source");
  if (code == MPI_SUCCESS) code = check_tag(what.tag);
  if (code == MPI_SUCCESS) code = read_data(buf, count, datatype, &part);
  if (code == MPI_SUCCESS && what.partitions <= 0)
    code = error(MPI_ERR_ARG, "partitions %d: one at least", what.partitions);
  if (code == MPI_SUCCESS && part.bytes() > std::size_t{kMostBytes} / static_cast<std::uint32_t>(what.partitions))
    code = error(MPI_ERR_COUNT, "count %lld: %d partitions of %zu bytes each; at most 2^48 bytes are moved at once",
                 static_cast<long long>(count), what.partitions, part.bytes());
  if (code != MPI_SUCCESS) return report(call, comm, code);
  auto operation =
      std::make_unique<Partitioned>(*comm, part, static_cast<std::uint32_t>(what.partitions), what.peer, what.tag);
  code = operation->init(what.sends);
  if (code == MPI_SUCCESS) code = new_request(std::move(operation), true, request);
  return told(call, comm, code);
}

// The operation of a request; null: it is none of these.
Partitioned* partitioned_of(MPI_Request handle) {
  Request* const request = request_of(handle);
  MpiOperation* const operation = request == nullptr ? nullptr : request->operation.get();
  const bool is_one = operation != nullptr && operation->kind() == MpiOperation::Kind::partitioned;
  return is_one ? static_cast<Partitioned*>(operation) : nullptr;
}

int bad(MPI_Request handle) {
  if (request_of(handle) == nullptr) return bad_request(handle);
  return error(MPI_ERR_REQUEST, "the request is not a partitioned operation");
}

}  // namespace

int psend_init(Call call, const void* buf, int partitions, MPI_Count count, MPI_Datatype datatype, int dest, int tag,
               MPI_Comm comm, MPI_Info /*info*/, MPI_Request* request) {
  return init_partitioned(call, {true, partitions, dest, tag}, const_cast<void*>(buf), count, datatype, comm, request);
}

int precv_init(Call call, void* buf, int partitions, MPI_Count count, MPI_Datatype datatype, int source, int tag,
               MPI_Comm comm, MPI_Info /*info*/, MPI_Request* request) {
  return init_partitioned(call, {false, partitions, source, tag}, buf, count, datatype, comm, request);
}

int pready(Call call, int partition, MPI_Request request) {
  return pready_range(call, partition, partition, request);
}

int pready_range(Call call, int partition_low, int partition_high, MPI_Request request) {
  if (const int code = check_running(); code != MPI_SUCCESS) return report(call, code);
  Partitioned* const operation = partitioned_of(request);
  if (operation == nullptr) return report(call, bad(request));
  return told(call, operation->comm(), operation->ready(partition_low, partition_high));
}

int pready_list(Call call, int length, const int array_of_partitions[], MPI_Request request) {
  if (length < 0) return report(call, error(MPI_ERR_ARG, "length %d is negative", length));
  if (length > 0 && array_of_partitions == nullptr) return report(call, null_argument("array_of_partitions"));
  for (int i = 0; i < length; ++i)
    if (const int code = pready(call, array_of_partitions[i], request); code != MPI_SUCCESS) return code;
  return MPI_SUCCESS;
}

int parrived(Call call, MPI_Request request, int partition, int* flag) {
  if (const int code = check_running(); code != MPI_SUCCESS) return report(call, code);
  if (flag == nullptr) return report(call, null_argument("flag"));
  *flag = 1;
  if (request == MPI_REQUEST_NULL) return MPI_SUCCESS;
  Partitioned* const operation = partitioned_of(request);
  if (operation == nullptr) return report(call, bad(request));
  return told(call, operation->comm(), operation->arrived(partition, flag));
}

}  // namespace heddle::mpi
