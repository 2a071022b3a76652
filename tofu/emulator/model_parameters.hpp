// The numbers of the timing model, in one place. Where they come from, and how sure they are:
//
//   measured   one user-level suite of one-sided operations on 12 nodes of TofuD, one process a
//              node (2026): 8-byte put one way 0.97-0.99 us over one link, 0.08 us more for each
//              further one; get round trip 1.48-1.51 us, atomic 1.32-1.35 us; put t = 1.23 us +
//              bytes / 6.36 GB/s
//   published  the paper on UCX over Tofu Interconnect D for many threads, which docs/tofu.md
//              describes
//   layout     frame and header sizes of published register layouts
//   derived    chosen so that the sums equal the measured values
//   assumed    unknown; a guess that contradicts none of the others
//
// Nanoseconds and bytes.
#pragma once

#include <cstdint>

namespace tofu_emulator::model_parameters {

// Processor.
inline constexpr std::uint64_t kPost = 200;     // a call that posts: "about 0.2 us" (measured)
inline constexpr std::uint64_t kPostMore = 30;  // each further command of the same call (assumed)
// a poll that finds something (assumed); a poll in vain costs nothing
inline constexpr std::uint64_t kPoll = 50;
// transfer of a VCQ's lock and lines from another core (assumed)
inline constexpr std::uint64_t kHandOver = 150;

// Threads that spin for a lock around a shared VCQ (UTOFU_EMU_MODEL=2). None of these numbers is
// fitted to the paper, whose single worker they describe. The processor has four groups of 12
// cores, each with its own L2, on a ring (published). Programs bind adjacent threads to adjacent
// cores, as the paper does. No source was found for the transfer time of a line between cores: the
// order of magnitude is that of other processors with many cores.
inline constexpr std::uint64_t kCoresOfGroup = 12;  // (published)
// a line from another core of the group (assumed)
inline constexpr std::uint64_t kLineNear = 50;
inline constexpr std::uint64_t kLineFar = 150;  // of another group (assumed)
inline constexpr std::uint64_t kLinesOfTurn =
    3;  // of the lock, of the TOQ's end, of the end of the queue to poll (assumed)
// each spinner reads the lock's line after a release; half of these reads come before the next
// holder's access (assumed: half an L2 latency each)
inline constexpr std::uint64_t kSpinnerRead = 10;
inline constexpr std::uint64_t kPollInVain = 50;  // like a poll that finds something (assumed)
// not a time: useful calls per user after which a thread that stopped polling in vain no longer
// counts as a spinner
inline constexpr std::uint64_t kRecentCalls = 4;

// From the processor's doorbell to the first byte on the link: 0.98 = kPost + kStart + kFlight +
// one link + frame (derived).
inline constexpr std::uint64_t kStart = 275;
// fetching data that is not in the command: 1.23 - 0.98 us (derived)
inline constexpr std::uint64_t kReadSource = 250;
// without links: 0.49 us at one link, Ajima et al. 2018 (published)
inline constexpr std::uint64_t kFlight = 410;
inline constexpr std::uint64_t kLink = 80;  // each link (measured)
inline constexpr std::uint64_t kReturn =
    205;  // an answer, without links: half a flight; the atomic's round trip (derived)
// an atomic at the target (assumed; with kReturn gives 1.33 us)
inline constexpr std::uint64_t kExecute = 50;
// reading the data of a get (assumed; gives 1.48 us)
inline constexpr std::uint64_t kReadTarget = 200;
// from the arrival of data to the start of the command that it releases (assumed)
inline constexpr std::uint64_t kRelease = 100;

// A TNI. 31 million puts/s by 24 VCQs on 6 TNIs (published) mean one in 190 ns for each TNI; 14.7
// million gets/s one in 400. It is not known whether a TNI, its CQs or the processor sets these
// limits; here it is the TNI.
inline constexpr std::uint64_t kTniPut = 190;
inline constexpr std::uint64_t kTniGet = 400;

// Wire. 6.36 GB/s of payload (measured) are 6.60 GB/s in frames of 1920 bytes. This limit holds for
// one link and for one TNI: six TNIs to the same neighbour are no faster than one (measured), to
// six neighbours six times as fast (published: 38.1 GB/s).
inline constexpr std::uint64_t kFrameHead = 8;     // routing (layout)
inline constexpr std::uint64_t kPacketHead = 64;   // protocol and checksum (layout)
inline constexpr std::uint64_t kFrameUnit = 32;    // (layout)
inline constexpr std::uint64_t kLeastFrame = 104;  // (layout)
inline constexpr double kBytesPerNs = 6.60;        // (derived)

// Registration of memory: system calls; the model lets one thread of a process make one at a time
// (assumed). Without a cache, one thread's ping-pong of 64 bytes takes 1.4 instead of 1.2 us: the
// difference is the time of a call to register (published). Without a cache, 24 threads reach 2.8
// million gets/s: so both calls together take 357 ns, of which deregistration takes the rest
// (published). That 24 threads without a cache reach only 0.28 million puts/s (also published)
// contradicts both, and also the 10.9 us of a ping-pong with 48 threads: docs/tofu.md.
inline constexpr std::uint64_t kRegister = 200;
inline constexpr std::uint64_t kDeregister = 157;

// Barrier gates: 0.6-0.8 us a stage (assumed): a flight, links, and this.
inline constexpr std::uint64_t kGate = 150;

}  // namespace tofu_emulator::model_parameters
