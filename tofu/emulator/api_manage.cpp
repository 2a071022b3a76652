// The exported functions for TNIs, VCQs, paths and registered memory.
#include <sys/mman.h>
#include <unistd.h>
#include <utofu_profile.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <new>
#include <optional>
#include <string>

#include "tofu/emulator/api.hpp"
#include "tofu/emulator/memory.hpp"
#include "tofu/emulator/process.hpp"
#include "tofu/emulator/report.hpp"

namespace tofu_emulator {
namespace {

constexpr unsigned long kVcqFlags = UTOFU_VCQ_FLAG_THREAD_SAFE | UTOFU_VCQ_FLAG_EXCLUSIVE | UTOFU_VCQ_FLAG_SESSION_MODE;

// The process. In step mode each call runs a round.
Process* here() {
  Process* process = Process::get();
  if (process != nullptr) process->engine().step();
  return process;
}

// This process's use of a CQ. Protected by Process::management().
struct CqUse {
  EmulatedCq* cq = nullptr;
  unsigned vcqs = 0;   // number of VCQs on it
  unsigned slots = 0;  // a bit for each used slot
};
std::array<std::array<CqUse, kCqs>, kTnis> cq_uses;

CqMode mode_of(unsigned long flags) {
  if ((flags & UTOFU_VCQ_FLAG_SESSION_MODE) != 0) return CqMode::session;
  return (flags & UTOFU_VCQ_FLAG_EXCLUSIVE) != 0 ? CqMode::exclusive : CqMode::shared;
}

bool has_room(const CqUse& use) {
  return use.cq != nullptr && use.cq->mode() == CqMode::shared && use.vcqs < kVcqsOfCq;
}

// The place of a component's VCQ: always on the same CQ of the process, so that peers can compute
// its id.
int place_component(const Machine::Share& share, CqMode mode, utofu_cmp_id_t component, VcqPlace* place) {
  const CqUse& use = cq_uses[place->tni][share.component];
  place->cq = share.component;
  place->slot = component;
  if (use.cq == nullptr) return UTOFU_SUCCESS;
  if ((use.slots >> component & 1U) != 0) return failed(UTOFU_ERR_USED);
  if (mode == CqMode::shared && use.cq->mode() == CqMode::shared) return UTOFU_SUCCESS;
  return failed(UTOFU_ERR_NOT_AVAILABLE);
}

// The place of another VCQ. Shared VCQs fill a CQ before they open the next one; the components' CQ
// is the last resort.
int place_any(const Machine::Share& share, CqMode mode, VcqPlace* place) {
  const auto& uses = cq_uses[place->tni];
  unsigned sessions = 0;
  std::optional<std::uint16_t> free;
  std::optional<std::uint16_t> room;
  for (unsigned i = share.first + share.count; i-- > share.first;) {
    const CqUse& use = uses[i];
    const auto number = static_cast<std::uint16_t>(i);
    if (use.cq != nullptr && use.cq->mode() == CqMode::session) ++sessions;
    if (use.cq == nullptr && !(free && i == share.component)) free = number;
    if (has_room(use) && !(room && i == share.component)) room = number;
  }
  if (mode == CqMode::shared) {
    // The components' CQ is used only when no other is free.
    const auto chosen = room && (*room != share.component || !free || *free == share.component) ? room : free;
    if (!chosen) return failed(UTOFU_ERR_FULL);
    place->cq = *chosen;
  } else {
    if (!free || (mode == CqMode::session && sessions >= kSessionCqs)) return failed(UTOFU_ERR_NOT_AVAILABLE);
    place->cq = *free;
  }
  place->slot = kVcqsOfCq - 1;  // components use the lower slots
  while ((uses[place->cq].slots >> place->slot & 1U) != 0) --place->slot;
  return UTOFU_SUCCESS;
}

int open_vcq(Process& process, const VcqPlace& place, unsigned long flags, utofu_vcq_hdl_t* number) {
  CqUse& use = cq_uses[place.tni][place.cq];
  if (use.cq == nullptr) {
    if (!process.world().claim_cq(place.node, place.tni, place.cq)) return failed(UTOFU_ERR_NOT_AVAILABLE);
    try {
      use.cq = process.open_cq(place.tni, place.cq, mode_of(flags));
    } catch (const std::bad_alloc&) {
      process.world().release_cq(place.node, place.tni, place.cq);
      throw;
    }
    if (use.cq == nullptr) {
      process.world().release_cq(place.node, place.tni, place.cq);
      return failed(UTOFU_ERR_OUT_OF_RESOURCE);
    }
  }
  ++use.vcqs;
  use.slots |= 1U << place.slot;
  Handle* handle = new_handle(place);
  handle->thread_safe = (flags & UTOFU_VCQ_FLAG_THREAD_SAFE) != 0;
  handle->strict = process.settings().strict();
  handle->guarded = handle->thread_safe || handle->strict || process.settings().one_thread;
  handle->encoder = Encoder(&process.machine(), process.settings().strict());
  handle->vcq.cq = use.cq;
  handle->vcq.id = process.machine().vcq_id(place);
  handle->vcq.flags = flags;
  handle->vcq.slot = place.slot;
  handle->vcq.model_clock = 0;
  {
    const std::lock_guard others(handle->user->lock);  // threads in calls on other VCQs of this CQ
    process.attach(handle->vcq);
  }
  *number = publish(handle);
  return UTOFU_SUCCESS;
}

int create(utofu_tni_id_t tni, std::optional<utofu_cmp_id_t> component, unsigned long flags, utofu_vcq_hdl_t* number) {
  Process* process = here();
  if (process == nullptr) return failed(UTOFU_ERR_FATAL);
  const Machine::Share share = tni < kTnis ? process->machine().share(process->number(), tni) : Machine::Share{};
  if (share.count == 0) return failed(UTOFU_ERR_INVALID_TNI_ID);
  if (component && *component >= kComponents) return failed(UTOFU_ERR_INVALID_CMP_ID);
  if ((flags & ~kVcqFlags) != 0) return failed(UTOFU_ERR_INVALID_FLAGS);
  if (number == nullptr) return failed(UTOFU_ERR_INVALID_POINTER);
  const std::lock_guard guard(process->management());
  VcqPlace place{process->node(), tni, 0, 0, kNoPath};
  const CqMode mode = mode_of(flags);
  const int status = component ? place_component(share, mode, *component, &place) : place_any(share, mode, &place);
  if (status != UTOFU_SUCCESS) return status;
  try {
    return open_vcq(*process, place, flags, number);
  } catch (const std::bad_alloc&) {
    return failed(UTOFU_ERR_OUT_OF_MEMORY);
  }
}

// Registration pins pages, so unmapped memory cannot be registered.
bool is_mapped(const void* address, std::size_t size) {
  constexpr std::size_t kStep = 4096;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::array<unsigned char, kStep> present{};
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  std::uintptr_t at = begin - begin % page;
  while (at < begin + size) {
    const std::size_t part = std::min<std::size_t>(begin + size - at, kStep * page);
    if (::mincore(reinterpret_cast<void*>(at), part, present.data()) != 0)
      return false;  // NOLINT(performance-no-int-to-ptr)
    at += part;
  }
  return true;
}

// Memory registered for writing must be writable by this process. Memory whose rights cannot be
// found out counts as writable.
bool is_writable(const void* address, std::size_t size) {
  std::ifstream maps("/proc/self/maps");
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  for (std::string line; std::getline(maps, line);) {
    unsigned long long first = 0;
    unsigned long long end = 0;
    char rights[5] = "";
    if (std::sscanf(line.c_str(), "%llx-%llx %4s", &first, &end, rights) != 3) continue;  // NOLINT(cert-err34-c)
    if (first < begin + size && end > begin && rights[1] != 'w') return false;
  }
  return true;
}

int register_memory(Handle& handle, void* address, std::size_t size, std::optional<unsigned> stag, unsigned long flags,
                    utofu_stadd_t* stadd) {
  if (address == nullptr) return failed(UTOFU_ERR_INVALID_ADDRESS);
  if (size == 0) return failed(UTOFU_ERR_INVALID_SIZE);
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  if (begin + size < begin) return failed(UTOFU_ERR_INVALID_SIZE);
  if (stag && *stag >= kFixedStags) return failed(UTOFU_ERR_INVALID_STAG);
  if (stag && begin % kLineBytes != 0) return failed(UTOFU_ERR_INVALID_ADDRESS);
  if ((flags & ~UTOFU_REG_MEM_FLAG_READ_ONLY) != 0) return failed(UTOFU_ERR_INVALID_FLAGS);
  if (stadd == nullptr) return failed(UTOFU_ERR_INVALID_POINTER);
  if (!is_mapped(address, size)) return failed(UTOFU_ERR_INVALID_ADDRESS);
  const bool read_only = (flags & UTOFU_REG_MEM_FLAG_READ_ONLY) != 0;
  if (handle.strict && !read_only && !is_writable(address, size)) {
    warn("%zu bytes at %p are registered for writing with %s, but are not writable here; UTOFU_REG_MEM_FLAG_READ_ONLY?",
         size, address, handle.encoder.machine->name_of(handle.vcq.id).text);
    return failed(UTOFU_ERR_INVALID_ADDRESS);
  }
  Stags& stags = handle.vcq.cq->stags();
  const int status = noted(stag ? stags.add_fixed(address, size, *stag, read_only, stadd)
                                : stags.add(address, size, read_only, stadd));
  if (Process* process = Process::get(); process != nullptr && status == UTOFU_SUCCESS) process->model().registered();
  return status;
}

// The number of commands, not begun by the engine, that would access the registration which this
// deregistration ends.
std::size_t waiting_for(Process& process, Handle& handle, utofu_stadd_t stadd) {
  struct Search {
    Stags& stags;
    utofu_stadd_t stadd;
    std::size_t found = 0;
  } search{handle.vcq.cq->stags(), stadd};
  const Engine::Pause pause(process.engine());
  handle.vcq.cq->for_each_waiting_or_held(
      [](void* context, const CqCommand& command) {
        Search& in = *static_cast<Search*>(context);
        const bool local = command.opcode == Opcode::put || command.opcode == Opcode::get;
        if (local && in.stags.would_end(in.stadd, command.local_stadd)) ++in.found;
      },
      &search);
  return search.found;
}

}  // namespace
}  // namespace tofu_emulator

