// The states of a reliable connected (RC) queue pair, which both kinds of pairs go through: those
// of Port, and the second ones of Stripes.
#pragma once

#include "transport/verbs/adapter.hpp"

namespace heddle::transport::verbs {

// A new pair goes to INIT, and can be connected afterwards. False: the adapter refuses.
[[nodiscard]] bool prepare_pair(const Adapter& adapter, ibv_qp* pair);
// It goes to RTR and RTS, connected to the pair `number` of the port at `address`. AGAIN: not now,
// for a passing reason. SYSTEM.
[[nodiscard]] base::Status connect_pair(const Adapter& adapter, ibv_qp* pair, std::uint32_t number,
                                        const Address& address);
// It goes to ERR: nothing leaves or arrives any more, and requests end with errors.
void stop_pair(const Adapter& adapter, ibv_qp* pair);

}  // namespace heddle::transport::verbs
