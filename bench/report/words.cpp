#include "report/words.hpp"

#include <algorithm>

#include "report/plot.hpp"

namespace heddle::bench::report {

namespace {

struct Word {
  const char* op;
  const char* meaning;
};

constexpr Word kWords[] = {
    {"pingpong_1line", "a word between two cores and back in one cache line, half the round trip"},
    {"pingpong_2lines", "the same with a line that each core writes: P"},
    {"ring_each", "records of 8 bytes through a ring of one producer and one consumer, each published by itself"},
    {"ring_16", "the same, 16 records published at once"},
    {"fadd_alone", "an atomic addition by one core alone"},
    {"fadd_contended", "an atomic addition to one word by both cores at once"},
    {"memcpy", "a copy into memory that both processes map, which the other process does not read: the limit of a put"},
    {"memcpy_fresh", "the same from memory that the other core has just written"},
    {"memcpy_get", "a copy out of memory that both processes map: the limit of a get"},
    {"cma", "a copy by the kernel out of the other process (process_vm_readv)"},
    {"copy_in_out_256K", "one process copies into a ring of 256 KiB that both map, the other copies out of it"},
    {"copy_in_out_4M", "the same with a ring of 4 MiB, larger than a core's second-level cache"},
    {"put", "a write into the other process's memory"},
    {"put_wait", "a write, and the other process waits for it by the library's wait"},
    {"put_flush", "a write and the wait until it is complete at the target"},
    {"get", "a read of the other process's memory"},
    {"fadd", "an atomic fetch-and-add in the other process's memory"},
    {"am", "an active message: a handler runs at the target"},
    {"tagged", "a send and the receive that matches it by its tag"},
    {"latency", "a message there and back, half of the time, as OSU measures it"},
    {"bw", "windows of 64 messages one way, each window answered"},
    {"bibw", "the same both ways at once"},
    {"mbw_mr", "the same counted in messages, by one or several pairs of processes"},
    {"latency_mt", "a message there and back; whichever of several threads has it answers"},
    {"pingpong_mt_own",
     "a message there and back between each thread and its partner, all at once, each by a queue of its own"},
    {"pingpong_mt_one", "the same, all threads of a process by one queue"},
    {"put_latency", "a write with a signal there and back, half of the time"},
    {"put_window", "64 writes and a flush"},
    {"get_window", "64 reads and a flush"},
    {"pairs_own", "each thread sends windows to the thread of its number, each by a queue of its own"},
    {"pairs_one", "the same, all threads of a process by one queue"},
    {"pairs_any", "the same, received from any source"},
    {"rpc_16", "questions of 64 bytes and their answers, 16 outstanding"},
    {"rpc_32", "the same, 32 outstanding"},
    {"rpc_128", "the same, 128 outstanding"},
    {"rpc_mt_16", "questions and answers of several threads, 16 outstanding in each"},
    {"rpc_mt_32", "the same, 32 outstanding"},
    {"rpc_mt_128", "the same, 128 outstanding"},
    {"halo", "a step of an exchange with two neighbours, by each thread"},
    {"fan_in", "seven processes send to one, which receives from any"},
    {"exchange_flag", "a buffer put to each other process and a flag behind it, the wait for all flags, all read"},
    {"exchange_count", "the same with one atomic count instead of flags"},
    {"exchange_barrier", "the same with a barrier instead of the wait"},
    {"overlap_alone", "a transfer that nobody computes beside"},
    {"overlap_added", "what a transfer adds to a computation that lasts as long"},
    {"get_put", "GUPS: read a random word, change it, write it back"},
    {"atomic", "GUPS: change a random word by an atomic exclusive or"},
};

}  // namespace

std::string words(const std::vector<harness::Record>& records) {
  std::string out;
  for (const Word& word : kWords) {
    const bool there =
        std::any_of(records.begin(), records.end(), [&](const auto& one) { return one.key.op == word.op; });
    if (there) out += std::string("<dt>") + escape(word.op) + "</dt><dd>" + escape(word.meaning) + "</dd>\n";
  }
  return out.empty() ? out : "<h2>Names</h2>\n<dl>" + out + "</dl>\n";
}

}  // namespace heddle::bench::report
