#include "mpi/rma/dynamic.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include <units/windows.hpp>
#include "mpi/rma/ask.hpp"

namespace heddle::mpi {
namespace {

// The answer about attached memory. The packed region follows it.
struct AttachedPlace {
  std::uint64_t address;
  std::uint64_t bytes;
};
static_assert(sizeof(AttachedPlace) + HEDDLE_PACKED_REGION_BYTES <= sizeof(Asked::answer));

// The piece that contains the byte at the address; end(): none.
AttachedMap::iterator find_piece(AttachedMap& map, std::uint64_t address) {
  auto after = map.upper_bound(address);
  if (after == map.begin()) return map.end();
  --after;
  return address - after->first < after->second.bytes ? after : map.end();
}

// How many bytes of the piece are at the address and behind it.
std::uint64_t bytes_from(AttachedMap::const_iterator piece, std::uint64_t address) {
  return piece->second.bytes - (address - piece->first);
}

void forget(Win::Known& known) {
  for (const auto& [address, piece] : known.pieces) heddle_remote_region_release(piece.remote);
  known.pieces.clear();
}

std::unique_ptr<Asked> ask_about_attached(Win& win, int rank, Question what) {
  auto asked = std::make_unique<Asked>();
  asked->header.question = what;
  asked->win = &win;
  asked->rank = rank;
  return asked;
}

int version_of(Win& win, int rank, std::uint64_t* version) {
  if (Control* const control = win.far[static_cast<std::size_t>(rank)].control; control != nullptr) {
    *version = control->version.load(std::memory_order_acquire);
    return MPI_SUCCESS;
  }
  std::unique_ptr<Asked> answer;
  const int code = ask_and_wait(ask_about_attached(win, rank, Question::version), &answer);
  if (code == MPI_SUCCESS) std::memcpy(version, answer->answer, sizeof *version);
  return code;
}

int ask_owner(Win& win, int rank, std::uint64_t address, std::uint64_t bytes) {
  auto asked = ask_about_attached(win, rank, Question::resolve);
  asked->header.offset = address;
  std::unique_ptr<Asked> answer;
  if (const int code = ask_and_wait(std::move(asked), &answer); code != MPI_SUCCESS) {
    if (code != MPI_ERR_RMA_RANGE) return code;
    return error(MPI_ERR_RMA_RANGE,
                 "address %#llx: rank %d has not attached memory there to the window, where %llu bytes are accessed",
                 static_cast<unsigned long long>(address), rank, static_cast<unsigned long long>(bytes));
  }
  AttachedPlace place;
  std::memcpy(&place, answer->answer, sizeof place);
  Attached piece;
  piece.bytes = place.bytes;
  const heddle_status status = heddle_region_unpack(g_job.context, answer->answer + sizeof place,
                                                    answer->answer_bytes - sizeof place, &piece.remote);
  if (status < 0) return error_of_status(status);
  win.known[static_cast<std::size_t>(rank)].pieces[place.address] = piece;
  return MPI_SUCCESS;
}

int check_dynamic(const Win& win, const char* what) {
  if (win.dynamic()) return MPI_SUCCESS;
  return error(MPI_ERR_RMA_FLAVOR, "only a window made by MPI_Win_create_dynamic %s memory", what);
}

int attach(Win& win, void* base, MPI_Aint size) {
  if (const int code = check_dynamic(win, "attaches"); code != MPI_SUCCESS) return code;
  if (size < 0) return error(MPI_ERR_SIZE, "size %lld: it must not be negative", static_cast<long long>(size));
  if (base == nullptr && size > 0) return null_argument("base");
  if (size == 0) return MPI_SUCCESS;  // nothing can be reached there
  const auto address = reinterpret_cast<std::uint64_t>(base);
  const auto bytes = static_cast<std::uint64_t>(size);
  const std::scoped_lock lock(win.attached_mutex);
  auto after = win.attached.lower_bound(address);
  bool overlaps = after != win.attached.end() && after->first - address < bytes;
  if (after != win.attached.begin()) {
    --after;
    overlaps = overlaps || address - after->first < after->second.bytes;
  }
  if (overlaps)
    return error(MPI_ERR_RMA_ATTACH, "%p: memory there is attached to the window already; detach it first", base);
  Attached piece;
  piece.bytes = bytes;
  const heddle_status status =
      heddle_region_register(g_job.context, base, static_cast<std::size_t>(size), &piece.region);
  if (status < 0) return error_of_status(status);
  win.attached[address] = piece;
  return MPI_SUCCESS;
}

int detach(Win& win, const void* base) {
  if (const int code = check_dynamic(win, "detaches"); code != MPI_SUCCESS) return code;
  const std::scoped_lock lock(win.attached_mutex);
  const auto found = win.attached.find(reinterpret_cast<std::uint64_t>(base));
  if (found == win.attached.end()) return MPI_SUCCESS;  // attached with size 0
  // Release: a rank that sees the new version asks again, and learns that the memory is detached.
  win.control->version.fetch_add(1, std::memory_order_acq_rel);
  const heddle_status status = heddle_region_release(found->second.region);
  win.attached.erase(found);
  return code_of(status);
}

}  // namespace

int refresh_known(Win& win, int rank) {
  Win::Known& known = win.known[static_cast<std::size_t>(rank)];
  std::uint64_t version = 0;
  if (const int code = version_of(win, rank, &version); code != MPI_SUCCESS) return code;
  const std::scoped_lock lock(win.known_mutex);
  if (known.version == version) return MPI_SUCCESS;
  forget(known);
  known.version = version;
  return MPI_SUCCESS;
}

int resolve(Win& win, int rank, std::uint64_t address, std::uint64_t* bytes, heddle_remote* place) {
  const std::scoped_lock lock(win.known_mutex);
  AttachedMap& pieces = win.known[static_cast<std::size_t>(rank)].pieces;
  auto found = find_piece(pieces, address);
  if (found == pieces.end()) {
    if (const int code = ask_owner(win, rank, address, *bytes); code != MPI_SUCCESS) return code;
    found = find_piece(pieces, address);
    if (found == pieces.end()) return error(MPI_ERR_INTERN, "rank %d told of other memory than was asked for", rank);
  }
  *bytes = std::min(*bytes, bytes_from(found, address));
  *place = {found->second.remote, address - found->first};
  return MPI_SUCCESS;
}

bool is_attached(Win& win, std::uint64_t address, std::uint64_t bytes) {
  const std::scoped_lock lock(win.attached_mutex);
  while (bytes > 0) {
    const auto piece = find_piece(win.attached, address);
    if (piece == win.attached.end()) return false;
    const std::uint64_t here = std::min(bytes, bytes_from(piece, address));
    address += here;
    bytes -= here;
  }
  return true;
}

int answer_resolve(Win& win, std::uint64_t address, std::byte* answer, std::uint32_t* length) {
  const std::scoped_lock lock(win.attached_mutex);
  const auto found = find_piece(win.attached, address);
  if (found == win.attached.end()) return MPI_ERR_RMA_RANGE;
  const AttachedPlace place{found->first, found->second.bytes};
  std::memcpy(answer, &place, sizeof place);
  std::size_t packed = HEDDLE_PACKED_REGION_BYTES;
  const heddle_status status = heddle_region_pack(found->second.region, answer + sizeof place, &packed);
  *length = static_cast<std::uint32_t>(sizeof place + packed);
  return status < 0 ? MPI_ERR_INTERN : MPI_SUCCESS;
}

void detach_all(Win& win) {
  if (win.known != nullptr)
    for (int rank = 0; rank < win.size(); ++rank) forget(win.known[static_cast<std::size_t>(rank)]);
  for (const auto& [address, piece] : win.attached) heddle_region_release(piece.region);
  win.attached.clear();
}

int win_attach(Call call, MPI_Win win, void* base, MPI_Aint size) {
  Win* const found = win_of(win);
  if (found == nullptr) return told(call, bad_win(win));
  try {
    return told(call, found, attach(*found, base, size));
  } catch (const std::bad_alloc&) {
    return told(call, found, error(MPI_ERR_NO_MEM, "no memory to attach %p", base));
  }
}

int win_detach(Call call, MPI_Win win, const void* base) {
  Win* const found = win_of(win);
  if (found == nullptr) return told(call, bad_win(win));
  return told(call, found, detach(*found, base));
}

}  // namespace heddle::mpi
