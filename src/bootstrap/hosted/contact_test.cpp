#include "bootstrap/hosted/connect.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "bootstrap/hosted/hosted.hpp"

namespace heddle::bootstrap::hosted::contact_test {
namespace {

Contact example() {
  Contact contact;
  for (std::size_t i = 0; i < 16; ++i) {
    contact.secret[i] = static_cast<std::uint8_t>(255 - i);
    contact.machine[i] = static_cast<std::uint8_t>(i);
    contact.socket[i] = static_cast<std::uint8_t>(16 * i);
  }
  contact.addresses = {{"10.1.2.3", 40000}, {"192.168.100.200", 65535}};
  return contact;
}

TEST(contact, comes_out_as_it_went_in) {
  const auto back = decode_contact(encode(example()));
  ASSERT_TRUE(back.ok()) << base::last_message();
  EXPECT_EQ(back->secret, example().secret);
  EXPECT_EQ(back->machine, example().machine);
  EXPECT_EQ(back->socket_name(), example().socket_name());
  ASSERT_EQ(back->addresses.size(), 2U);
  EXPECT_EQ(back->addresses[1].host, "192.168.100.200");
  EXPECT_EQ(back->addresses[1].port, 65535);
}

TEST(contact, any_number_of_addresses_fits_a_value_of_pmi) {
  Contact contact = example();
  contact.addresses.assign(500, {"255.255.255.255", 65535});
  const std::string text = encode(contact);
  EXPECT_LE(text.size(), kMaxValueBytes);
  const auto is_plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || std::strchr("-.:,", c) != nullptr;
  };
  EXPECT_TRUE(std::all_of(text.begin(), text.end(), is_plain)) << text;
  const auto back = decode_contact(text);
  ASSERT_TRUE(back.ok()) << base::last_message();
  EXPECT_GE(back->addresses.size(), 1U);
}

TEST(contact, another_version_is_named) {
  std::string text = encode(example());
  text.replace(text.find(":1:"), 3, ":2:");
  EXPECT_EQ(decode_contact(text).status(), HEDDLE_ERR_VERSION);
  EXPECT_NE(std::strstr(base::last_message(), "version 2"), nullptr) << base::last_message();
}

TEST(contact, nonsense_is_rejected) {
  for (const char* text : {"", "heddle", "heddle-contact:", "heddle-contact:1:", "other:1:00:00:00:"}) {
    EXPECT_EQ(decode_contact(text).status(), HEDDLE_ERR_BOOTSTRAP) << text;
  }
  const std::string good = encode(example());
  for (const char* tail : {",1.2.3.4", ",1.2.3.4-0", ",1.2.3.4-65536", ",host-1", ",1.2.3.4-1x"}) {
    EXPECT_EQ(decode_contact(good + tail).status(), HEDDLE_ERR_BOOTSTRAP) << tail;
  }
  EXPECT_EQ(decode_contact(good + std::string(kMaxValueBytes, '1')).status(), HEDDLE_ERR_BOOTSTRAP);
}

// A text that is cut off or changed is rejected, or is another contact; it is never read beyond its
// end.
TEST(contact, damage_does_no_harm) {
  const std::string good = encode(example());
  const std::size_t fixed = good.rfind(':') + 1;
  for (std::size_t length = 0; length + 1 < fixed; ++length) {
    EXPECT_FALSE(decode_contact(good.substr(0, length)).ok()) << length;
  }
  std::mt19937 random(7);
  for (int i = 0; i < 20'000; ++i) {
    std::string text = good;
    for (int changes = 0; changes < 3; ++changes) text[random() % text.size()] = static_cast<char>(random());
    const auto contact = decode_contact(text);
    EXPECT_LE(contact ? contact->addresses.size() : 0, 16U);
  }
}

TEST(contact, this_machine_is_itself) {
  const auto once = this_machine();
  const auto again = this_machine();
  ASSERT_TRUE(once.ok() && again.ok());
  EXPECT_EQ(*once, *again);
  EXPECT_NE(*once, Machine{});
}

}  // namespace
}  // namespace heddle::bootstrap::hosted::contact_test
