#include "mpi/core/info.hpp"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string_view>
#include <system_error>

#include <units/infos.hpp>
#include "mpi/core/check.hpp"
#include "mpi/core/errors.hpp"
#include "mpi/core/job.hpp"
#include "mpi/core/objects.hpp"

namespace heddle::mpi {
namespace {

constexpr std::uint32_t kMostInfos = 1U << 20;
ObjectPool<Info, kMostInfos> g_infos;

// ---- what the process was started with ----------------------------------------------------------

// The arguments that the program was started with, program first.
std::vector<std::string> command_line() {
  std::vector<std::string> words;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/proc/self/cmdline", "re"), &std::fclose);
  if (file == nullptr) return words;
  std::string word;
  for (int c = std::fgetc(file.get()); c != EOF; c = std::fgetc(file.get())) {
    if (c != '\0') {
      word.push_back(static_cast<char>(c));
    } else {
      words.push_back(std::move(word));
      word.clear();
    }
  }
  return words;
}

void set_fitting(Info* info, std::string_view key, std::string_view value) {
  if (!value.empty() && value.size() < MPI_MAX_INFO_VAL) info->set(key, value);
}

// How many processes the job has. It is known once the job was joined, also after it was left.
// Before that, it is the number that the launcher tells by the environment. 0: the launcher tells
// it only to processes that join.
std::uint32_t processes() {
  if (g_job.size != 0) return g_job.size;
  const auto value_of = [](const char* name) {
    const char* const text = std::getenv(name);
    return std::string_view(text == nullptr ? "" : text);
  };
  const auto number_in = [&](const char* name) {
    const std::string_view text = value_of(name);
    std::uint32_t number = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
    return failed == std::errc{} && end == text.data() + text.size() ? number : 0;
  };
  if (value_of("HEDDLE_BOOTSTRAP") == "single") return 1;
  if (const std::uint32_t number = number_in("HEDDLE_LOCAL_SIZE"); number != 0) return number;
  if (!value_of("PMIX_NAMESPACE").empty()) {
    const std::uint32_t number = number_in("OMPI_COMM_WORLD_SIZE");
    return number != 0 ? number : number_in("SLURM_NTASKS");
  }
  return value_of("PMI_FD").empty() ? 1 : number_in("PMI_SIZE");
}

// The keys of MPI_INFO_ENV whose values are known here: not soft, file and thread_level, which only
// a launcher that is told them could tell.
Info environment(const std::vector<std::string>& words) {
  Info info;
  if (!words.empty()) {
    set_fitting(&info, "command", words.front());
    std::string rest;
    for (std::size_t i = 1; i < words.size(); ++i) rest += (i == 1 ? "" : " ") + words[i];
    set_fitting(&info, "argv", rest);
  }
  if (const std::uint32_t size = processes(); size != 0) set_fitting(&info, "maxprocs", std::to_string(size));
  char host[MPI_MAX_PROCESSOR_NAME] = "";
  if (::gethostname(host, sizeof host - 1) == 0) set_fitting(&info, "host", host);
  utsname system{};
  if (::uname(&system) == 0) set_fitting(&info, "arch", static_cast<const char*>(system.machine));
  char folder[PATH_MAX] = "";
  if (::getcwd(folder, sizeof folder) != nullptr) set_fitting(&info, "wdir", folder);
  return info;
}

// MPI_INFO_ENV. Made when it is first asked for, and again once the job is joined, which adds to
// it. Null: no memory.
Info* environment_info() {
  static std::mutex mutex;
  static Info known;
  static bool made = false;
  static bool with_job = false;
  const std::scoped_lock lock(mutex);
  if (made && (with_job || !g_job.joined)) return &known;
  try {
    known = environment(command_line());
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
  made = true;
  with_job = g_job.joined;
  return &known;
}

// ---- checks -------------------------------------------------------------------------------------

int check_key(const char* key) {
  if (key == nullptr) return error(MPI_ERR_INFO_KEY, "key is a null pointer");
  if (*key == '\0') return error(MPI_ERR_INFO_KEY, "key is empty");
  const std::size_t length = std::strlen(key);
  if (length < MPI_MAX_INFO_KEY) return MPI_SUCCESS;
  return error(MPI_ERR_INFO_KEY, "key \"%.32s…\": it has %zu characters; at most %d fit", key, length,
               MPI_MAX_INFO_KEY - 1);
}

// An info that the program may change. Null: it may not; not_changeable() gives the error.
Info* changeable(MPI_Info handle) {
  return handle == MPI_INFO_ENV ? nullptr : info_of(handle);
}
int not_changeable(MPI_Info handle) {
  if (handle != MPI_INFO_ENV) return bad_info(handle);
  return error(MPI_ERR_INFO, "info: MPI_INFO_ENV does not change; use a copy by MPI_Info_dup");
}

int give_info(const Info& info, MPI_Info* out, const char* argument) {
  if (out == nullptr) return null_argument(argument);
  const MPI_Info handle = new_handle(info);
  if (handle == MPI_INFO_NULL) return no_memory_for("an info");
  *out = handle;
  return MPI_SUCCESS;
}

// ---- the functions, inside ----------------------------------------------------------------------

int set_value(MPI_Info handle, const char* key, const char* value) {
  Info* const info = changeable(handle);
  if (info == nullptr) return not_changeable(handle);
  if (const int code = check_key(key); code != MPI_SUCCESS) return code;
  if (value == nullptr) return error(MPI_ERR_INFO_VALUE, "value of key \"%s\": it is a null pointer", key);
  const std::size_t length = std::strlen(value);
  if (length >= MPI_MAX_INFO_VAL) {
    return error(MPI_ERR_INFO_VALUE, "value of key \"%s\": it has %zu characters; at most %d fit", key, length,
                 MPI_MAX_INFO_VAL - 1);
  }
  info->set(key, value);
  return MPI_SUCCESS;
}

int remove_key(MPI_Info handle, const char* key) {
  Info* const info = changeable(handle);
  if (info == nullptr) return not_changeable(handle);
  if (const int code = check_key(key); code != MPI_SUCCESS) return code;
  if (info->remove(key)) return MPI_SUCCESS;
  return error(MPI_ERR_INFO_NOKEY, "key \"%s\": the info does not have it", key);
}

int free_info(MPI_Info* handle) {
  if (handle == nullptr) return null_argument("info");
  if (*handle == MPI_INFO_ENV) return error(MPI_ERR_INFO, "info: MPI_INFO_ENV cannot be freed");
  Info* const info = info_of(*handle);
  if (info == nullptr) return bad_info(*handle);
  g_infos.give_back(info);
  *handle = MPI_INFO_NULL;
  return MPI_SUCCESS;
}

// MPI_SUCCESS, and *value is null if the key is not there.
int find_value(MPI_Info handle, const char* key, const std::string** value) {
  const Info* const info = info_of(handle);
  if (info == nullptr) return bad_info(handle);
  if (const int code = check_key(key); code != MPI_SUCCESS) return code;
  *value = info->find(key);
  return MPI_SUCCESS;
}

// Stores at most `most` characters, and the zero after them.
void store_start(const std::string& text, std::size_t most, char* out) {
  const std::size_t length = std::min(text.size(), most);
  std::memcpy(out, text.data(), length);
  out[length] = '\0';
}

int get_value(MPI_Info handle, const char* key, int valuelen, char* value, int* flag) {
  const std::string* found = nullptr;
  if (const int code = find_value(handle, key, &found); code != MPI_SUCCESS) return code;
  if (valuelen < 0) return error(MPI_ERR_ARG, "valuelen %d is negative", valuelen);
  if (value == nullptr) return null_argument("value");
  if (flag == nullptr) return null_argument("flag");
  *flag = found != nullptr ? 1 : 0;
  if (found != nullptr) store_start(*found, static_cast<std::size_t>(valuelen), value);
  return MPI_SUCCESS;
}

int get_string(MPI_Info handle, const char* key, int* buflen, char* value, int* flag) {
  const std::string* found = nullptr;
  if (const int code = find_value(handle, key, &found); code != MPI_SUCCESS) return code;
  if (buflen == nullptr) return null_argument("buflen");
  if (flag == nullptr) return null_argument("flag");
  if (*buflen < 0) return error(MPI_ERR_ARG, "buflen %d is negative", *buflen);
  if (*buflen > 0 && value == nullptr) return null_argument("value");
  *flag = found != nullptr ? 1 : 0;
  if (found == nullptr) return MPI_SUCCESS;
  if (*buflen > 0) store_start(*found, static_cast<std::size_t>(*buflen) - 1, value);
  *buflen = static_cast<int>(found->size()) + 1;
  return MPI_SUCCESS;
}

int get_length(MPI_Info handle, const char* key, int* valuelen, int* flag) {
  const std::string* found = nullptr;
  if (const int code = find_value(handle, key, &found); code != MPI_SUCCESS) return code;
  if (valuelen == nullptr) return null_argument("valuelen");
  if (flag == nullptr) return null_argument("flag");
  *flag = found != nullptr ? 1 : 0;
  if (found != nullptr) *valuelen = static_cast<int>(found->size());
  return MPI_SUCCESS;
}

int get_key(MPI_Info handle, int n, char* key) {
  const Info* const info = info_of(handle);
  if (info == nullptr) return bad_info(handle);
  if (key == nullptr) return null_argument("key");
  if (n < 0 || static_cast<std::size_t>(n) >= info->entries.size()) {
    return error(MPI_ERR_ARG, "n %d: the info has %zu keys, numbered from 0", n, info->entries.size());
  }
  store_start(info->entries[static_cast<std::size_t>(n)].first, MPI_MAX_INFO_KEY - 1, key);
  return MPI_SUCCESS;
}

int create_env(int argc, char* argv[], MPI_Info* out) {
  std::vector<std::string> words;
  for (int i = 0; argv != nullptr && i < argc && argv[i] != nullptr; ++i) words.emplace_back(argv[i]);
  return give_info(environment(words.empty() ? command_line() : words), out, "info");
}

}  // namespace

// ---- Info ---------------------------------------------------------------------------------------

const std::string* Info::find(std::string_view key) const {
  for (const auto& [name, value] : entries)
    if (name == key) return &value;
  return nullptr;
}

void Info::set(std::string_view key, std::string_view value) {
  for (auto& [name, old] : entries) {
    if (name != key) continue;
    old = value;
    return;
  }
  entries.emplace_back(key, value);
}

bool Info::remove(std::string_view key) {
  return std::erase_if(entries, [&](const auto& entry) { return entry.first == key; }) != 0;
}

bool Info::flag(std::string_view key, bool otherwise) const {
  const std::string* const value = find(key);
  if (value == nullptr) return otherwise;
  if (*value == "true" || *value == "yes" || *value == "1") return true;
  if (*value == "false" || *value == "no" || *value == "0") return false;
  return otherwise;
}

// ---- handles ------------------------------------------------------------------------------------

Info* info_of(MPI_Info handle) {
  return handle == MPI_INFO_ENV ? environment_info() : g_infos.find(handle);
}

int bad_info(MPI_Info handle) {
  if (handle == MPI_INFO_NULL) return error(MPI_ERR_INFO, "info is MPI_INFO_NULL");
  if (handle == MPI_INFO_ENV) return no_memory_for("an info");
  return error(MPI_ERR_INFO, "info %p: it is no info, or was freed", static_cast<void*>(handle));
}

MPI_Info new_handle(const Info& info) {
  try {
    Info copy = info;
    Info* const made = g_infos.take(std::move(copy));
    return made == nullptr ? MPI_INFO_NULL : reinterpret_cast<MPI_Info>(made);
  } catch (const std::bad_alloc&) {
    return MPI_INFO_NULL;
  }
}

int read_info(MPI_Info handle, Info* info) {
  info->entries.clear();
  if (handle == MPI_INFO_NULL) return MPI_SUCCESS;
  const Info* const found = info_of(handle);
  if (found == nullptr) return bad_info(handle);
  *info = *found;
  return MPI_SUCCESS;
}

std::size_t live_infos() {
  std::size_t live = 0;
  g_infos.each([&](const Info& /*info*/) { ++live; });
  return live;
}

Info* info_at(std::uint32_t number) {
  return g_infos.at(number);
}
std::uint32_t number_of(const Info* info) {
  return g_infos.number(info);
}

// ---- the functions ------------------------------------------------------------------------------

int info_create(Call call, MPI_Info* info) {
  return told(call, give_info(Info{}, info, "info"));
}

int info_create_env(Call call, int argc, char* argv[], MPI_Info* info) {
  return told(call, guarded("an info", [&] { return create_env(argc, argv, info); }));
}

int info_dup(Call call, MPI_Info info, MPI_Info* newinfo) {
  const Info* const old = info_of(info);
  return told(call, old == nullptr ? bad_info(info) : give_info(*old, newinfo, "newinfo"));
}

int info_free(Call call, MPI_Info* info) {
  return told(call, free_info(info));
}

int info_set(Call call, MPI_Info info, const char* key, const char* value) {
  return told(call, guarded("an info", [&] { return set_value(info, key, value); }));
}

int info_delete(Call call, MPI_Info info, const char* key) {
  return told(call, remove_key(info, key));
}

int info_get(Call call, MPI_Info info, const char* key, int valuelen, char* value, int* flag) {
  return told(call, get_value(info, key, valuelen, value, flag));
}

int info_get_string(Call call, MPI_Info info, const char* key, int* buflen, char* value, int* flag) {
  return told(call, get_string(info, key, buflen, value, flag));
}

int info_get_valuelen(Call call, MPI_Info info, const char* key, int* valuelen, int* flag) {
  return told(call, get_length(info, key, valuelen, flag));
}

int info_get_nkeys(Call call, MPI_Info info, int* nkeys) {
  const Info* const found = info_of(info);
  if (found == nullptr) return told(call, bad_info(info));
  if (nkeys == nullptr) return told(call, null_argument("nkeys"));
  *nkeys = static_cast<int>(found->entries.size());
  return MPI_SUCCESS;
}

int info_get_nthkey(Call call, MPI_Info info, int n, char* key) {
  return told(call, get_key(info, n, key));
}

// The types of resource by which MPI_Comm_split_type can split, and whether this process is
// restricted to one of each.
int get_hw_resource_info(Call call, MPI_Info* hw_info) {
  return told(call, guarded("an info", [&] {
                Info info;
                info.set("mpi_shared_memory", "true");
                return give_info(info, hw_info, "hw_info");
              }));
}

}  // namespace heddle::mpi