using namespace tofu_emulator;  // NOLINT(google-build-using-namespace): the rest are C functions

extern "C" {

int putofu_get_onesided_tnis(utofu_tni_id_t** tni_ids, size_t* num_tnis) {
  Process* process = here();
  if (process == nullptr) return failed(UTOFU_ERR_FATAL);
  if (tni_ids == nullptr || num_tnis == nullptr) return failed(UTOFU_ERR_INVALID_POINTER);
  // the caller frees it
  auto* ids = static_cast<utofu_tni_id_t*>(std::malloc(kTnis * sizeof(utofu_tni_id_t)));
  if (ids == nullptr) return failed(UTOFU_ERR_OUT_OF_MEMORY);
  size_t count = 0;
  for (utofu_tni_id_t tni = 0; tni < kTnis; ++tni) {
    if (process->machine().share(process->number(), tni).count != 0) ids[count++] = tni;
  }
  *tni_ids = ids;
  *num_tnis = count;
  return UTOFU_SUCCESS;
}

int putofu_query_onesided_caps(utofu_tni_id_t tni_id, struct utofu_onesided_caps** tni_caps) {
  static utofu_onesided_caps caps = onesided_caps();
  if (tni_id >= kTnis) return failed(UTOFU_ERR_INVALID_TNI_ID);
  if (tni_caps == nullptr) return failed(UTOFU_ERR_INVALID_POINTER);
  *tni_caps = &caps;
  return UTOFU_SUCCESS;
}

int putofu_create_vcq(utofu_tni_id_t tni_id, unsigned long int flags, utofu_vcq_hdl_t* vcq_hdl) {
  return create(tni_id, std::nullopt, flags, vcq_hdl);
}

int putofu_create_vcq_with_cmp_id(utofu_tni_id_t tni_id, utofu_cmp_id_t cmp_id, unsigned long int flags,
                                  utofu_vcq_hdl_t* vcq_hdl) {
  return create(tni_id, cmp_id, flags, vcq_hdl);
}

int putofu_free_vcq(utofu_vcq_hdl_t vcq_hdl) {
  Process* process = here();
  if (process == nullptr) return failed(UTOFU_ERR_FATAL);
  const std::lock_guard guard(process->management());
  Handle* handle = find_handle(vcq_hdl);
  if (handle == nullptr) return no_handle(vcq_hdl);
  {
    const InCall last(*handle);
  }  // reports threads in a call on the handle, or waits for them
  if (handle->strict) {
    if (const std::size_t left = process->engine().under_way(handle->vcq); left != 0)
      broken_rule("%s is freed while %zu of its commands are under way; poll for their ends first",
                  process->machine().name_of(handle->vcq.id).text, left);
  }
  const VcqPlace place = handle->place;
  CqUse& use = cq_uses[place.tni][place.cq];
  free_handle(handle);
  {
    const std::lock_guard others(handle->user->lock);
    process->detach(handle->vcq);
  }
  use.slots &= ~(1U << place.slot);
  if (--use.vcqs != 0) return UTOFU_SUCCESS;
  if (const std::size_t left = use.cq->stags().size(); left != 0 && process->settings().strict()) {
    warn("the last VCQ of TNI %u CQ %u is freed with %zu registrations of memory left", place.tni, place.cq, left);
  }
  process->close_cq(use.cq);
  use = CqUse{};
  return UTOFU_SUCCESS;
}

int putofu_query_vcq_id(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t* vcq_id) {
  const Handle* handle = find_handle(vcq_hdl);
  if (handle == nullptr) return no_handle(vcq_hdl);
  if (vcq_id == nullptr) return failed(UTOFU_ERR_INVALID_POINTER);
  *vcq_id = handle->vcq.id;
  return UTOFU_SUCCESS;
}

int putofu_construct_vcq_id(uint8_t coords[], utofu_tni_id_t tni_id, utofu_cq_id_t cq_id, utofu_cmp_id_t cmp_id,
                            utofu_vcq_id_t* vcq_id) {
  const Process* process = Process::get();
  if (process == nullptr) return failed(UTOFU_ERR_FATAL);
  if (coords == nullptr || vcq_id == nullptr) return failed(UTOFU_ERR_INVALID_POINTER);
  const auto node = process->machine().node_at(coords);
  if (!node) return failed(UTOFU_ERR_INVALID_COORDS);
  if (tni_id >= kTnis) return failed(UTOFU_ERR_INVALID_TNI_ID);
  if (cq_id >= kCqs) return failed(UTOFU_ERR_INVALID_CQ_ID);
  if (cmp_id >= kComponents) return failed(UTOFU_ERR_INVALID_CMP_ID);
  *vcq_id = process->machine().vcq_id({*node, tni_id, cq_id, cmp_id, kNoPath});
  return UTOFU_SUCCESS;
}

int putofu_set_vcq_id_path(utofu_vcq_id_t* vcq_id, uint8_t path_coords[]) {
  const Process* process = Process::get();
  if (process == nullptr) return failed(UTOFU_ERR_FATAL);
  if (vcq_id == nullptr) return failed(UTOFU_ERR_INVALID_POINTER);
  VcqPlace place;
  if (!process->machine().decode(*vcq_id, &place)) return failed(UTOFU_ERR_INVALID_VCQ_ID);
  const auto path = process->machine().path_of(path_coords);
  if (!path) return failed(UTOFU_ERR_INVALID_PATH);
  place.path = *path == kNoPath ? kDefaultPath : *path;
  *vcq_id = process->machine().vcq_id(place);
  return UTOFU_SUCCESS;
}

int putofu_query_vcq_info(utofu_vcq_id_t vcq_id, uint8_t coords[], utofu_tni_id_t* tni_id, utofu_cq_id_t* cq_id,
                          uint16_t* extra_val) {
  const Process* process = Process::get();
  if (process == nullptr) return failed(UTOFU_ERR_FATAL);
  VcqPlace place;
  if (!process->machine().decode(vcq_id, &place)) return failed(UTOFU_ERR_INVALID_VCQ_ID);
  if (coords == nullptr || tni_id == nullptr || cq_id == nullptr || extra_val == nullptr)
    return failed(UTOFU_ERR_INVALID_POINTER);
  const Coords of_node = process->machine().coords_of(place.node);
  std::copy(of_node.begin(), of_node.end(), coords);
  *tni_id = place.tni;
  *cq_id = place.cq;
  *extra_val = place.slot;
  return UTOFU_SUCCESS;
}

int putofu_get_path_id(utofu_vcq_id_t vcq_id, uint8_t path_coords[], utofu_path_id_t* path_id) {
  const Process* process = Process::get();
  if (process == nullptr) return failed(UTOFU_ERR_FATAL);
  VcqPlace place;
  if (!process->machine().decode(vcq_id, &place)) return failed(UTOFU_ERR_INVALID_VCQ_ID);
  const auto path = process->machine().path_of(path_coords);
  if (!path) return failed(UTOFU_ERR_INVALID_PATH);
  if (path_id == nullptr) return failed(UTOFU_ERR_INVALID_POINTER);
  *path_id = *path == kNoPath ? 0 : *path;
  return UTOFU_SUCCESS;
}

int putofu_get_path_coords(utofu_vcq_id_t vcq_id, utofu_path_id_t path_id, uint8_t path_coords[]) {
  const Process* process = Process::get();
  if (process == nullptr) return failed(UTOFU_ERR_FATAL);
  VcqPlace place;
  if (!process->machine().decode(vcq_id, &place)) return failed(UTOFU_ERR_INVALID_VCQ_ID);
  if (path_id > kPaths) return failed(UTOFU_ERR_INVALID_PATH_ID);
  const auto coords = process->machine().path_coords(path_id == 0 ? kNoPath : path_id, place.node);
  if (!coords) return failed(UTOFU_ERR_INVALID_PATH_ID);
  if (path_coords == nullptr) return failed(UTOFU_ERR_INVALID_POINTER);
  std::copy(coords->begin(), coords->end(), path_coords);
  return UTOFU_SUCCESS;
}

int putofu_reg_mem(utofu_vcq_hdl_t vcq_hdl, void* addr, size_t size, unsigned long int flags, utofu_stadd_t* stadd) {
  Handle* handle = find_handle(vcq_hdl);
  if (handle == nullptr) return no_handle(vcq_hdl);
  const InCall call(*handle);
  here();
  return register_memory(*handle, addr, size, std::nullopt, flags, stadd);
}

int putofu_reg_mem_with_stag(utofu_vcq_hdl_t vcq_hdl, void* addr, size_t size, unsigned int stag,
                             unsigned long int flags, utofu_stadd_t* stadd) {
  Handle* handle = find_handle(vcq_hdl);
  if (handle == nullptr) return no_handle(vcq_hdl);
  const InCall call(*handle);
  here();
  return register_memory(*handle, addr, size, stag, flags, stadd);
}

int putofu_query_stadd(utofu_vcq_id_t vcq_id, unsigned int stag, utofu_stadd_t* stadd) {
  const Process* process = Process::get();
  if (process == nullptr) return failed(UTOFU_ERR_FATAL);
  VcqPlace place;
  if (!process->machine().decode(vcq_id, &place)) return failed(UTOFU_ERR_INVALID_VCQ_ID);
  if (stag >= kFixedStags) return failed(UTOFU_ERR_INVALID_STAG);
  if (stadd == nullptr) return failed(UTOFU_ERR_INVALID_POINTER);
  *stadd = Stags::fixed_address(process->machine(), place, stag);
  return UTOFU_SUCCESS;
}

int putofu_dereg_mem(utofu_vcq_hdl_t vcq_hdl, utofu_stadd_t stadd, unsigned long int flags) {
  Handle* handle = find_handle(vcq_hdl);
  if (handle == nullptr) return no_handle(vcq_hdl);
  const InCall call(*handle);
  Process* process = here();
  if (flags != 0) return failed(UTOFU_ERR_INVALID_FLAGS);
  std::size_t used = handle->strict ? waiting_for(*process, *handle, stadd) : 0;
  std::uint32_t in_flight = 0;
  const int status = noted(handle->vcq.cq->stags().remove(stadd, &in_flight));
  used += in_flight;
  if (status == UTOFU_SUCCESS) process->model().deregistered();
  if (handle->strict && used != 0) {
    broken_rule(
        "the memory at steering address %016llx is deregistered while %zu commands of %s, or others of its CQ, still "
        "use it; wait for their notices first",
        static_cast<unsigned long long>(stadd), used, process->machine().name_of(handle->vcq.id).text);
  }
  return status;
}

void putofu_query_tofu_version(int* major_ver, int* minor_ver) {
  if (major_ver != nullptr) *major_ver = 3;  // Tofu interconnect D is the third
  if (minor_ver != nullptr) *minor_ver = 0;
}

void putofu_query_utofu_version(int* major_ver, int* minor_ver) {
  if (major_ver != nullptr) *major_ver = UTOFU_VERSION_MAJOR;
  if (minor_ver != nullptr) *minor_ver = UTOFU_VERSION_MINOR;
}

int putofu_query_my_coords(uint8_t coords[]) {
  const Process* process = Process::get();
  if (process == nullptr) return failed(UTOFU_ERR_FATAL);
  if (coords == nullptr) return failed(UTOFU_ERR_INVALID_POINTER);
  const Coords mine = process->machine().coords_of(process->node());
  std::copy(mine.begin(), mine.end(), coords);
  return UTOFU_SUCCESS;
}

// The names that programs use; weak, so that a profiling library may define them and call the
// putofu_ names.
[[gnu::weak, gnu::alias("putofu_get_onesided_tnis")]] decltype(putofu_get_onesided_tnis) utofu_get_onesided_tnis;
[[gnu::weak, gnu::alias("putofu_query_onesided_caps")]] decltype(putofu_query_onesided_caps) utofu_query_onesided_caps;
[[gnu::weak, gnu::alias("putofu_create_vcq")]] decltype(putofu_create_vcq) utofu_create_vcq;
[[gnu::weak,
  gnu::alias("putofu_create_vcq_with_cmp_id")]] decltype(putofu_create_vcq_with_cmp_id) utofu_create_vcq_with_cmp_id;
[[gnu::weak, gnu::alias("putofu_free_vcq")]] decltype(putofu_free_vcq) utofu_free_vcq;
[[gnu::weak, gnu::alias("putofu_query_vcq_id")]] decltype(putofu_query_vcq_id) utofu_query_vcq_id;
[[gnu::weak, gnu::alias("putofu_construct_vcq_id")]] decltype(putofu_construct_vcq_id) utofu_construct_vcq_id;
[[gnu::weak, gnu::alias("putofu_set_vcq_id_path")]] decltype(putofu_set_vcq_id_path) utofu_set_vcq_id_path;
[[gnu::weak, gnu::alias("putofu_query_vcq_info")]] decltype(putofu_query_vcq_info) utofu_query_vcq_info;
[[gnu::weak, gnu::alias("putofu_get_path_id")]] decltype(putofu_get_path_id) utofu_get_path_id;
[[gnu::weak, gnu::alias("putofu_get_path_coords")]] decltype(putofu_get_path_coords) utofu_get_path_coords;
[[gnu::weak, gnu::alias("putofu_reg_mem")]] decltype(putofu_reg_mem) utofu_reg_mem;
[[gnu::weak, gnu::alias("putofu_reg_mem_with_stag")]] decltype(putofu_reg_mem_with_stag) utofu_reg_mem_with_stag;
[[gnu::weak, gnu::alias("putofu_query_stadd")]] decltype(putofu_query_stadd) utofu_query_stadd;
[[gnu::weak, gnu::alias("putofu_dereg_mem")]] decltype(putofu_dereg_mem) utofu_dereg_mem;
[[gnu::weak, gnu::alias("putofu_query_tofu_version")]] decltype(putofu_query_tofu_version) utofu_query_tofu_version;
[[gnu::weak, gnu::alias("putofu_query_utofu_version")]] decltype(putofu_query_utofu_version) utofu_query_utofu_version;
[[gnu::weak, gnu::alias("putofu_query_my_coords")]] decltype(putofu_query_my_coords) utofu_query_my_coords;
}
