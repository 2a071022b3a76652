/* Pins the interface: every value, layout and signature of utofu.h 1.0. It is always compiled
 * against the emulator's header, and also against the vendor's if CMake knows its folder. Both
 * programs then run on the emulator, which shows that a program compiled elsewhere runs here. With
 * a wrong header it does not compile (-Werror). */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <utofu.h>

#define VALUE(name, value) _Static_assert((long long)(name) == (value), #name)
#define LAYOUT(type, member, offset) _Static_assert(offsetof(struct type, member) == (offset), #type "." #member)

VALUE(UTOFU_VERSION_MAJOR, 1);
VALUE(UTOFU_VERSION_MINOR, 0);
VALUE(UTOFU_ONESIDED_CAP_FLAG_SESSION_MODE, 1);
VALUE(UTOFU_ONESIDED_CAP_FLAG_ARMW, 2);
VALUE(UTOFU_ONESIDED_CAP_ARMW_OP_CSWAP, 1);
VALUE(UTOFU_ONESIDED_CAP_ARMW_OP_SWAP, 2);
VALUE(UTOFU_ONESIDED_CAP_ARMW_OP_ADD, 4);
VALUE(UTOFU_ONESIDED_CAP_ARMW_OP_XOR, 8);
VALUE(UTOFU_ONESIDED_CAP_ARMW_OP_AND, 16);
VALUE(UTOFU_ONESIDED_CAP_ARMW_OP_OR, 32);
VALUE(UTOFU_BARRIER_CAP_REDUCE_OP_BARRIER, 2);
VALUE(UTOFU_BARRIER_CAP_REDUCE_OP_BAND, 4);
VALUE(UTOFU_BARRIER_CAP_REDUCE_OP_BOR, 8);
VALUE(UTOFU_BARRIER_CAP_REDUCE_OP_BXOR, 16);
VALUE(UTOFU_BARRIER_CAP_REDUCE_OP_MAX, 32);
VALUE(UTOFU_BARRIER_CAP_REDUCE_OP_MAXLOC, 64);
VALUE(UTOFU_BARRIER_CAP_REDUCE_OP_SUM, 128);
VALUE(UTOFU_BARRIER_CAP_REDUCE_OP_BFPSUM, 256);
VALUE(UTOFU_VCQ_FLAG_THREAD_SAFE, 1);
VALUE(UTOFU_VCQ_FLAG_EXCLUSIVE, 2);
VALUE(UTOFU_VCQ_FLAG_SESSION_MODE, 4);
VALUE(UTOFU_VBG_FLAG_THREAD_SAFE, 1);
VALUE(UTOFU_REG_MEM_FLAG_READ_ONLY, 1);
VALUE(UTOFU_ONESIDED_FLAG_STRONG_ORDER, 1);
VALUE(UTOFU_ONESIDED_FLAG_PACKET_RESPONSE, 2);
VALUE(UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, 4);
VALUE(UTOFU_ONESIDED_FLAG_PADDING, 8);
VALUE(UTOFU_ONESIDED_FLAG_CACHE_INJECTION, 32);
VALUE(UTOFU_ONESIDED_FLAG_DELAY_START, 256);
VALUE(UTOFU_ONESIDED_FLAG_TCQ_NOTICE, 16384);
VALUE(UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, 32768);
VALUE(UTOFU_VBG_ID_NULL, -1);
VALUE(UTOFU_PATH_COORD_NULL, 255);
VALUE(UTOFU_SUCCESS, 0);
VALUE(UTOFU_ERR_NOT_FOUND, -1);
VALUE(UTOFU_ERR_NOT_COMPLETED, -2);
VALUE(UTOFU_ERR_NOT_PROCESSED, -3);
VALUE(UTOFU_ERR_BUSY, -4);
VALUE(UTOFU_ERR_USED, -5);
VALUE(UTOFU_ERR_FULL, -6);
VALUE(UTOFU_ERR_NOT_AVAILABLE, -7);
VALUE(UTOFU_ERR_NOT_SUPPORTED, -8);
VALUE(UTOFU_ERR_TCQ_OTHER, -128);
VALUE(UTOFU_ERR_TCQ_DESC, -129);
VALUE(UTOFU_ERR_TCQ_MEMORY, -130);
VALUE(UTOFU_ERR_TCQ_STADD, -131);
VALUE(UTOFU_ERR_TCQ_LENGTH, -132);
VALUE(UTOFU_ERR_MRQ_OTHER, -192);
VALUE(UTOFU_ERR_MRQ_PEER, -193);
VALUE(UTOFU_ERR_MRQ_LCL_MEMORY, -194);
VALUE(UTOFU_ERR_MRQ_RMT_MEMORY, -195);
VALUE(UTOFU_ERR_MRQ_LCL_STADD, -196);
VALUE(UTOFU_ERR_MRQ_RMT_STADD, -197);
VALUE(UTOFU_ERR_MRQ_LCL_LENGTH, -198);
VALUE(UTOFU_ERR_MRQ_RMT_LENGTH, -199);
VALUE(UTOFU_ERR_BARRIER_OTHER, -256);
VALUE(UTOFU_ERR_BARRIER_MISMATCH, -257);
VALUE(UTOFU_ERR_INVALID_ARG, -512);
VALUE(UTOFU_ERR_INVALID_POINTER, -513);
VALUE(UTOFU_ERR_INVALID_FLAGS, -514);
VALUE(UTOFU_ERR_INVALID_COORDS, -515);
VALUE(UTOFU_ERR_INVALID_PATH, -516);
VALUE(UTOFU_ERR_INVALID_TNI_ID, -517);
VALUE(UTOFU_ERR_INVALID_CQ_ID, -518);
VALUE(UTOFU_ERR_INVALID_BG_ID, -519);
VALUE(UTOFU_ERR_INVALID_CMP_ID, -520);
VALUE(UTOFU_ERR_INVALID_VCQ_HDL, -521);
VALUE(UTOFU_ERR_INVALID_VCQ_ID, -522);
VALUE(UTOFU_ERR_INVALID_VBG_ID, -523);
VALUE(UTOFU_ERR_INVALID_PATH_ID, -524);
VALUE(UTOFU_ERR_INVALID_STADD, -525);
VALUE(UTOFU_ERR_INVALID_ADDRESS, -526);
VALUE(UTOFU_ERR_INVALID_SIZE, -527);
VALUE(UTOFU_ERR_INVALID_STAG, -528);
VALUE(UTOFU_ERR_INVALID_EDATA, -529);
VALUE(UTOFU_ERR_INVALID_NUMBER, -530);
VALUE(UTOFU_ERR_INVALID_OP, -531);
VALUE(UTOFU_ERR_INVALID_DESC, -532);
VALUE(UTOFU_ERR_INVALID_DATA, -533);
VALUE(UTOFU_ERR_OUT_OF_RESOURCE, -640);
VALUE(UTOFU_ERR_OUT_OF_MEMORY, -641);
VALUE(UTOFU_ERR_FATAL, -768);
VALUE(UTOFU_ARMW_OP_SWAP, 1);
VALUE(UTOFU_ARMW_OP_ADD, 2);
VALUE(UTOFU_ARMW_OP_XOR, 3);
VALUE(UTOFU_ARMW_OP_AND, 4);
VALUE(UTOFU_ARMW_OP_OR, 5);
VALUE(UTOFU_REDUCE_OP_BARRIER, 1);
VALUE(UTOFU_REDUCE_OP_BAND, 2);
VALUE(UTOFU_REDUCE_OP_BOR, 3);
VALUE(UTOFU_REDUCE_OP_BXOR, 4);
VALUE(UTOFU_REDUCE_OP_MAX, 5);
VALUE(UTOFU_REDUCE_OP_MAXLOC, 6);
VALUE(UTOFU_REDUCE_OP_SUM, 7);
VALUE(UTOFU_REDUCE_OP_BFPSUM, 8);
VALUE(UTOFU_MRQ_TYPE_LCL_PUT, 0);
VALUE(UTOFU_MRQ_TYPE_RMT_PUT, 1);
VALUE(UTOFU_MRQ_TYPE_LCL_GET, 2);
VALUE(UTOFU_MRQ_TYPE_RMT_GET, 3);
VALUE(UTOFU_MRQ_TYPE_LCL_ARMW, 4);
VALUE(UTOFU_MRQ_TYPE_RMT_ARMW, 5);
VALUE(UTOFU_ONESIDED_FLAG_PATH(15UL), 15LL << 28);
VALUE(UTOFU_ONESIDED_FLAG_SPS(15UL), 15LL << 24);

