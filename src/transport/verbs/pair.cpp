#include "transport/verbs/pair.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace heddle::transport::verbs {
namespace {

// To connect over RoCE, the kernel looks for the neighbour's address, which may not be known yet.
bool is_passing(int error) {
  return error == EAGAIN || error == ENOMEM || error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH;
}

}  // namespace

bool prepare_pair(const Adapter& adapter, ibv_qp* pair) {
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_INIT;
  to.port_num = adapter.port();
  to.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  return adapter.call().modify_qp(pair, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0;
}

base::Status connect_pair(const Adapter& adapter, ibv_qp* pair, std::uint32_t number, const Address& address) {
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_RTR;
  to.path_mtu = static_cast<ibv_mtu>(std::min(adapter.address().mtu, address.mtu));
  to.dest_qp_num = number;
  to.max_dest_rd_atomic = static_cast<std::uint8_t>(adapter.address().reads);
  to.min_rnr_timer = 12;  // 0.64 ms
  to.ah_attr = adapter.route_to(address);
  int failed = adapter.call().modify_qp(pair, &to,
                                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (is_passing(failed)) return HEDDLE_AGAIN;
  if (failed == 0) {
    to.qp_state = IBV_QPS_RTS;
    to.timeout = 18;  // a packet without an answer is sent again after 1 s, seven times
    to.retry_cnt = 7;
    to.rnr_retry = 7;  // for ever: a receiver that computes is not lost
    // not more RDMA reads than the peer's adapter answers at a time: it may be another model
    to.max_rd_atomic = static_cast<std::uint8_t>(std::min<int>(adapter.limits().max_qp_init_rd_atom, address.reads));
    failed = adapter.call().modify_qp(
        pair, &to,
        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  }
  if (failed == 0) return HEDDLE_DONE;
  return base::fail(HEDDLE_ERR_SYSTEM, "%s does not connect a queue pair: %s", adapter.name().c_str(),
                    std::strerror(failed));
}

void stop_pair(const Adapter& adapter, ibv_qp* pair) {
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_ERR;
  static_cast<void>(adapter.call().modify_qp(pair, &to, IBV_QP_STATE));
}

}  // namespace heddle::transport::verbs
