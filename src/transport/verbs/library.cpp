#include "transport/verbs/library.hpp"

#include <dlfcn.h>

#include <map>
#include <memory>
#include <mutex>

namespace heddle::transport::verbs {
namespace {

struct Opened {
  std::mutex mutex;
  std::map<std::string, const Library*> by_name;  // never freed: live as long as the process
};

Opened& opened() {
  static Opened* all = new Opened;
  return *all;
}

}  // namespace

base::Result<const Library*> Library::open(const std::string& name) {
  Opened& all = opened();
  const std::lock_guard lock(all.mutex);
  if (const auto found = all.by_name.find(name); found != all.by_name.end()) return found->second;
  void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    return base::fail(HEDDLE_ERR_CONFIG,
                      "%s cannot be loaded: %s; install it (Debian: libibverbs1, ibverbs-providers), or set "
                      "HEDDLE_VERBS_LIBRARY to the file",
                      name.c_str(), dlerror());
  }
  std::unique_ptr<Library> library(new Library);
  library->call_ = Functions(handle);
  if (!library->call_.complete()) return base::fail(HEDDLE_ERR_CONFIG, "\"%s\" is no libibverbs", name.c_str());
  return all.by_name[name] = library.release();
}

}  // namespace heddle::transport::verbs