_Static_assert(_Generic((utofu_tni_id_t)0, uint16_t: 1, default: 0), "utofu_tni_id_t");
_Static_assert(_Generic((utofu_cq_id_t)0, uint16_t: 1, default: 0), "utofu_cq_id_t");
_Static_assert(_Generic((utofu_bg_id_t)0, uint16_t: 1, default: 0), "utofu_bg_id_t");
_Static_assert(_Generic((utofu_cmp_id_t)0, uint16_t: 1, default: 0), "utofu_cmp_id_t");
_Static_assert(_Generic((utofu_vcq_hdl_t)0, uintptr_t: 1, default: 0), "utofu_vcq_hdl_t");
_Static_assert(_Generic((utofu_vcq_id_t)0, uint64_t: 1, default: 0), "utofu_vcq_id_t");
_Static_assert(_Generic((utofu_vbg_id_t)0, uint64_t: 1, default: 0), "utofu_vbg_id_t");
_Static_assert(_Generic((utofu_path_id_t)0, uint8_t: 1, default: 0), "utofu_path_id_t");
_Static_assert(_Generic((utofu_stadd_t)0, uint64_t: 1, default: 0), "utofu_stadd_t");

_Static_assert(sizeof(struct utofu_onesided_caps) == 88, "utofu_onesided_caps");
LAYOUT(utofu_onesided_caps, flags, 0);
LAYOUT(utofu_onesided_caps, armw_ops, 8);
LAYOUT(utofu_onesided_caps, num_cmp_ids, 16);
LAYOUT(utofu_onesided_caps, num_reserved_stags, 20);
LAYOUT(utofu_onesided_caps, cache_line_size, 24);
LAYOUT(utofu_onesided_caps, stag_address_alignment, 32);
LAYOUT(utofu_onesided_caps, max_toq_desc_size, 40);
LAYOUT(utofu_onesided_caps, max_putget_size, 48);
LAYOUT(utofu_onesided_caps, max_piggyback_size, 56);
LAYOUT(utofu_onesided_caps, max_edata_size, 64);
LAYOUT(utofu_onesided_caps, max_mtu, 72);
LAYOUT(utofu_onesided_caps, max_gap, 80);
_Static_assert(sizeof(struct utofu_barrier_caps) == 32, "utofu_barrier_caps");
LAYOUT(utofu_barrier_caps, flags, 0);
LAYOUT(utofu_barrier_caps, reduce_ops, 8);
LAYOUT(utofu_barrier_caps, max_uint64_reduction, 16);
LAYOUT(utofu_barrier_caps, max_double_reduction, 24);
_Static_assert(sizeof(struct utofu_vbg_setting) == 48, "utofu_vbg_setting");
LAYOUT(utofu_vbg_setting, vbg_id, 0);
LAYOUT(utofu_vbg_setting, src_lcl_vbg_id, 8);
LAYOUT(utofu_vbg_setting, src_rmt_vbg_id, 16);
LAYOUT(utofu_vbg_setting, dst_lcl_vbg_id, 24);
LAYOUT(utofu_vbg_setting, dst_rmt_vbg_id, 32);
LAYOUT(utofu_vbg_setting, dst_path_coords, 40);
_Static_assert(sizeof(struct utofu_mrq_notice) == 64, "utofu_mrq_notice");
LAYOUT(utofu_mrq_notice, notice_type, 0);
LAYOUT(utofu_mrq_notice, padding1, 1);
LAYOUT(utofu_mrq_notice, vcq_id, 8);
LAYOUT(utofu_mrq_notice, edata, 16);
LAYOUT(utofu_mrq_notice, rmt_value, 24);
LAYOUT(utofu_mrq_notice, lcl_stadd, 32);
LAYOUT(utofu_mrq_notice, rmt_stadd, 40);
LAYOUT(utofu_mrq_notice, reserved, 48);

