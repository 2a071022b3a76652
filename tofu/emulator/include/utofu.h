/* The uTofu interface: one-sided communication and barriers on the Tofu interconnect.
 *
 * Written for the emulator in this folder. Names, values, layouts and signatures are those of
 * version 1.0 of the interface. So a program compiled with the vendor's header runs with this
 * library, and vice versa.
 *
 * Terms: a TNI is one of a node's network interfaces. A CQ is one of its command queues, with a
 * queue of commands (TOQ), one of their local completions (TCQ) and one of notices of remote
 * completions (MRQ). A VCQ is a program's part of a CQ. A VBG is a barrier gate. A STADD names a
 * byte of registered memory. Unless stated otherwise, every function returns UTOFU_SUCCESS or a
 * negative enum utofu_return_code. A handle without UTOFU_VCQ_FLAG_THREAD_SAFE may be used by one
 * thread at a time, over all functions. */
#ifndef UTOFU_H
#define UTOFU_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define UTOFU_VERSION_MAJOR 1
#define UTOFU_VERSION_MINOR 0

/* utofu_onesided_caps.flags */
#define UTOFU_ONESIDED_CAP_FLAG_SESSION_MODE (1UL << 0)
#define UTOFU_ONESIDED_CAP_FLAG_ARMW (1UL << 1)

/* utofu_onesided_caps.armw_ops */
#define UTOFU_ONESIDED_CAP_ARMW_OP_CSWAP (1UL << 0)
#define UTOFU_ONESIDED_CAP_ARMW_OP_SWAP (1UL << 1)
#define UTOFU_ONESIDED_CAP_ARMW_OP_ADD (1UL << 2)
#define UTOFU_ONESIDED_CAP_ARMW_OP_XOR (1UL << 3)
#define UTOFU_ONESIDED_CAP_ARMW_OP_AND (1UL << 4)
#define UTOFU_ONESIDED_CAP_ARMW_OP_OR (1UL << 5)

/* utofu_barrier_caps.reduce_ops: 1 << enum utofu_reduce_op */
#define UTOFU_BARRIER_CAP_REDUCE_OP_BARRIER (1UL << 1)
#define UTOFU_BARRIER_CAP_REDUCE_OP_BAND (1UL << 2)
#define UTOFU_BARRIER_CAP_REDUCE_OP_BOR (1UL << 3)
#define UTOFU_BARRIER_CAP_REDUCE_OP_BXOR (1UL << 4)
#define UTOFU_BARRIER_CAP_REDUCE_OP_MAX (1UL << 5)
#define UTOFU_BARRIER_CAP_REDUCE_OP_MAXLOC (1UL << 6)
#define UTOFU_BARRIER_CAP_REDUCE_OP_SUM (1UL << 7)
#define UTOFU_BARRIER_CAP_REDUCE_OP_BFPSUM (1UL << 8)

/* utofu_create_vcq, utofu_create_vcq_with_cmp_id */
#define UTOFU_VCQ_FLAG_THREAD_SAFE (1UL << 0) /* the library takes a lock in each call */
#define UTOFU_VCQ_FLAG_EXCLUSIVE (1UL << 1)   /* the only VCQ of its CQ */
/* commands wait for credits (SPS) of arriving messages */
#define UTOFU_VCQ_FLAG_SESSION_MODE (1UL << 2)

/* utofu_alloc_vbg */
#define UTOFU_VBG_FLAG_THREAD_SAFE (1UL << 0)

/* utofu_reg_mem, utofu_reg_mem_with_stag */
#define UTOFU_REG_MEM_FLAG_READ_ONLY (1UL << 0)

/* Flags of one-sided commands. Bits without a name must be 0. */
/* written in order, after earlier ones of the same VCQ pair and path */
#define UTOFU_ONESIDED_FLAG_STRONG_ORDER (1UL << 0)
#define UTOFU_ONESIDED_FLAG_PACKET_RESPONSE (1UL << 1)
/* a notice at the target when all data is there */
#define UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE (1UL << 2)
/* may overwrite the rest of the target's cache line */
#define UTOFU_ONESIDED_FLAG_PADDING (1UL << 3)
#define UTOFU_ONESIDED_FLAG_CACHE_INJECTION (1UL << 5)
#define UTOFU_ONESIDED_FLAG_DELAY_START (1UL << 8)
/* utofu_poll_tcq reports when the source may be changed */
#define UTOFU_ONESIDED_FLAG_TCQ_NOTICE (1UL << 14)
/* a local notice when the target has acknowledged */
#define UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE (1UL << 15)
/* 0 to 15 credits for the target's CQ */
#define UTOFU_ONESIDED_FLAG_SPS(sps) ((unsigned long int)(sps) << 24)
#define UTOFU_ONESIDED_FLAG_PATH(path_id) ((unsigned long int)(path_id) << 28)

