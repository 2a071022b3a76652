#include "transport/verbs/library.hpp"

#include <memory>

namespace heddle::transport::verbs {

base::Result<const Library*> Library::open(const std::string& name) {
  return network::open_once<Library>(name, [&]() -> base::Result<std::unique_ptr<Library>> {
    const auto handle =
        network::load_library(name, "it (Debian: libibverbs1, ibverbs-providers)", "HEDDLE_VERBS_LIBRARY");
    if (!handle) return handle.status();
    std::unique_ptr<Library> library(new Library);
    library->call_ = Functions(*handle);
    if (!library->call_.complete()) return base::fail(HEDDLE_ERR_CONFIG, "\"%s\" is no libibverbs", name.c_str());
    // Before any memory is registered. The child of a fork then lacks what the adapter uses, unless
    // the kernel copies that (5.12): else the parent's next write would give the parent a new page,
    // and the adapter would go on with the old one. It fails where another library has registered
    // memory before; UCX goes on then too.
    static_cast<void>(library->call_.fork_init());
    return library;
  });
}

}  // namespace heddle::transport::verbs