/* Initialised with the functions: a different signature is an incompatible pointer. */
static int (*const call_get_onesided_tnis)(utofu_tni_id_t**, size_t*) = utofu_get_onesided_tnis;
static int (*const call_get_barrier_tnis)(utofu_tni_id_t**, size_t*) = utofu_get_barrier_tnis;
static int (*const call_query_onesided_caps)(utofu_tni_id_t, struct utofu_onesided_caps**) = utofu_query_onesided_caps;
static int (*const call_query_barrier_caps)(utofu_tni_id_t, struct utofu_barrier_caps**) = utofu_query_barrier_caps;
static void (*const call_query_tofu_version)(int*, int*) = utofu_query_tofu_version;
static void (*const call_query_utofu_version)(int*, int*) = utofu_query_utofu_version;
static int (*const call_query_my_coords)(uint8_t*) = utofu_query_my_coords;
static int (*const call_create_vcq)(utofu_tni_id_t, unsigned long int, utofu_vcq_hdl_t*) = utofu_create_vcq;
static int (*const call_create_vcq_with_cmp_id)(utofu_tni_id_t, utofu_cmp_id_t, unsigned long int,
                                                utofu_vcq_hdl_t*) = utofu_create_vcq_with_cmp_id;
static int (*const call_free_vcq)(utofu_vcq_hdl_t) = utofu_free_vcq;
static int (*const call_query_vcq_id)(utofu_vcq_hdl_t, utofu_vcq_id_t*) = utofu_query_vcq_id;
static int (*const call_construct_vcq_id)(uint8_t*, utofu_tni_id_t, utofu_cq_id_t, utofu_cmp_id_t,
                                          utofu_vcq_id_t*) = utofu_construct_vcq_id;
