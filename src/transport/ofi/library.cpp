#include "transport/ofi/library.hpp"

#include <cstdlib>
#include <memory>

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
  const auto handle = network::load_library(name, "libfabric (Debian: libfabric1)", "HEDDLE_OFI_LIBRARY");
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

}  // namespace heddle::transport::ofi