#define UTOFU_VBG_ID_NULL ((utofu_vbg_id_t) - 1)
#define UTOFU_PATH_COORD_NULL ((uint8_t)-1)

typedef uint16_t utofu_tni_id_t;
typedef uint16_t utofu_cq_id_t;
typedef uint16_t utofu_bg_id_t;
typedef uint16_t utofu_cmp_id_t;
typedef uintptr_t utofu_vcq_hdl_t; /* valid in this process */
typedef uint64_t utofu_vcq_id_t;   /* may be sent to other processes */
typedef uint64_t utofu_vbg_id_t;
typedef uint8_t utofu_path_id_t; /* 4 bits */
typedef uint64_t utofu_stadd_t;  /* address + k names byte k of the registered memory */

enum utofu_return_code {
  UTOFU_SUCCESS = 0,

  UTOFU_ERR_NOT_FOUND = -1,     /* nothing in the queue */
  UTOFU_ERR_NOT_COMPLETED = -2, /* the barrier or reduction is in progress */
  UTOFU_ERR_NOT_PROCESSED = -3,
  UTOFU_ERR_BUSY = -4,          /* no room in the TOQ: poll the TCQ, then try again */
  UTOFU_ERR_USED = -5,          /* the requested id or stag is in use */
  UTOFU_ERR_FULL = -6,          /* none is left */
  UTOFU_ERR_NOT_AVAILABLE = -7, /* none of this kind is left at present */
  UTOFU_ERR_NOT_SUPPORTED = -8,

  /* Of utofu_poll_tcq: the command failed locally. */
  UTOFU_ERR_TCQ_OTHER = -128,
  UTOFU_ERR_TCQ_DESC = -129,
  UTOFU_ERR_TCQ_MEMORY = -130,
  UTOFU_ERR_TCQ_STADD = -131,
  UTOFU_ERR_TCQ_LENGTH = -132,

  /* Of utofu_poll_mrq: the command failed at the target, or its answer failed locally. */
  UTOFU_ERR_MRQ_OTHER = -192,
  UTOFU_ERR_MRQ_PEER = -193,
  UTOFU_ERR_MRQ_LCL_MEMORY = -194,
  UTOFU_ERR_MRQ_RMT_MEMORY = -195,
  UTOFU_ERR_MRQ_LCL_STADD = -196,
  UTOFU_ERR_MRQ_RMT_STADD = -197,
  UTOFU_ERR_MRQ_LCL_LENGTH = -198,
  UTOFU_ERR_MRQ_RMT_LENGTH = -199,

  /* Of utofu_poll_barrier and utofu_poll_reduce_*. */
  UTOFU_ERR_BARRIER_OTHER = -256,
  UTOFU_ERR_BARRIER_MISMATCH = -257,

  /* The argument of that name is invalid. */
  UTOFU_ERR_INVALID_ARG = -512,
  UTOFU_ERR_INVALID_POINTER = -513,
  UTOFU_ERR_INVALID_FLAGS = -514,
  UTOFU_ERR_INVALID_COORDS = -515,
  UTOFU_ERR_INVALID_PATH = -516,
  UTOFU_ERR_INVALID_TNI_ID = -517,
  UTOFU_ERR_INVALID_CQ_ID = -518,
  UTOFU_ERR_INVALID_BG_ID = -519,
  UTOFU_ERR_INVALID_CMP_ID = -520,
  UTOFU_ERR_INVALID_VCQ_HDL = -521,
  UTOFU_ERR_INVALID_VCQ_ID = -522,
  UTOFU_ERR_INVALID_VBG_ID = -523,
  UTOFU_ERR_INVALID_PATH_ID = -524,
  UTOFU_ERR_INVALID_STADD = -525,
  UTOFU_ERR_INVALID_ADDRESS = -526,
  UTOFU_ERR_INVALID_SIZE = -527,
  UTOFU_ERR_INVALID_STAG = -528,
  UTOFU_ERR_INVALID_EDATA = -529,
  UTOFU_ERR_INVALID_NUMBER = -530,
  UTOFU_ERR_INVALID_OP = -531,
  UTOFU_ERR_INVALID_DESC = -532,
  UTOFU_ERR_INVALID_DATA = -533,

  UTOFU_ERR_OUT_OF_RESOURCE = -640,
  UTOFU_ERR_OUT_OF_MEMORY = -641,