static int (*const call_set_vcq_id_path)(utofu_vcq_id_t*, uint8_t*) = utofu_set_vcq_id_path;
static int (*const call_query_vcq_info)(utofu_vcq_id_t, uint8_t*, utofu_tni_id_t*, utofu_cq_id_t*,
                                        uint16_t*) = utofu_query_vcq_info;
static int (*const call_get_path_id)(utofu_vcq_id_t, uint8_t*, utofu_path_id_t*) = utofu_get_path_id;
static int (*const call_get_path_coords)(utofu_vcq_id_t, utofu_path_id_t, uint8_t*) = utofu_get_path_coords;
static int (*const call_reg_mem)(utofu_vcq_hdl_t, void*, size_t, unsigned long int, utofu_stadd_t*) = utofu_reg_mem;
static int (*const call_reg_mem_with_stag)(utofu_vcq_hdl_t, void*, size_t, unsigned int, unsigned long int,
                                           utofu_stadd_t*) = utofu_reg_mem_with_stag;
static int (*const call_query_stadd)(utofu_vcq_id_t, unsigned int, utofu_stadd_t*) = utofu_query_stadd;
static int (*const call_dereg_mem)(utofu_vcq_hdl_t, utofu_stadd_t, unsigned long int) = utofu_dereg_mem;
static int (*const call_put)(utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t, size_t, uint64_t,
                             unsigned long int, void*) = utofu_put;
static int (*const call_put_gap)(utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t, size_t, uint64_t,
                                 unsigned long int, size_t, size_t, void*) = utofu_put_gap;
static int (*const call_put_stride)(utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t, size_t, size_t,
                                    size_t, uint64_t, unsigned long int, void*) = utofu_put_stride;
static int (*const call_put_stride_gap)(utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t, size_t, size_t,
                                        size_t, uint64_t, unsigned long int, size_t, size_t,
                                        void*) = utofu_put_stride_gap;
static int (*const call_put_piggyback)(utofu_vcq_hdl_t, utofu_vcq_id_t, void*, utofu_stadd_t, size_t, uint64_t,
                                       unsigned long int, void*) = utofu_put_piggyback;
static int (*const call_put_piggyback8)(utofu_vcq_hdl_t, utofu_vcq_id_t, uint64_t, utofu_stadd_t, size_t, uint64_t,
                                        unsigned long int, void*) = utofu_put_piggyback8;
static int (*const call_get)(utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t, size_t, uint64_t,
                             unsigned long int, void*) = utofu_get;
static int (*const call_get_gap)(utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t, size_t, uint64_t,
                                 unsigned long int, size_t, size_t, void*) = utofu_get_gap;
static int (*const call_get_stride)(utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t, size_t, size_t,
                                    size_t, uint64_t, unsigned long int, void*) = utofu_get_stride;
static int (*const call_get_stride_gap)(utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t, size_t, size_t,
                                        size_t, uint64_t, unsigned long int, size_t, size_t,
                                        void*) = utofu_get_stride_gap;
