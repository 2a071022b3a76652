// Which provider of libfabric a job uses, and what it can do.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/environment.hpp"
#include "transport/ofi/library.hpp"

namespace heddle::transport::ofi {

// libfabric's description of a provider, and of what was asked of it.
struct FreeInfo {
  const Library* library = nullptr;
  void operator()(fi_info* info) const { library->call().freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

// Whether atomics are asked of the network, if it has its own: see atomics.hpp.
enum class Atomics : std::uint8_t { by_messages, by_network };

// The provider that HEDDLE_OFI_PROVIDER and HEDDLE_OFI_DOMAIN name, else the best that there is by
// the order of our table (provider.cpp). CONFIG: there is none; the message says what there is.
base::Result<Info> choose_provider(const Library& library, const base::Config& config, Atomics atomics);

// Every provider that would serve, the best first: "tcp;ofi_rxm (eth0), …"; then those that would
// not, with the reason.
std::string list_providers(const Library& library);

// Whether the machine has an adapter that only libfabric drives: Slingshot, EFA, Omni-Path.
// `classes`: the kernel's folder of them, /sys/class.
[[nodiscard]] bool has_own_adapter(const std::filesystem::path& classes);
// Whether that provider is for such adapters.
[[nodiscard]] bool drives_own_adapter(std::string_view provider);

}  // namespace heddle::transport::ofi