  UTOFU_ERR_FATAL = -768
};

enum utofu_armw_op {
  UTOFU_ARMW_OP_SWAP = 1,
  UTOFU_ARMW_OP_ADD = 2,
  UTOFU_ARMW_OP_XOR = 3,
  UTOFU_ARMW_OP_AND = 4,
  UTOFU_ARMW_OP_OR = 5
};

enum utofu_reduce_op {
  UTOFU_REDUCE_OP_BARRIER = 1,
  UTOFU_REDUCE_OP_BAND = 2,
  UTOFU_REDUCE_OP_BOR = 3,
  UTOFU_REDUCE_OP_BXOR = 4,
  UTOFU_REDUCE_OP_MAX = 5,
  UTOFU_REDUCE_OP_MAXLOC = 6,
  UTOFU_REDUCE_OP_SUM = 7,
  UTOFU_REDUCE_OP_BFPSUM = 8
};

/* LCL: at the initiator, RMT: at the target. */
enum utofu_mrq_notice_type {
  UTOFU_MRQ_TYPE_LCL_PUT = 0,
  UTOFU_MRQ_TYPE_RMT_PUT = 1,
  UTOFU_MRQ_TYPE_LCL_GET = 2,
  UTOFU_MRQ_TYPE_RMT_GET = 3,
  UTOFU_MRQ_TYPE_LCL_ARMW = 4,
  UTOFU_MRQ_TYPE_RMT_ARMW = 5
};

struct utofu_onesided_caps {
  unsigned long int flags;
  unsigned long int armw_ops;
  unsigned int num_cmp_ids;
  unsigned int num_reserved_stags;
  size_t cache_line_size;
  size_t stag_address_alignment;
  size_t max_toq_desc_size;
  size_t max_putget_size;
  size_t max_piggyback_size;
  size_t max_edata_size;
  size_t max_mtu;
  size_t max_gap;
};

struct utofu_barrier_caps {
  unsigned long int flags;
  unsigned long int reduce_ops;
  size_t max_uint64_reduction;
  size_t max_double_reduction;
};

/* A gate's two inputs (src) and two outputs (dst): one to a gate of this node (lcl), one to a gate
 * of another node (rmt); UTOFU_VBG_ID_NULL: unused. */
struct utofu_vbg_setting {
  utofu_vbg_id_t vbg_id;
  utofu_vbg_id_t src_lcl_vbg_id;
  utofu_vbg_id_t src_rmt_vbg_id;
  utofu_vbg_id_t dst_lcl_vbg_id;
  utofu_vbg_id_t dst_rmt_vbg_id;
  uint8_t dst_path_coords[3]; /* UTOFU_PATH_COORD_NULL in the first: the default path */
};

struct utofu_mrq_notice {
  uint8_t notice_type; /* enum utofu_mrq_notice_type */
  uint8_t padding1[7];
  utofu_vcq_id_t vcq_id; /* of the other side, without a path */
  uint64_t edata;
  uint64_t rmt_value;      /* LCL_ARMW: the old value; RMT_PUT: like rmt_stadd */
  utofu_stadd_t lcl_stadd; /* LCL_GET: the end of the destination */
  utofu_stadd_t rmt_stadd; /* puts and LCL_GET: the end of the remote range; LCL_ARMW: the word */
  uint64_t reserved[2];
};

/* The machine. */

/* *tni_ids: the caller frees it with free(). */
int utofu_get_onesided_tnis(utofu_tni_id_t** tni_ids, size_t* num_tnis);
int utofu_get_barrier_tnis(utofu_tni_id_t** tni_ids, size_t* num_tnis);
/* *tni_caps: owned by the library, not to be freed. */
int utofu_query_onesided_caps(utofu_tni_id_t tni_id, struct utofu_onesided_caps** tni_caps);
int utofu_query_barrier_caps(utofu_tni_id_t tni_id, struct utofu_barrier_caps** tni_caps);
void utofu_query_tofu_version(int* major_ver, int* minor_ver);
void utofu_query_utofu_version(int* major_ver, int* minor_ver);
/* X, Y, Z, A, B, C of this node: 6 values. */
int utofu_query_my_coords(uint8_t coords[]);

/* VCQs. */

int utofu_create_vcq(utofu_tni_id_t tni_id, unsigned long int flags, utofu_vcq_hdl_t* vcq_hdl);
/* The VCQ gets an id that utofu_construct_vcq_id can compute on any process from the number of a
 * software component. */
int utofu_create_vcq_with_cmp_id(utofu_tni_id_t tni_id, utofu_cmp_id_t cmp_id, unsigned long int flags,
                                 utofu_vcq_hdl_t* vcq_hdl);