static int (*const call_armw4)(utofu_vcq_hdl_t, utofu_vcq_id_t, enum utofu_armw_op, uint32_t, utofu_stadd_t, uint64_t,
                               unsigned long int, void*) = utofu_armw4;
static int (*const call_armw8)(utofu_vcq_hdl_t, utofu_vcq_id_t, enum utofu_armw_op, uint64_t, utofu_stadd_t, uint64_t,
                               unsigned long int, void*) = utofu_armw8;
static int (*const call_cswap4)(utofu_vcq_hdl_t, utofu_vcq_id_t, uint32_t, uint32_t, utofu_stadd_t, uint64_t,
                                unsigned long int, void*) = utofu_cswap4;
static int (*const call_cswap8)(utofu_vcq_hdl_t, utofu_vcq_id_t, uint64_t, uint64_t, utofu_stadd_t, uint64_t,
                                unsigned long int, void*) = utofu_cswap8;
static int (*const call_nop)(utofu_vcq_hdl_t, unsigned long int, void*) = utofu_nop;
static int (*const call_prepare_put)(utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t, size_t, uint64_t,
                                     unsigned long int, void*, size_t*) = utofu_prepare_put;
static int (*const call_prepare_put_gap)(utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t, size_t,
                                         uint64_t, unsigned long int, size_t, size_t, void*,
                                         size_t*) = utofu_prepare_put_gap;
static int (*const call_prepare_put_stride)(utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t, size_t,
                                            size_t, size_t, uint64_t, unsigned long int, void*,
                                            size_t*) = utofu_prepare_put_stride;
static int (*const call_prepare_put_stride_gap)(utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t, size_t,
                                                size_t, size_t, uint64_t, unsigned long int, size_t, size_t, void*,
                                                size_t*) = utofu_prepare_put_stride_gap;
static int (*const call_prepare_put_piggyback)(utofu_vcq_hdl_t, utofu_vcq_id_t, void*, utofu_stadd_t, size_t, uint64_t,
                                               unsigned long int, void*, size_t*) = utofu_prepare_put_piggyback;
static int (*const call_prepare_put_piggyback8)(utofu_vcq_hdl_t, utofu_vcq_id_t, uint64_t, utofu_stadd_t, size_t,
                                                uint64_t, unsigned long int, void*,
                                                size_t*) = utofu_prepare_put_piggyback8;
static int (*const call_prepare_get)(utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t, size_t, uint64_t,
                                     unsigned long int, void*, size_t*) = utofu_prepare_get;
static int (*const call_prepare_get_gap)(utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t, size_t,
                                         uint64_t, unsigned long int, size_t, size_t, void*,
                                         size_t*) = utofu_prepare_get_gap;
static int (*const call_prepare_get_stride)(utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t, size_t,
                                            size_t, size_t, uint64_t, unsigned long int, void*,
                                            size_t*) = utofu_prepare_get_stride;
static int (*const call_prepare_get_stride_gap)(utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t, size_t,
                                                size_t, size_t, uint64_t, unsigned long int, size_t, size_t, void*,
                                                size_t*) = utofu_prepare_get_stride_gap;
static int (*const call_prepare_armw4)(utofu_vcq_hdl_t, utofu_vcq_id_t, enum utofu_armw_op, uint32_t, utofu_stadd_t,
                                       uint64_t, unsigned long int, void*, size_t*) = utofu_prepare_armw4;
static int (*const call_prepare_armw8)(utofu_vcq_hdl_t, utofu_vcq_id_t, enum utofu_armw_op, uint64_t, utofu_stadd_t,
                                       uint64_t, unsigned long int, void*, size_t*) = utofu_prepare_armw8;
static int (*const call_prepare_cswap4)(utofu_vcq_hdl_t, utofu_vcq_id_t, uint32_t, uint32_t, utofu_stadd_t, uint64_t,
                                        unsigned long int, void*, size_t*) = utofu_prepare_cswap4;
static int (*const call_prepare_cswap8)(utofu_vcq_hdl_t, utofu_vcq_id_t, uint64_t, uint64_t, utofu_stadd_t, uint64_t,
                                        unsigned long int, void*, size_t*) = utofu_prepare_cswap8;
