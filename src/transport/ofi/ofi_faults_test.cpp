// Tests what a rank does when libfabric refuses calls that it hardly ever refuses, or does not end
// operations that it has. The libfabric is that of test/ofi_strict_fabric.cpp.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "transport/test/conformance.hpp"

namespace heddle::transport::ofi::ofi_faults_test {
namespace {

using conformance::message_to;
using conformance::pattern;
using conformance::Port;
using conformance::Setting;
using conformance::transfer;
using conformance::World;

template <class Function>
Function* find(const char* name) {
  void* library = ::dlopen(HEDDLE_STRICT_FABRIC, RTLD_NOW | RTLD_NODELETE);
  EXPECT_NE(library, nullptr) << ::dlerror();
  return reinterpret_cast<Function*>(::dlsym(library, name));
}
void fault(const char* name, int value) {
  find<void(const char*, int)>("strict_fabric_fault")(name, value);
}
// As an adapter does, without asking: libfabric ends the operations that it holds, and writes to
// the memory that it was given.
void let_it_write() {
  find<void()>("strict_fabric_write")();
}

// The parameter names the provider's demands on registered memory.
class OfiFaults : public testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() {
    ::mallopt(M_MMAP_THRESHOLD, 4096);  // a write to a freed pool ends with a signal
  }
  void SetUp() override {
    ::setenv("STRICT_FABRIC", GetParam(), 1);  // no other thread runs now
    for (const char* name : {"addresses", "why", "busy", "regions", "descriptor", "hold"}) fault(name, 0);
  }
  static Setting setting(const char* timeout) {
    return {"strict", "ofi", {{"HEDDLE_LIBRARIES", "ofi=" HEDDLE_STRICT_FABRIC}, {"HEDDLE_NETWORK_TIMEOUT", timeout}}};
  }
  const std::vector<std::byte> text_ = pattern(1, 40);
};

// ---- what cannot work ---------------------------------------------------------------------------

// Why no job can be opened; empty: one can.
std::string why_not(const Setting& setting) try {
  const World world(setting, 1);
  return "";
} catch (const std::runtime_error& error) {
  return error.what();
}

TEST_P(OfiFaults, AProviderWithoutDescriptorsIsRefused) {
  fault("descriptor", 1);
  const std::string why = why_not(setting("30s"));
  EXPECT_NE(why.find("name another with HEDDLE_OFI_PROVIDER"), std::string::npos) << why;
  fault("descriptor", 0);
  EXPECT_EQ(why_not(setting("30s")), "");
}

// They would make ofi_rxm send messages out of their order. cxi does not heed them.
TEST_P(OfiFaults, VariablesThatChangeTheOrderAreRefused) {
  const bool layered = std::string(GetParam()).find("endpoint") == std::string::npos;
  for (const char* name : {"FI_OFI_RXM_BUFFER_SIZE", "FI_OFI_RXM_EAGER_LIMIT"}) {
    const char* before = std::getenv(name);
    const std::string value = before != nullptr ? before : "8448";
    ::setenv(name, "256", 1);
    const std::string why = why_not(setting("30s"));
    EXPECT_EQ(why.find(name) != std::string::npos, layered) << why;
    ::setenv(name, value.c_str(), 1);
    EXPECT_EQ(why_not(setting("30s")), "");
  }
}

// ---- addresses ----------------------------------------------------------------------------------

TEST_P(OfiFaults, AnAddressIsTriedAgainIfThereIsNoMemory) {
  World world(setting("30s"), 2, 2);
  // the device of the rank and the worker; the worker
  for (const std::uint32_t worker : {0U, 1U}) {
    fault("why", FI_ENOMEM);
    fault("addresses", 5);
    EXPECT_EQ(world.run(world.port(0), message_to(1, worker, text_)), HEDDLE_DONE);
  }
}

TEST_P(OfiFaults, ARankWhoseAddressIsNotAcceptedIsLost) {
  for (const int why : {FI_EADDRNOTAVAIL, 0}) {
    World world(setting("0"), 2, 2);
    fault("why", why);
    fault("addresses", -1);
    EXPECT_EQ(world.run(world.port(0), message_to(1, 0, text_)), HEDDLE_ERR_PEER_FAILED);
    EXPECT_NE(world.transport(0).lost(1), 0U);
    EXPECT_EQ(world.run(world.port(0, 1), message_to(1, 1, text_)), HEDDLE_ERR_PEER_FAILED);
    fault("addresses", 0);
  }
}

TEST_P(OfiFaults, AWorkerWhoseAddressIsNotAcceptedIsLost) {
  World world(setting("0"), 2, 2);
  ASSERT_EQ(world.run(world.port(0), message_to(1, 0, text_)), HEDDLE_DONE);
  fault("why", FI_EADDRNOTAVAIL);
  fault("addresses", -1);
  EXPECT_EQ(world.run(world.port(0), message_to(1, 1, text_)), HEDDLE_ERR_PEER_FAILED);
  EXPECT_NE(world.transport(0).lost(1), 0U);
  EXPECT_EQ(world.run(world.port(0), message_to(1, 0, text_)), HEDDLE_DONE) << "that connection is there";
}

TEST_P(OfiFaults, AnAddressIsTriedUntilTheTimeIsOver) {
  for (const bool met : {false, true}) {
    World world(setting("1s"), 2, 2);
    if (met) {
      ASSERT_EQ(world.run(world.port(0), message_to(1, 0, text_)), HEDDLE_DONE);
    }
    fault("why", FI_ENOMEM);
    fault("addresses", -1);
    EXPECT_EQ(world.run(world.port(0), message_to(1, 1, text_)), HEDDLE_ERR_PEER_FAILED);
    fault("addresses", 0);
  }
}

// ---- what does not end --------------------------------------------------------------------------

// A job in which rank 0 puts to rank 1 and gets from it, and libfabric holds both.
class Held {
 public:
  explicit Held(const Setting& setting, std::uint32_t ranks = 2) : world(setting, ranks, 2) {
    auto target = world.transport(1).register_memory(region.data(), region.size());
    EXPECT_TRUE(target.ok());
    auto imported = world.transport(0).import(1, target->key);
    EXPECT_TRUE(imported.ok()) << base::last_message();
    memory = *imported;
    EXPECT_EQ(world.run(world.port(0), message_to(1, 0, source)), HEDDLE_DONE);
    EXPECT_TRUE(world.until([&] { return world.port(1).arrivals.size() == 1; }));
    fault("hold", 1);
  }
  void post(const Command& put_it, const Command& get_it) {
    put = world.must_post(world.port(0), put_it);
    get = world.must_post(world.port(0), get_it);
  }
  std::vector<std::byte> region = std::vector<std::byte>(4096, std::byte{1});
  std::vector<std::byte> source = std::vector<std::byte>(4096, std::byte{2});
  std::vector<std::byte> destination = std::vector<std::byte>(4096, std::byte{3});
  World world;
  RemoteMemory memory;
  Token put = 0;
  Token get = 0;
};

// Nobody is told of the end of a get while libfabric may still write to its destination.
TEST_P(OfiFaults, AGetEndsWhenItsDestinationIsFree) {
  Held held(setting("30s"));
  World& world = held.world;
  held.post(transfer(Opcode::put, held.memory, &held.source), transfer(Opcode::get, held.memory, &held.destination));
  world.fail(1);
  EXPECT_TRUE(world.until([&] { return world.port(0).done(held.put); }));
  EXPECT_EQ(world.port(0).status(held.put), HEDDLE_ERR_PEER_FAILED);
  EXPECT_FALSE(world.port(0).done(held.get));
  let_it_write();
  EXPECT_TRUE(world.until([&] { return world.port(0).done(held.get); }));
  EXPECT_EQ(world.port(0).outstanding(), 0U);
  world.transport(0).release(held.memory);
}

// Without a time-out nobody asks the peer. But the launcher's report of its death ends all
// operations, whatever stage they are in.
TEST_P(OfiFaults, ADeathEndsAllWithoutATimeOut) {
  Held held(setting("0"));
  World& world = held.world;
  Port& port = world.port(0);
  held.post(transfer(Opcode::put, held.memory, &held.source), transfer(Opcode::get, held.memory, &held.destination));
  // which is not open
  ASSERT_NE(world.must_post(port, message_to(1, World::kMaxWorkers - 1, text_)), 0U);
  fault("why", FI_ENOMEM);
  fault("addresses", -1);
  // whose address is not accepted now
  ASSERT_NE(world.must_post(port, message_to(1, 1, text_)), 0U);
  for (int i = 0; i < 100; ++i) world.pump();
  EXPECT_EQ(port.outstanding(), 4U);
  world.fail(1);
  EXPECT_TRUE(world.until([&] { return port.outstanding() == 1; })) << "all but the get";
  let_it_write();
  EXPECT_TRUE(world.until([&] { return port.outstanding() == 0; }));
  fault("addresses", 0);
  world.transport(0).release(held.memory);
}

// If the end of a get does not come, the worker is cut off. Its peers do not lose its rank, though
// one sends to it all the time, and would find its endpoint gone before it is told.
TEST_P(OfiFaults, AWorkerWhoseGetDoesNotEndIsCutOff) {
  Held held(setting("1s"), 3);
  World& world = held.world;
  fault("hold", 0);
  ASSERT_EQ(world.run(world.port(0), message_to(2, 0, text_)), HEDDLE_DONE);
  fault("hold", 1);
  held.post(transfer(Opcode::put, held.memory, &held.source), transfer(Opcode::get, held.memory, &held.destination));
  world.fail(1);
  Port& peer = world.port(2);
  EXPECT_TRUE(world.until([&] {
    if (peer.outstanding() == 0) static_cast<void>(peer.send(message_to(0, 0, text_)));
    return peer.worker().closed({0, 0});
  }));
  EXPECT_TRUE(world.until([&] { return world.port(0).outstanding() == 0; }));
  EXPECT_EQ(world.port(0).status(held.put), HEDDLE_ERR_PEER_FAILED);
  EXPECT_EQ(world.port(0).status(held.get), HEDDLE_ERR_PEER_FAILED);
  std::ranges::fill(held.destination, std::byte{0x77});
  let_it_write();
  EXPECT_TRUE(std::ranges::all_of(held.destination, [](std::byte b) { return b == std::byte{0x77}; }));
  fault("hold", 0);
  EXPECT_EQ(world.run(world.port(0), message_to(0, 1, text_)), HEDDLE_ERR_PEER_FAILED);
  EXPECT_EQ(world.run(world.port(0, 1), message_to(0, 1, text_)), HEDDLE_DONE) << "its other worker goes on";
  EXPECT_EQ(world.run(peer, message_to(0, 1, text_)), HEDDLE_DONE);
  EXPECT_EQ(world.run(peer, message_to(0, 0, text_)), HEDDLE_DONE) << "messages to a closed worker are lost";
  EXPECT_TRUE(peer.worker().closed({0, 0}));
  EXPECT_EQ(world.transport(0).lost(2), 0U) << "the other ranks are not lost";
  EXPECT_EQ(world.transport(2).lost(0), 0U) << "nor do they lose this one";
  EXPECT_TRUE(world.until([&] { return world.port(0).worker().arm(); })) << "it may sleep";
  world.transport(0).release(held.memory);
}

TEST_P(OfiFaults, AWorkerThatIsClosedWithAGetIsNoLossOfItsRank) {
  Held held(setting("30s"), 3);
  World& world = held.world;
  Port& peer = world.port(2);
  fault("hold", 0);
  ASSERT_EQ(world.run(world.port(0), message_to(2, 0, text_)), HEDDLE_DONE);
  fault("hold", 1);
  held.post(transfer(Opcode::put, held.memory, &held.source), transfer(Opcode::get, held.memory, &held.destination));
  world.close_port(0, 0);
  fault("hold", 0);
  EXPECT_TRUE(world.until([&] { return peer.worker().closed({0, 0}); }));
  EXPECT_EQ(world.run(peer, message_to(0, 0, text_)), HEDDLE_DONE) << "messages to a closed worker are lost";
  EXPECT_EQ(world.run(peer, message_to(0, 1, text_)), HEDDLE_DONE);
  EXPECT_TRUE(peer.worker().closed({0, 0}));
  EXPECT_EQ(world.transport(2).lost(0), 0U);
  world.transport(0).release(held.memory);
}

// ---- what cannot be closed ----------------------------------------------------------------------

// These tests are the last: nothing around an open object can be closed.
TEST_P(OfiFaults, ZWhatAnEndpointMayWriteToStays) {
  {
    Held held(setting("30s"));
    World& world = held.world;
    held.post(transfer(Opcode::put, held.memory, &held.source), transfer(Opcode::get, held.memory, &held.destination));
    // too long to go by value
    ASSERT_NE(world.must_post(world.port(0), message_to(1, 0, held.source)), 0U);
    fault("busy", 1);
    world.close(0);
    world.close(1);
    let_it_write();
  }
  fault("busy", 0);
}

TEST_P(OfiFaults, ZARegionThatCannotBeDeregisteredStaysMapped) {
  World world(setting("30s"), 1);
  auto region = world.transport(0).allocate(4096);
  ASSERT_TRUE(region.ok()) << base::last_message();
  fault("regions", 1);
  world.transport(0).free(*region);
  fault("regions", 0);
  std::memset(region->address, 1, 4096);  // as a peer's put
}

std::string name_of(const testing::TestParamInfo<const char*>& of) {
  std::string name = of.param;
  std::ranges::replace(name, ' ', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Modes, OfiFaults, testing::Values("local prov_key virt_addr", "endpoint prov_key"), name_of);

}  // namespace
}  // namespace heddle::transport::ofi::ofi_faults_test
