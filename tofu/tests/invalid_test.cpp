// Every INVALID_* code that an argument of the functions for VCQs, memory and commands can cause,
// in each of them.
#include <gtest/gtest.h>
#include <utofu.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tofu/tests/one_process.hpp"

namespace tofu_emulator::test::invalid_test {
namespace {

// The arguments shared by all commands; each test makes one invalid.
struct Arguments {
  utofu_vcq_hdl_t handle;
  utofu_vcq_id_t remote;
  utofu_stadd_t local_stadd;
  utofu_stadd_t remote_stadd;
  std::size_t length = 8;
  std::uint64_t edata = 0;
  unsigned long flags = 0;
  std::size_t mtu = 1920;
  std::size_t gap = 0;
  std::size_t stride = 16;
  std::size_t blocks = 2;
  int operation = UTOFU_ARMW_OP_ADD;
  const void* data = "01234567012345670123456701234567";
  void* desc = nullptr;
  std::size_t* desc_size = nullptr;
};

struct Call {
  std::string name;
  std::function<int(const Arguments&)> run;
  bool sized = true;     // has a length
  bool blocks = false;   // has a number of blocks
  bool paced = false;    // has mtu and gap
  unsigned aligned = 1;  // of the remote address
  bool armw = false;
  bool prepares = false;
  std::size_t most = 16'777'215;
};

utofu_armw_op op(const Arguments& a) {
  return static_cast<utofu_armw_op>(a.operation);
}

std::vector<Call> transfers() {
  return {
      {"put",
       [](const Arguments& a) {
         return utofu_put(a.handle, a.remote, a.local_stadd, a.remote_stadd, a.length, a.edata, a.flags, nullptr);
       }},
      {"put_gap",
       [](const Arguments& a) {
         return utofu_put_gap(a.handle, a.remote, a.local_stadd, a.remote_stadd, a.length, a.edata, a.flags, a.mtu,
                              a.gap, nullptr);
       },
       true, false, true},
      {"put_stride",
       [](const Arguments& a) {
         return utofu_put_stride(a.handle, a.remote, a.local_stadd, a.remote_stadd, a.length, a.stride, a.blocks,
                                 a.edata, a.flags, nullptr);
       },
       true, true},
      {"put_stride_gap",
       [](const Arguments& a) {
         return utofu_put_stride_gap(a.handle, a.remote, a.local_stadd, a.remote_stadd, a.length, a.stride, a.blocks,
                                     a.edata, a.flags, a.mtu, a.gap, nullptr);
       },
       true, true, true},
      {"get",
       [](const Arguments& a) {
         return utofu_get(a.handle, a.remote, a.local_stadd, a.remote_stadd, a.length, a.edata, a.flags, nullptr);
       }},
      {"get_gap",
       [](const Arguments& a) {
         return utofu_get_gap(a.handle, a.remote, a.local_stadd, a.remote_stadd, a.length, a.edata, a.flags, a.mtu,
                              a.gap, nullptr);
       },
       true, false, true},
      {"get_stride",
       [](const Arguments& a) {
         return utofu_get_stride(a.handle, a.remote, a.local_stadd, a.remote_stadd, a.length, a.stride, a.blocks,
                                 a.edata, a.flags, nullptr);
       },
       true, true},
      {"get_stride_gap",
       [](const Arguments& a) {
         return utofu_get_stride_gap(a.handle, a.remote, a.local_stadd, a.remote_stadd, a.length, a.stride, a.blocks,
                                     a.edata, a.flags, a.mtu, a.gap, nullptr);
       },
       true, true, true},
  };
}

std::vector<Call> prepared_transfers() {
  return {
      {"prepare_put",
       [](const Arguments& a) {
         return utofu_prepare_put(a.handle, a.remote, a.local_stadd, a.remote_stadd, a.length, a.edata, a.flags, a.desc,
                                  a.desc_size);
       },
       true, false, false, 1, false, true},
      {"prepare_put_gap",
       [](const Arguments& a) {
         return utofu_prepare_put_gap(a.handle, a.remote, a.local_stadd, a.remote_stadd, a.length, a.edata, a.flags,
                                      a.mtu, a.gap, a.desc, a.desc_size);
       },
       true, false, true, 1, false, true},
      {"prepare_put_stride",
       [](const Arguments& a) {
         return utofu_prepare_put_stride(a.handle, a.remote, a.local_stadd, a.remote_stadd, a.length, a.stride,
                                         a.blocks, a.edata, a.flags, a.desc, a.desc_size);
       },
       true, true, false, 1, false, true},
      {"prepare_put_stride_gap",
       [](const Arguments& a) {
         return utofu_prepare_put_stride_gap(a.handle, a.remote, a.local_stadd, a.remote_stadd, a.length, a.stride,
                                             a.blocks, a.edata, a.flags, a.mtu, a.gap, a.desc, a.desc_size);
       },
       true, true, true, 1, false, true},
      {"prepare_get",
       [](const Arguments& a) {
         return utofu_prepare_get(a.handle, a.remote, a.local_stadd, a.remote_stadd, a.length, a.edata, a.flags, a.desc,
                                  a.desc_size);
       },
       true, false, false, 1, false, true},
      {"prepare_get_gap",
       [](const Arguments& a) {
         return utofu_prepare_get_gap(a.handle, a.remote, a.local_stadd, a.remote_stadd, a.length, a.edata, a.flags,
                                      a.mtu, a.gap, a.desc, a.desc_size);
       },
       true, false, true, 1, false, true},
      {"prepare_get_stride",
       [](const Arguments& a) {
         return utofu_prepare_get_stride(a.handle, a.remote, a.local_stadd, a.remote_stadd, a.length, a.stride,
                                         a.blocks, a.edata, a.flags, a.desc, a.desc_size);
       },
       true, true, false, 1, false, true},
      {"prepare_get_stride_gap",
       [](const Arguments& a) {
         return utofu_prepare_get_stride_gap(a.handle, a.remote, a.local_stadd, a.remote_stadd, a.length, a.stride,
                                             a.blocks, a.edata, a.flags, a.mtu, a.gap, a.desc, a.desc_size);
       },
       true, true, true, 1, false, true},
  };
}

void* data_of(const Arguments& a) {
  return const_cast<void*>(a.data);  // the interface has no const
}

std::vector<Call> others() {
  return {
      {"put_piggyback",
       [](const Arguments& a) {
         return utofu_put_piggyback(a.handle, a.remote, data_of(a), a.remote_stadd, a.length, a.edata, a.flags,
                                    nullptr);
       },
       true, false, false, 1, false, false, 32},
      {"prepare_put_piggyback",
       [](const Arguments& a) {
         return utofu_prepare_put_piggyback(a.handle, a.remote, data_of(a), a.remote_stadd, a.length, a.edata, a.flags,
                                            a.desc, a.desc_size);
       },
       true, false, false, 1, false, true, 32},
      {"put_piggyback8",
       [](const Arguments& a) {
         return utofu_put_piggyback8(a.handle, a.remote, 1, a.remote_stadd, a.length, a.edata, a.flags, nullptr);
       },
       true, false, false, 1, false, false, 8},
      {"prepare_put_piggyback8",
       [](const Arguments& a) {
         return utofu_prepare_put_piggyback8(a.handle, a.remote, 1, a.remote_stadd, a.length, a.edata, a.flags, a.desc,
                                             a.desc_size);
       },
       true, false, false, 1, false, true, 8},
      {"armw4",
       [](const Arguments& a) {
         return utofu_armw4(a.handle, a.remote, op(a), 1, a.remote_stadd, a.edata, a.flags, nullptr);
       },
       false, false, false, 4, true},
      {"prepare_armw4",
       [](const Arguments& a) {
         return utofu_prepare_armw4(a.handle, a.remote, op(a), 1, a.remote_stadd, a.edata, a.flags, a.desc,
                                    a.desc_size);
       },
       false, false, false, 4, true, true},
      {"armw8",
       [](const Arguments& a) {
         return utofu_armw8(a.handle, a.remote, op(a), 1, a.remote_stadd, a.edata, a.flags, nullptr);
       },
       false, false, false, 8, true},
      {"prepare_armw8",
       [](const Arguments& a) {
         return utofu_prepare_armw8(a.handle, a.remote, op(a), 1, a.remote_stadd, a.edata, a.flags, a.desc,
                                    a.desc_size);
       },
       false, false, false, 8, true, true},
      {"cswap4",
       [](const Arguments& a) {
         return utofu_cswap4(a.handle, a.remote, 1, 2, a.remote_stadd, a.edata, a.flags, nullptr);
       },
       false, false, false, 4},
      {"prepare_cswap4",
       [](const Arguments& a) {
         return utofu_prepare_cswap4(a.handle, a.remote, 1, 2, a.remote_stadd, a.edata, a.flags, a.desc, a.desc_size);
       },
       false, false, false, 4, false, true},
      {"cswap8",
       [](const Arguments& a) {
         return utofu_cswap8(a.handle, a.remote, 1, 2, a.remote_stadd, a.edata, a.flags, nullptr);
       },
       false, false, false, 8},
      {"prepare_cswap8",
       [](const Arguments& a) {
         return utofu_prepare_cswap8(a.handle, a.remote, 1, 2, a.remote_stadd, a.edata, a.flags, a.desc, a.desc_size);
       },
       false, false, false, 8, false, true},
  };
}

std::vector<Call> all_calls() {
  std::vector<Call> calls = transfers();
  for (auto* more : {&prepared_transfers, &others}) {
    const std::vector<Call> some = more();
    calls.insert(calls.end(), some.begin(), some.end());
  }
  return calls;
}

class Invalid : public ::testing::Test {
 protected:
  Queue queue_{0};
  alignas(256) std::array<std::byte, 4096> memory_{};
  utofu_stadd_t stadd_ = queue_.reg(memory_.data(), memory_.size());
  alignas(8) std::array<std::byte, 512> desc_{};
  std::size_t desc_size_ = 0;
  utofu_stadd_t out_stadd_ = 0;
  utofu_vcq_id_t out_id_ = 0;
  utofu_vcq_hdl_t out_handle_ = 0;
  std::uint8_t coords_[6]{};