static int (*const call_prepare_nop)(utofu_vcq_hdl_t, unsigned long int, void*, size_t*) = utofu_prepare_nop;
static int (*const call_post_toq)(utofu_vcq_hdl_t, void*, size_t, void*) = utofu_post_toq;
static int (*const call_poll_tcq)(utofu_vcq_hdl_t, unsigned long int, void**) = utofu_poll_tcq;
static int (*const call_poll_mrq)(utofu_vcq_hdl_t, unsigned long int, struct utofu_mrq_notice*) = utofu_poll_mrq;
static int (*const call_query_num_unread_tcq)(utofu_vcq_hdl_t, size_t*) = utofu_query_num_unread_tcq;
static int (*const call_query_num_unread_mrq)(utofu_vcq_hdl_t, size_t*) = utofu_query_num_unread_mrq;
static int (*const call_alloc_vbg)(utofu_tni_id_t, size_t, unsigned long int, utofu_vbg_id_t*) = utofu_alloc_vbg;
static int (*const call_free_vbg)(utofu_vbg_id_t*, size_t) = utofu_free_vbg;
static int (*const call_set_vbg)(struct utofu_vbg_setting*, size_t) = utofu_set_vbg;
static int (*const call_query_vbg_info)(utofu_vbg_id_t, uint8_t*, utofu_tni_id_t*, utofu_bg_id_t*,
                                        uint16_t*) = utofu_query_vbg_info;
static int (*const call_barrier)(utofu_vbg_id_t, unsigned long int) = utofu_barrier;
static int (*const call_reduce_uint64)(utofu_vbg_id_t, enum utofu_reduce_op, uint64_t*, size_t,
                                       unsigned long int) = utofu_reduce_uint64;
static int (*const call_reduce_double)(utofu_vbg_id_t, enum utofu_reduce_op, double*, size_t,
                                       unsigned long int) = utofu_reduce_double;
static int (*const call_poll_barrier)(utofu_vbg_id_t, unsigned long int) = utofu_poll_barrier;
static int (*const call_poll_reduce_uint64)(utofu_vbg_id_t, unsigned long int, uint64_t*) = utofu_poll_reduce_uint64;
static int (*const call_poll_reduce_double)(utofu_vbg_id_t, unsigned long int, double*) = utofu_poll_reduce_double;