int utofu_free_vcq(utofu_vcq_hdl_t vcq_hdl);
/* *vcq_id has no path. */
int utofu_query_vcq_id(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t* vcq_id);
int utofu_construct_vcq_id(uint8_t coords[], utofu_tni_id_t tni_id, utofu_cq_id_t cq_id, utofu_cmp_id_t cmp_id,
                           utofu_vcq_id_t* vcq_id);
/* path_coords: 3 values; null: the default path. */
int utofu_set_vcq_id_path(utofu_vcq_id_t* vcq_id, uint8_t path_coords[]);
int utofu_query_vcq_info(utofu_vcq_id_t vcq_id, uint8_t coords[], utofu_tni_id_t* tni_id, utofu_cq_id_t* cq_id,
                         uint16_t* extra_val);

/* The path to a VCQ, in the form for UTOFU_ONESIDED_FLAG_PATH. */
int utofu_get_path_id(utofu_vcq_id_t vcq_id, uint8_t path_coords[], utofu_path_id_t* path_id);
int utofu_get_path_coords(utofu_vcq_id_t vcq_id, utofu_path_id_t path_id, uint8_t path_coords[]);

/* Memory. Memory registered with a VCQ is known to its CQ, for its own commands and for those of
 * others to it. */

int utofu_reg_mem(utofu_vcq_hdl_t vcq_hdl, void* addr, size_t size, unsigned long int flags, utofu_stadd_t* stadd);
/* stag: below num_reserved_stags; addr: a multiple of stag_address_alignment. */
int utofu_reg_mem_with_stag(utofu_vcq_hdl_t vcq_hdl, void* addr, size_t size, unsigned int stag,
                            unsigned long int flags, utofu_stadd_t* stadd);
/* The address that utofu_reg_mem_with_stag gives there, whether or not it was called. */
int utofu_query_stadd(utofu_vcq_id_t vcq_id, unsigned int stag, utofu_stadd_t* stadd);
int utofu_dereg_mem(utofu_vcq_hdl_t vcq_hdl, utofu_stadd_t stadd, unsigned long int flags);

/* Commands that are posted at once. A stride is num_blocks commands of `length` bytes each,
 * `stride` apart on both sides. mtu and gap shape the packets. UTOFU_ERR_BUSY: nothing was posted.
 * utofu_poll_tcq returns cbdata. */

int utofu_put(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd,
              size_t length, uint64_t edata, unsigned long int flags, void* cbdata);
int utofu_put_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd,
                  size_t length, uint64_t edata, unsigned long int flags, size_t mtu, size_t gap, void* cbdata);
int utofu_put_stride(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                     utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks, uint64_t edata,
                     unsigned long int flags, void* cbdata);
int utofu_put_stride_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                         utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks, uint64_t edata,
                         unsigned long int flags, size_t mtu, size_t gap, void* cbdata);
/* The bytes are copied before the function returns. */
int utofu_put_piggyback(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, void* lcl_data, utofu_stadd_t rmt_stadd,
                        size_t length, uint64_t edata, unsigned long int flags, void* cbdata);
int utofu_put_piggyback8(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint64_t lcl_data, utofu_stadd_t rmt_stadd,
                         size_t length, uint64_t edata, unsigned long int flags, void* cbdata);
int utofu_get(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd,
              size_t length, uint64_t edata, unsigned long int flags, void* cbdata);
int utofu_get_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd,
                  size_t length, uint64_t edata, unsigned long int flags, size_t mtu, size_t gap, void* cbdata);
int utofu_get_stride(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                     utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks, uint64_t edata,
                     unsigned long int flags, void* cbdata);
int utofu_get_stride_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                         utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks, uint64_t edata,
                         unsigned long int flags, size_t mtu, size_t gap, void* cbdata);
/* The remote word changes; its old value comes with UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE. */
int utofu_armw4(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, enum utofu_armw_op armw_op, uint32_t op_value,
                utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void* cbdata);
int utofu_armw8(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, enum utofu_armw_op armw_op, uint64_t op_value,
                utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void* cbdata);
int utofu_cswap4(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint32_t old_value, uint32_t new_value,
                 utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void* cbdata);
int utofu_cswap8(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint64_t old_value, uint64_t new_value,
                 utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void* cbdata);
int utofu_nop(utofu_vcq_hdl_t vcq_hdl, unsigned long int flags, void* cbdata);

/* Commands written to `desc` for utofu_post_toq, which may post them any number of times. desc:
 * aligned to 8, at least max_toq_desc_size; for a stride 32 bytes a block. *desc_size: the number
 * of bytes written. */