  [[nodiscard]] Arguments good() {
    Arguments a{};
    a.handle = queue_.handle();
    a.remote = queue_.id();
    a.local_stadd = stadd_;
    a.remote_stadd = stadd_ + 2048;
    a.desc = desc_.data();
    a.desc_size = &desc_size_;
    return a;
  }
  // In plain mode commands complete in order, so all earlier ones are complete when this one is.
  void TearDown() override {
    EXPECT_EQ(utofu_put_piggyback8(queue_.handle(), queue_.id(), 0, stadd_, 8, 0, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE,
                                   nullptr),
              UTOFU_SUCCESS);
    utofu_mrq_notice notice{};
    EXPECT_EQ(queue_.mrq(&notice), UTOFU_SUCCESS);
    queue_.dereg(stadd_);
  }
};

TEST_F(Invalid, EveryCommandNamesTheArgumentThatIsWrong) {
  for (const Call& call : all_calls()) {
    SCOPED_TRACE(call.name);
    const auto expect = [&](int status, const std::function<void(Arguments&)>& spoil) {
      Arguments a = good();
      spoil(a);
      EXPECT_EQ(call.run(a), status);
    };
    expect(UTOFU_ERR_INVALID_VCQ_HDL, [](Arguments& a) { a.handle = 0; });
    expect(UTOFU_ERR_INVALID_VCQ_HDL, [](Arguments& a) { a.handle += 512; });
    expect(UTOFU_ERR_INVALID_VCQ_HDL, [](Arguments& a) { a.handle = ~utofu_vcq_hdl_t{0}; });
    expect(UTOFU_ERR_INVALID_VCQ_ID, [](Arguments& a) { a.remote ^= 0x10; });
    expect(UTOFU_ERR_INVALID_FLAGS, [](Arguments& a) { a.flags = 1UL << 4U; });
    expect(UTOFU_ERR_INVALID_FLAGS, [](Arguments& a) { a.flags = 1UL << 32U; });
    expect(UTOFU_ERR_INVALID_PATH_ID, [](Arguments& a) { a.flags = UTOFU_ONESIDED_FLAG_PATH(15UL); });
    if (call.sized) {
      const bool gets = call.name.find("get") != std::string::npos;  // empty puts are signals
      expect(gets ? UTOFU_ERR_INVALID_SIZE : UTOFU_SUCCESS, [](Arguments& a) { a.length = 0; });
      expect(UTOFU_ERR_INVALID_SIZE, [&](Arguments& a) { a.length = call.most + 1; });
      expect(UTOFU_ERR_INVALID_SIZE, [](Arguments& a) { a.length = ~std::size_t{0}; });
    }
    if (call.blocks) {
      expect(UTOFU_ERR_INVALID_NUMBER, [](Arguments& a) { a.blocks = 0; });
      expect(UTOFU_ERR_INVALID_NUMBER, [](Arguments& a) { a.blocks = std::size_t{1} << 40U; });
    }
    if (call.paced) {
      expect(UTOFU_ERR_INVALID_ARG, [](Arguments& a) { a.mtu = 1928; });
      expect(UTOFU_ERR_INVALID_ARG, [](Arguments& a) { a.mtu = 0; });
      expect(UTOFU_ERR_INVALID_ARG, [](Arguments& a) { a.mtu = 100; });
      expect(UTOFU_ERR_INVALID_ARG, [](Arguments& a) { a.gap = 256; });
    }
    for (unsigned off = 1; off < call.aligned; off *= 2) {
      expect(UTOFU_ERR_INVALID_STADD, [&](Arguments& a) { a.remote_stadd += off; });
    }
    if (call.armw) {
      expect(UTOFU_ERR_INVALID_OP, [](Arguments& a) { a.operation = 0; });
      expect(UTOFU_ERR_INVALID_OP, [](Arguments& a) { a.operation = 6; });
    }
    if (call.most == 32) {
      expect(UTOFU_ERR_INVALID_POINTER, [](Arguments& a) { a.data = nullptr; });
    }
    if (call.prepares) {
      expect(UTOFU_ERR_INVALID_POINTER, [](Arguments& a) { a.desc = nullptr; });
      expect(UTOFU_ERR_INVALID_POINTER, [](Arguments& a) { a.desc_size = nullptr; });
    }
    expect(UTOFU_SUCCESS, [](Arguments&) {});
  }
}

// Declared by the libraries that call it, since no header does.
extern "C" void utofu_get_last_error(const char*);

TEST_F(Invalid, TheLastErrorIsTold) {
  const auto last = [] {
    std::array<char, 1024> text{};
    utofu_get_last_error(text.data());
    return std::string(text.data());
  };
  std::thread([&] { EXPECT_EQ(last(), "UTOFU_SUCCESS (0): no call of this thread has failed"); }).join();
  const utofu_vcq_hdl_t handle = queue_.handle();
  EXPECT_EQ(utofu_put(handle, queue_.id(), stadd_, stadd_, ~std::size_t{0}, 0, 0, nullptr), UTOFU_ERR_INVALID_SIZE);
  EXPECT_EQ(last(), "UTOFU_ERR_INVALID_SIZE (-527): a size or length is wrong");
  EXPECT_EQ(utofu_put_piggyback8(handle, queue_.id(), 0, stadd_, 8, 256, UTOFU_ONESIDED_FLAG_TCQ_NOTICE, nullptr),
            UTOFU_SUCCESS);
  EXPECT_TRUE(last().starts_with("UTOFU_ERR_INVALID_SIZE")) << "what succeeds is no error";
  void* cbdata = nullptr;
  EXPECT_EQ(queue_.tcq(&cbdata), UTOFU_ERR_TCQ_LENGTH);
  EXPECT_TRUE(last().starts_with("UTOFU_ERR_TCQ_LENGTH (-132): ")) << last();
  EXPECT_EQ(utofu_poll_tcq(handle, 0, &cbdata), UTOFU_ERR_NOT_FOUND);
  EXPECT_TRUE(last().starts_with("UTOFU_ERR_TCQ_LENGTH")) << "nothing there is an answer";
  utofu_mrq_notice notice{};
  EXPECT_EQ(
      utofu_put_piggyback8(handle, queue_.id(), 0, stadd_ + 4096, 8, 0, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr),
      UTOFU_SUCCESS);
  EXPECT_EQ(queue_.mrq(&notice), UTOFU_ERR_MRQ_RMT_LENGTH);
  EXPECT_TRUE(last().starts_with("UTOFU_ERR_MRQ_RMT_LENGTH")) << last();
  EXPECT_EQ(utofu_create_vcq(99, 0, &out_handle_), UTOFU_ERR_INVALID_TNI_ID);
  EXPECT_TRUE(last().starts_with("UTOFU_ERR_INVALID_TNI_ID")) << last();
  EXPECT_EQ(utofu_barrier(0x40, 0), UTOFU_ERR_INVALID_VBG_ID);
  EXPECT_TRUE(last().starts_with("UTOFU_ERR_INVALID_VBG_ID")) << last();
}

TEST_F(Invalid, DescriptorsThatNobodyPrepared) {
  const utofu_vcq_hdl_t handle = queue_.handle();
  std::size_t size = 0;
  ASSERT_EQ(utofu_prepare_cswap8(handle, queue_.id(), 1, 2, stadd_, 0, 0, desc_.data(), &size), UTOFU_SUCCESS);
  ASSERT_EQ(size, 64U);
  EXPECT_EQ(utofu_post_toq(handle + 512, desc_.data(), size, nullptr), UTOFU_ERR_INVALID_VCQ_HDL);
  EXPECT_EQ(utofu_post_toq(handle, nullptr, size, nullptr), UTOFU_ERR_INVALID_POINTER);
  EXPECT_EQ(utofu_post_toq(handle, desc_.data(), 0, nullptr), UTOFU_ERR_INVALID_DESC);
  EXPECT_EQ(utofu_post_toq(handle, desc_.data(), 48, nullptr), UTOFU_ERR_INVALID_DESC);
  EXPECT_EQ(utofu_post_toq(handle, desc_.data(), 32, nullptr), UTOFU_ERR_INVALID_DESC) << "half a command";
  EXPECT_EQ(utofu_post_toq(handle, &desc_.at(32), 32, nullptr), UTOFU_ERR_INVALID_DESC) << "the other half";
  EXPECT_EQ(utofu_post_toq(handle, &desc_.at(4), 64, nullptr), UTOFU_ERR_INVALID_DESC);
  EXPECT_EQ(utofu_post_toq(handle, &desc_.at(64), 64, nullptr), UTOFU_ERR_INVALID_DESC) << "zeroes";
  EXPECT_EQ(utofu_post_toq(handle, desc_.data(), size, nullptr), UTOFU_SUCCESS);
  EXPECT_EQ(utofu_prepare_nop(handle, 1UL << 40U, desc_.data(), &size), UTOFU_ERR_INVALID_FLAGS);
  EXPECT_EQ(utofu_prepare_nop(handle, 0, nullptr, &size), UTOFU_ERR_INVALID_POINTER);
  EXPECT_EQ(utofu_prepare_nop(handle, 0, desc_.data(), nullptr), UTOFU_ERR_INVALID_POINTER);
  EXPECT_EQ(utofu_prepare_nop(0, 0, desc_.data(), &size), UTOFU_ERR_INVALID_VCQ_HDL);
  EXPECT_EQ(utofu_nop(handle, 1UL << 40U, nullptr), UTOFU_ERR_INVALID_FLAGS);
  EXPECT_EQ(utofu_nop(0, 0, nullptr), UTOFU_ERR_INVALID_VCQ_HDL);
}

TEST_F(Invalid, Polls) {
  const utofu_vcq_hdl_t handle = queue_.handle();
  void* cbdata = nullptr;
  utofu_mrq_notice notice{};
  std::size_t count = 0;
  EXPECT_EQ(utofu_poll_tcq(handle + 512, 0, &cbdata), UTOFU_ERR_INVALID_VCQ_HDL);
  EXPECT_EQ(utofu_poll_tcq(handle, 1, &cbdata), UTOFU_ERR_INVALID_FLAGS);
  EXPECT_EQ(utofu_poll_tcq(handle, 0, nullptr), UTOFU_ERR_INVALID_POINTER);
  EXPECT_EQ(utofu_poll_mrq(handle + 512, 0, &notice), UTOFU_ERR_INVALID_VCQ_HDL);
  EXPECT_EQ(utofu_poll_mrq(handle, 1, &notice), UTOFU_ERR_INVALID_FLAGS);
  EXPECT_EQ(utofu_poll_mrq(handle, 0, nullptr), UTOFU_ERR_INVALID_POINTER);
  EXPECT_EQ(utofu_query_num_unread_tcq(0, &count), UTOFU_ERR_INVALID_VCQ_HDL);
  EXPECT_EQ(utofu_query_num_unread_tcq(handle, nullptr), UTOFU_ERR_INVALID_POINTER);
  EXPECT_EQ(utofu_query_num_unread_mrq(0, &count), UTOFU_ERR_INVALID_VCQ_HDL);
  EXPECT_EQ(utofu_query_num_unread_mrq(handle, nullptr), UTOFU_ERR_INVALID_POINTER);
}

TEST_F(Invalid, Memory) {
  const utofu_vcq_hdl_t handle = queue_.handle();
  std::byte* at = memory_.data();
  EXPECT_EQ(utofu_reg_mem(handle + 512, at, 64, 0, &out_stadd_), UTOFU_ERR_INVALID_VCQ_HDL);
  EXPECT_EQ(utofu_reg_mem(handle, nullptr, 64, 0, &out_stadd_), UTOFU_ERR_INVALID_ADDRESS);
  EXPECT_EQ(utofu_reg_mem(handle, reinterpret_cast<void*>(4096), 64, 0, &out_stadd_), UTOFU_ERR_INVALID_ADDRESS)
      << "nothing is mapped there";
  EXPECT_EQ(utofu_reg_mem(handle, at, 0, 0, &out_stadd_), UTOFU_ERR_INVALID_SIZE);
  EXPECT_EQ(utofu_reg_mem(handle, at, ~std::size_t{0}, 0, &out_stadd_), UTOFU_ERR_INVALID_SIZE);
  EXPECT_EQ(utofu_reg_mem(handle, at, 64, 2, &out_stadd_), UTOFU_ERR_INVALID_FLAGS);
  EXPECT_EQ(utofu_reg_mem(handle, at, 64, 0, nullptr), UTOFU_ERR_INVALID_POINTER);
  EXPECT_EQ(utofu_reg_mem_with_stag(handle, at, 64, 256, 0, &out_stadd_), UTOFU_ERR_INVALID_STAG);
  EXPECT_EQ(utofu_reg_mem_with_stag(handle, at + 8, 64, 1, 0, &out_stadd_), UTOFU_ERR_INVALID_ADDRESS);
  EXPECT_EQ(utofu_reg_mem_with_stag(handle, at, 0, 1, 0, &out_stadd_), UTOFU_ERR_INVALID_SIZE);
  EXPECT_EQ(utofu_reg_mem_with_stag(handle, at, 64, 1, 2, &out_stadd_), UTOFU_ERR_INVALID_FLAGS);
  EXPECT_EQ(utofu_reg_mem_with_stag(0, at, 64, 1, 0, &out_stadd_), UTOFU_ERR_INVALID_VCQ_HDL);
  EXPECT_EQ(utofu_query_stadd(queue_.id() + 1, 1, &out_stadd_), UTOFU_ERR_INVALID_VCQ_ID);
  EXPECT_EQ(utofu_query_stadd(queue_.id(), 256, &out_stadd_), UTOFU_ERR_INVALID_STAG);
  EXPECT_EQ(utofu_query_stadd(queue_.id(), 1, nullptr), UTOFU_ERR_INVALID_POINTER);
  EXPECT_EQ(utofu_dereg_mem(handle + 512, stadd_, 0), UTOFU_ERR_INVALID_VCQ_HDL);
  EXPECT_EQ(utofu_dereg_mem(handle, stadd_, 1), UTOFU_ERR_INVALID_FLAGS);
  EXPECT_EQ(utofu_dereg_mem(handle, stadd_ + 1, 0), UTOFU_ERR_INVALID_STADD) << "not where it begins";
  EXPECT_EQ(utofu_dereg_mem(handle, 0, 0), UTOFU_ERR_INVALID_STADD);
}

TEST_F(Invalid, Queues) {
  utofu_vcq_hdl_t handle = 0;
  EXPECT_EQ(utofu_create_vcq(6, 0, &handle), UTOFU_ERR_INVALID_TNI_ID);
  EXPECT_EQ(utofu_create_vcq(0, 8, &handle), UTOFU_ERR_INVALID_FLAGS);
  EXPECT_EQ(utofu_create_vcq(0, 0, nullptr), UTOFU_ERR_INVALID_POINTER);
  EXPECT_EQ(utofu_create_vcq_with_cmp_id(0, 8, 0, &handle), UTOFU_ERR_INVALID_CMP_ID);
  EXPECT_EQ(utofu_free_vcq(0), UTOFU_ERR_INVALID_VCQ_HDL);
  ASSERT_EQ(utofu_create_vcq(1, 0, &handle), UTOFU_SUCCESS);
  EXPECT_EQ(utofu_free_vcq(handle), UTOFU_SUCCESS);
  EXPECT_EQ(utofu_free_vcq(handle), UTOFU_ERR_INVALID_VCQ_HDL) << "freed already";
  EXPECT_EQ(utofu_query_vcq_id(handle, &out_id_), UTOFU_ERR_INVALID_VCQ_HDL);
  EXPECT_EQ(utofu_query_vcq_id(queue_.handle(), nullptr), UTOFU_ERR_INVALID_POINTER);
  utofu_onesided_caps* caps = nullptr;
  EXPECT_EQ(utofu_query_onesided_caps(6, &caps), UTOFU_ERR_INVALID_TNI_ID);
  EXPECT_EQ(utofu_query_onesided_caps(0, nullptr), UTOFU_ERR_INVALID_POINTER);
  std::size_t count = 0;
  EXPECT_EQ(utofu_get_onesided_tnis(nullptr, &count), UTOFU_ERR_INVALID_POINTER);
  EXPECT_EQ(utofu_query_my_coords(nullptr), UTOFU_ERR_INVALID_POINTER);
}

TEST_F(Invalid, IdsAndPaths) {
  std::uint8_t outside[6] = {200, 0, 0, 0, 0, 0};
  EXPECT_EQ(utofu_construct_vcq_id(outside, 0, 0, 0, &out_id_), UTOFU_ERR_INVALID_COORDS);
  EXPECT_EQ(utofu_construct_vcq_id(nullptr, 0, 0, 0, &out_id_), UTOFU_ERR_INVALID_POINTER);
  EXPECT_EQ(utofu_construct_vcq_id(coords_, 6, 0, 0, &out_id_), UTOFU_ERR_INVALID_TNI_ID);
  EXPECT_EQ(utofu_construct_vcq_id(coords_, 0, 9, 0, &out_id_), UTOFU_ERR_INVALID_CQ_ID);
  EXPECT_EQ(utofu_construct_vcq_id(coords_, 0, 0, 8, &out_id_), UTOFU_ERR_INVALID_CMP_ID);
  std::uint8_t no_path[3] = {7, 0, 0};
  utofu_vcq_id_t id = queue_.id();
  EXPECT_EQ(utofu_set_vcq_id_path(&id, no_path), UTOFU_ERR_INVALID_PATH);
  EXPECT_EQ(id, queue_.id());
  EXPECT_EQ(utofu_set_vcq_id_path(nullptr, no_path), UTOFU_ERR_INVALID_POINTER);
  id ^= 1;
  EXPECT_EQ(utofu_set_vcq_id_path(&id, nullptr), UTOFU_ERR_INVALID_VCQ_ID);
  utofu_tni_id_t tni = 0;
  utofu_cq_id_t cq = 0;
  std::uint16_t extra = 0;
  EXPECT_EQ(utofu_query_vcq_info(id, coords_, &tni, &cq, &extra), UTOFU_ERR_INVALID_VCQ_ID);
  EXPECT_EQ(utofu_query_vcq_info(queue_.id(), nullptr, &tni, &cq, &extra), UTOFU_ERR_INVALID_POINTER);
  utofu_path_id_t path = 0;
  EXPECT_EQ(utofu_get_path_id(id, nullptr, &path), UTOFU_ERR_INVALID_VCQ_ID);
  EXPECT_EQ(utofu_get_path_id(queue_.id(), no_path, &path), UTOFU_ERR_INVALID_PATH);
  EXPECT_EQ(utofu_get_path_id(queue_.id(), nullptr, nullptr), UTOFU_ERR_INVALID_POINTER);
  std::uint8_t coords[3];
  EXPECT_EQ(utofu_get_path_coords(id, 0, coords), UTOFU_ERR_INVALID_VCQ_ID);
  EXPECT_EQ(utofu_get_path_coords(queue_.id(), 13, coords), UTOFU_ERR_INVALID_PATH_ID);
  EXPECT_EQ(utofu_get_path_coords(queue_.id(), 2, coords), UTOFU_ERR_INVALID_PATH_ID) << "A is 1 here";
  EXPECT_EQ(utofu_get_path_coords(queue_.id(), 0, nullptr), UTOFU_ERR_INVALID_POINTER);
}

// In plain mode the call succeeds and poll_tcq returns the error, as utf's authors found.
TEST_F(Invalid, EdataOfMoreThanAByteIsTheHardwaresToRefuse) {
  int tag = 0;
  ASSERT_EQ(utofu_put_piggyback8(queue_.handle(), queue_.id(), 1, stadd_, 8, 256, UTOFU_ONESIDED_FLAG_TCQ_NOTICE, &tag),
            UTOFU_SUCCESS);
  void* cbdata = nullptr;
  EXPECT_EQ(queue_.tcq(&cbdata), UTOFU_ERR_TCQ_LENGTH);
  EXPECT_EQ(cbdata, &tag);
  EXPECT_EQ(memory_[0], std::byte{0});
}

}  // namespace
}  // namespace tofu_emulator::test::invalid_test