#define CHECK(what)                                                    \
  do {                                                                 \
    if (!(what)) {                                                     \
      (void)fprintf(stderr, "line %d: not so: %s\n", __LINE__, #what); \
      return 1;                                                        \
    }                                                                  \
  } while (0)

/* Puts, gets, changes and checks a word, all through the pointers. */
static int run(void) {
  static uint64_t words[64];
  utofu_vcq_hdl_t handle = 0;
  utofu_vcq_id_t id = 0;
  utofu_stadd_t stadd = 0;
  struct utofu_mrq_notice notice;
  memset(&notice, 0, sizeof notice);
  CHECK(call_create_vcq(0, UTOFU_VCQ_FLAG_EXCLUSIVE, &handle) == UTOFU_SUCCESS);
  CHECK(call_query_vcq_id(handle, &id) == UTOFU_SUCCESS);
  CHECK(call_reg_mem(handle, words, sizeof words, 0, &stadd) == UTOFU_SUCCESS);
  words[0] = 11;
  const unsigned long flags = UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE | UTOFU_ONESIDED_FLAG_TCQ_NOTICE;
  CHECK(call_put(handle, id, stadd, stadd + 8, 8, 3, flags, &stadd) == UTOFU_SUCCESS);
  void* cbdata = NULL;
  int status;
  while ((status = call_poll_tcq(handle, 0, &cbdata)) == UTOFU_ERR_NOT_FOUND) {
  }
  CHECK(status == UTOFU_SUCCESS && cbdata == &stadd);
  while ((status = call_poll_mrq(handle, 0, &notice)) == UTOFU_ERR_NOT_FOUND) {
  }
  CHECK(status == UTOFU_SUCCESS && notice.notice_type == UTOFU_MRQ_TYPE_LCL_PUT && notice.vcq_id == id);
  CHECK(notice.edata == 3 && notice.rmt_stadd == stadd + 16 && words[1] == 11);
  CHECK(call_armw8(handle, id, UTOFU_ARMW_OP_ADD, 4, stadd + 8, 5, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL) ==
        UTOFU_SUCCESS);
  while ((status = call_poll_mrq(handle, 0, &notice)) == UTOFU_ERR_NOT_FOUND) {
  }
  CHECK(status == UTOFU_SUCCESS && notice.notice_type == UTOFU_MRQ_TYPE_LCL_ARMW && notice.rmt_value == 11);
  CHECK(words[1] == 15);
  CHECK(call_dereg_mem(handle, stadd, 0) == UTOFU_SUCCESS);
  CHECK(call_free_vcq(handle) == UTOFU_SUCCESS);
  return 0;
}

int main(void) {
  void (*const calls[])(void) = {(void (*)(void))call_get_onesided_tnis,
                                 (void (*)(void))call_get_barrier_tnis,
                                 (void (*)(void))call_query_onesided_caps,
                                 (void (*)(void))call_query_barrier_caps,
                                 (void (*)(void))call_query_tofu_version,
                                 (void (*)(void))call_query_utofu_version,
                                 (void (*)(void))call_query_my_coords,
                                 (void (*)(void))call_create_vcq,
                                 (void (*)(void))call_create_vcq_with_cmp_id,
                                 (void (*)(void))call_free_vcq,
                                 (void (*)(void))call_query_vcq_id,
                                 (void (*)(void))call_construct_vcq_id,
                                 (void (*)(void))call_set_vcq_id_path,
                                 (void (*)(void))call_query_vcq_info,
                                 (void (*)(void))call_get_path_id,
                                 (void (*)(void))call_get_path_coords,
                                 (void (*)(void))call_reg_mem,
                                 (void (*)(void))call_reg_mem_with_stag,
                                 (void (*)(void))call_query_stadd,
                                 (void (*)(void))call_dereg_mem,
                                 (void (*)(void))call_put,
                                 (void (*)(void))call_put_gap,
                                 (void (*)(void))call_put_stride,
                                 (void (*)(void))call_put_stride_gap,
                                 (void (*)(void))call_put_piggyback,
                                 (void (*)(void))call_put_piggyback8,
                                 (void (*)(void))call_get,
                                 (void (*)(void))call_get_gap,
                                 (void (*)(void))call_get_stride,
                                 (void (*)(void))call_get_stride_gap,
                                 (void (*)(void))call_armw4,
                                 (void (*)(void))call_armw8,
                                 (void (*)(void))call_cswap4,
                                 (void (*)(void))call_cswap8,
                                 (void (*)(void))call_nop,
                                 (void (*)(void))call_prepare_put,
                                 (void (*)(void))call_prepare_put_gap,
                                 (void (*)(void))call_prepare_put_stride,
                                 (void (*)(void))call_prepare_put_stride_gap,
                                 (void (*)(void))call_prepare_put_piggyback,
                                 (void (*)(void))call_prepare_put_piggyback8,
                                 (void (*)(void))call_prepare_get,
                                 (void (*)(void))call_prepare_get_gap,
                                 (void (*)(void))call_prepare_get_stride,
                                 (void (*)(void))call_prepare_get_stride_gap,
                                 (void (*)(void))call_prepare_armw4,
                                 (void (*)(void))call_prepare_armw8,
                                 (void (*)(void))call_prepare_cswap4,
                                 (void (*)(void))call_prepare_cswap8,
                                 (void (*)(void))call_prepare_nop,
                                 (void (*)(void))call_post_toq,
                                 (void (*)(void))call_poll_tcq,
                                 (void (*)(void))call_poll_mrq,
                                 (void (*)(void))call_query_num_unread_tcq,
                                 (void (*)(void))call_query_num_unread_mrq,
                                 (void (*)(void))call_alloc_vbg,
                                 (void (*)(void))call_free_vbg,
                                 (void (*)(void))call_set_vbg,
                                 (void (*)(void))call_query_vbg_info,
                                 (void (*)(void))call_barrier,
                                 (void (*)(void))call_reduce_uint64,
                                 (void (*)(void))call_reduce_double,
                                 (void (*)(void))call_poll_barrier,
                                 (void (*)(void))call_poll_reduce_uint64,
                                 (void (*)(void))call_poll_reduce_double};
  _Static_assert(sizeof calls / sizeof calls[0] == 65, "functions");
  for (size_t i = 0; i < sizeof calls / sizeof calls[0]; ++i) CHECK(calls[i] != NULL);
  return run();
}
