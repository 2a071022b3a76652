// Barrier gates as VBGs: a chain is what one utofu_alloc_vbg returns, a start gate and relays of
// one TNI. All chains of a network are on the same TNI of their nodes, as in Tofu's own libraries.
// Operations are reductions of words (utofu_reduce_uint64) and barriers (utofu_barrier).
#pragma once

#include "transport/gates.hpp"
#include "transport/utofu/device.hpp"

namespace heddle::transport::utofu {

class Gates final : public BarrierGates {
 public:
  explicit Gates(Device& device) : device_(device) {}

  [[nodiscard]] Limits limits() const override { return {device_.library().gate_words()}; }
  [[nodiscard]] base::Result<std::unique_ptr<GateChain>> open(std::uint32_t gates, std::uint32_t lane) override;

 private:
  Device& device_;
};

}  // namespace heddle::transport::utofu
