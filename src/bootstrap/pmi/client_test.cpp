// The client against servers that answer as hydra and Slurm do, and against servers that do not.
#include "bootstrap/pmi/pmi.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>
#include <random>
#include <thread>

#include "base/fd.hpp"

namespace heddle::bootstrap::pmi::client_test {
namespace {

const std::vector<std::string> kGreeting = {"cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n",
                                            "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n",
                                            "cmd=my_kvsname kvsname=kvs_7_0\n"};

// Answers each line with the next of its answers, and closes the connection after the last.
class Server {
 public:
  explicit Server(std::vector<std::string> answers, std::size_t piece = 4096) {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    client_.reset(ends[0]);
    thread_ = std::thread(
        [this, answers = std::move(answers), piece, end = ends[1]] { serve(base::Fd(end), answers, piece); });
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server() { finish(); }

  [[nodiscard]] Given given(std::uint32_t rank = 0, std::uint32_t size = 2) const {
    return {client_.get(), rank, size};
  }
  // All lines that were asked; waits until no more can come.
  const std::vector<std::string>& asked() {
    finish();
    return asked_;
  }

 private:
  void finish() {
    client_.reset();
    if (thread_.joinable()) thread_.join();
  }
  void serve(const base::Fd& end, const std::vector<std::string>& answers, std::size_t piece) {
    std::string received;
    for (const std::string& answer : answers) {
      std::size_t at = 0;
      while ((at = received.find('\n')) == std::string::npos) {
        std::array<char, 512> bytes;
        const ssize_t got = ::recv(end.get(), bytes.data(), bytes.size(), 0);
        if (got <= 0) return;
        received.append(bytes.data(), static_cast<std::size_t>(got));
      }
      asked_.push_back(received.substr(0, at));
      received.erase(0, at + 1);
      for (std::size_t sent = 0; sent < answer.size(); sent += piece) {
        const std::string part = answer.substr(sent, piece);
        if (::send(end.get(), part.data(), part.size(), MSG_NOSIGNAL) < 0) return;
      }
    }
  }

  base::Fd client_;
  std::thread thread_;
  std::vector<std::string> asked_;
};

std::vector<std::string> after_greeting(const std::vector<std::string>& more) {
  std::vector<std::string> all = kGreeting;
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(pmi_client, the_first_rank_tells_and_is_told) {
  // As hydra answers, a byte at a time.
  Server server(
      after_greeting({"cmd=get_result rc=0 msg=success value=(vector,(0,1,2))\n", "cmd=put_result rc=0 msg=success\n",
                      "cmd=barrier_out\n", "cmd=get_result rc=0 msg=success value=x-1.2:3\n", "cmd=finalize_ack\n"}),
      1);
  auto client = Client::open(server.given());
  ASSERT_TRUE(client.ok()) << base::last_message();
  EXPECT_TRUE((*client)->one_host());
  const auto told = (*client)->share("x-1.2:3");
  ASSERT_TRUE(told.ok()) << base::last_message();
  EXPECT_EQ(*told, "x-1.2:3");
  (*client)->finish();
  const std::vector<std::string> wanted = {"cmd=init pmi_version=1 pmi_subversion=1",
                                           "cmd=get_maxes",
                                           "cmd=get_my_kvsname",
                                           "cmd=get kvsname=kvs_7_0 key=PMI_process_mapping",
                                           "cmd=put kvsname=kvs_7_0 key=heddle-contact value=x-1.2:3",
                                           "cmd=barrier_in",
                                           "cmd=get kvsname=kvs_7_0 key=heddle-contact",
                                           "cmd=finalize"};
  EXPECT_EQ(server.asked(), wanted);
}

TEST(pmi_client, another_rank_only_listens) {
  // As Slurm answers.
  Server server({"cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n",
                 "cmd=maxes rc=0 kvsname_max=256 keylen_max=256 vallen_max=1024\n", "cmd=my_kvsname rc=0 kvsname=7.0\n",
                 "cmd=barrier_out rc=0 msg=success\n", "cmd=get_result rc=0 msg=success value=here\n"});
  auto client = Client::open(server.given(1));
  ASSERT_TRUE(client.ok()) << base::last_message();
  const auto told = (*client)->share("ignored");
  ASSERT_TRUE(told.ok()) << base::last_message();
  EXPECT_EQ(*told, "here");
  ASSERT_EQ(server.asked().size(), 5U);
  EXPECT_EQ(server.asked()[3], "cmd=barrier_in");
}

TEST(pmi_client, a_server_that_does_not_say_where_ranks_are) {
  Server server(after_greeting({"cmd=get_result rc=-1 msg=key_PMI_process_mapping_not_found value=unknown\n"}));
  auto client = Client::open(server.given());
  ASSERT_TRUE(client.ok()) << base::last_message();
  EXPECT_FALSE((*client)->one_host());
}

TEST(pmi_client, abort_names_the_code) {
  Server server(after_greeting({"\n"}));
  auto client = Client::open(server.given());
  ASSERT_TRUE(client.ok()) << base::last_message();
  (*client)->abort(42, "why");
  // The server closes the connection once it has read the command.
  char end = 0;
  while (::recv(server.given().fd, &end, 1, 0) > 0) {
  }
  EXPECT_EQ(server.asked().back(), "cmd=abort exitcode=42");
}

struct Rejection {
  std::size_t step;
  const char* answer;
  base::Status status;
  const char* text;
};

TEST(pmi_client, bad_greetings_are_told) {
  const std::string endless(3 * kMaxLine, 'x');
  for (const Rejection& bad :
       {Rejection{0, "", HEDDLE_ERR_BOOTSTRAP, "closed"},
        Rejection{0, "HTTP/1.1 400 Bad Request\n", HEDDLE_ERR_PROTOCOL, "not a line of PMI"},
        Rejection{0, "cmd=maxes\n", HEDDLE_ERR_PROTOCOL, "maxes"},
        Rejection{0, endless.c_str(), HEDDLE_ERR_PROTOCOL, "4096"},
        Rejection{0, "cmd=response_to_init pmi_version=2 rc=0\n", HEDDLE_ERR_VERSION, "version 2"},
        Rejection{0, "cmd=response_to_init rc=-1 msg=late\n", HEDDLE_ERR_BOOTSTRAP, "late"},
        Rejection{1, "cmd=maxes vallen_max=256\n", HEDDLE_ERR_BOOTSTRAP, "256"},
        Rejection{1, "cmd=maxes\n", HEDDLE_ERR_BOOTSTRAP, "values"},
        Rejection{2, "cmd=my_kvsname\n", HEDDLE_ERR_BOOTSTRAP, "name"},
        Rejection{2, "cmd=my_kvsname kvsname=\n", HEDDLE_ERR_BOOTSTRAP, "name"}}) {
    std::vector<std::string> answers = kGreeting;
    answers.resize(bad.step);
    if (*bad.answer != '\0') answers.emplace_back(bad.answer);
    Server server(answers);
    EXPECT_EQ(Client::open(server.given()).status(), bad.status) << bad.answer;
    EXPECT_NE(std::strstr(base::last_message(), bad.text), nullptr) << bad.answer << ": " << base::last_message();
  }
}

// A server that sends one more byte each second.
class SlowServer final : public base::Clock {
 public:
  explicit SlowServer(std::string answer) : answer_(std::move(answer)) {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    client_.reset(ends[0]);
    server_.reset(ends[1]);
  }
  [[nodiscard]] Given given() { return {client_.get(), 0, 2, this}; }
  [[nodiscard]] std::size_t seconds() const { return seconds_; }

  std::uint64_t now_ns() override {
    if (seconds_ < answer_.size()) {
      EXPECT_EQ(::send(server_.get(), &answer_[seconds_], 1, MSG_NOSIGNAL), 1);
    }
    return ++seconds_ * 1'000'000'000;
  }

 private:
  const std::string answer_;
  base::Fd client_;
  base::Fd server_;
  std::size_t seconds_ = 0;
};

// The time-out is one for the whole answer, and does not begin anew with each piece of it.
TEST(pmi_client, an_answer_that_comes_too_slowly_is_none) {
  SlowServer slow("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0 msg=" + std::string(500, 'x') + "\n");
  EXPECT_EQ(Client::open(slow.given()).status(), HEDDLE_ERR_BOOTSTRAP);
  EXPECT_NE(std::strstr(base::last_message(), "has not answered for 60 s"), nullptr) << base::last_message();
  EXPECT_LT(slow.seconds(), 100U);
}

// Changed bytes anywhere: the client returns a value or an error, and does not wait for bytes that
// do not come.
TEST(pmi_client, garbage_does_no_harm) {
  std::mt19937 random(3);
  const std::vector<std::string> good = after_greeting(
      {"cmd=put_result rc=0 msg=success\n", "cmd=barrier_out\n", "cmd=get_result rc=0 msg=success value=x\n"});
  int told = 0;
  for (int i = 0; i < 500; ++i) {
    std::vector<std::string> answers = good;
    std::string& victim = answers[random() % answers.size()];
    victim[random() % (victim.size() - 1)] =
        static_cast<char>(random());  // the newline stays: the client would wait for it
    Server server(answers);
    auto client = Client::open(server.given());
    if (!client) continue;
    const auto value = (*client)->share("x");
    told += value.ok() ? 1 : 0;
  }
  EXPECT_GT(told, 0);
  EXPECT_LT(told, 500);
}

}  // namespace
}  // namespace heddle::bootstrap::pmi::client_test