int utofu_prepare_put(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                      utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags, void* desc,
                      size_t* desc_size);
int utofu_prepare_put_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                          utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags, size_t mtu,
                          size_t gap, void* desc, size_t* desc_size);
int utofu_prepare_put_stride(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                             utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks, uint64_t edata,
                             unsigned long int flags, void* desc, size_t* desc_size);
int utofu_prepare_put_stride_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                                 utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks,
                                 uint64_t edata, unsigned long int flags, size_t mtu, size_t gap, void* desc,
                                 size_t* desc_size);
int utofu_prepare_put_piggyback(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, void* lcl_data,
                                utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags,
                                void* desc, size_t* desc_size);
int utofu_prepare_put_piggyback8(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint64_t lcl_data,
                                 utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags,
                                 void* desc, size_t* desc_size);
int utofu_prepare_get(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                      utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags, void* desc,
                      size_t* desc_size);
int utofu_prepare_get_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                          utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags, size_t mtu,
                          size_t gap, void* desc, size_t* desc_size);
int utofu_prepare_get_stride(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                             utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks, uint64_t edata,
                             unsigned long int flags, void* desc, size_t* desc_size);
int utofu_prepare_get_stride_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                                 utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks,
                                 uint64_t edata, unsigned long int flags, size_t mtu, size_t gap, void* desc,
                                 size_t* desc_size);
int utofu_prepare_armw4(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, enum utofu_armw_op armw_op,
                        uint32_t op_value, utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void* desc,
                        size_t* desc_size);
int utofu_prepare_armw8(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, enum utofu_armw_op armw_op,
                        uint64_t op_value, utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void* desc,
                        size_t* desc_size);
int utofu_prepare_cswap4(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint32_t old_value, uint32_t new_value,
                         utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void* desc,
                         size_t* desc_size);
int utofu_prepare_cswap8(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint64_t old_value, uint64_t new_value,
                         utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void* desc,
                         size_t* desc_size);
int utofu_prepare_nop(utofu_vcq_hdl_t vcq_hdl, unsigned long int flags, void* desc, size_t* desc_size);

/* Posts one or several prepared commands in order. All are posted, or none. */
int utofu_post_toq(utofu_vcq_hdl_t vcq_hdl, void* desc, size_t desc_size, void* cbdata);
/* Returns the next completed command with UTOFU_ONESIDED_FLAG_TCQ_NOTICE, in order; also makes room
 * in the TOQ. If the command failed, its error is returned, with its *cbdata. */
int utofu_poll_tcq(utofu_vcq_hdl_t vcq_hdl, unsigned long int flags, void** cbdata);
int utofu_poll_mrq(utofu_vcq_hdl_t vcq_hdl, unsigned long int flags, struct utofu_mrq_notice* notice);
int utofu_query_num_unread_tcq(utofu_vcq_hdl_t vcq_hdl, size_t* count);
int utofu_query_num_unread_mrq(utofu_vcq_hdl_t vcq_hdl, size_t* count);

/* Barrier gates. vbg_ids[0] starts and ends operations, the others relay. */

int utofu_alloc_vbg(utofu_tni_id_t tni_id, size_t num_vbgs, unsigned long int flags, utofu_vbg_id_t vbg_ids[]);
int utofu_free_vbg(utofu_vbg_id_t vbg_ids[], size_t num_vbgs);
int utofu_set_vbg(struct utofu_vbg_setting vbg_settings[], size_t num_vbg_settings);
int utofu_query_vbg_info(utofu_vbg_id_t vbg_id, uint8_t coords[], utofu_tni_id_t* tni_id, utofu_bg_id_t* bg_id,
                         uint16_t* extra_val);
int utofu_barrier(utofu_vbg_id_t vbg_id, unsigned long int flags);
int utofu_reduce_uint64(utofu_vbg_id_t vbg_id, enum utofu_reduce_op op, uint64_t data[], size_t num_data,
                        unsigned long int flags);
int utofu_reduce_double(utofu_vbg_id_t vbg_id, enum utofu_reduce_op op, double data[], size_t num_data,
                        unsigned long int flags);
int utofu_poll_barrier(utofu_vbg_id_t vbg_id, unsigned long int flags);
int utofu_poll_reduce_uint64(utofu_vbg_id_t vbg_id, unsigned long int flags, uint64_t data[]);
int utofu_poll_reduce_double(utofu_vbg_id_t vbg_id, unsigned long int flags, double data[]);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
