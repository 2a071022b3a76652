/* Extensions of the emulator to uTofu, for tests and for observation. A program for real hardware
 * must not need them. */
#ifndef UTOFU_EMULATOR_H
#define UTOFU_EMULATOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* The number of this process and the number of processes, as in UTOFU_EMU_RANK and
 * UTOFU_EMU_PROCESSES. */
int utofu_emu_process(void);
int utofu_emu_processes(void);

/* With UTOFU_EMU_STEP=1: runs one round of this process's network interfaces. Returns the number of
 * commands executed and packets handled; 0: nothing to do. Otherwise: UTOFU_ERR_NOT_SUPPORTED. */
int utofu_emu_step(void);

/* The seed of all random choices, from UTOFU_EMU_SEED. With UTOFU_EMU_STEP=1, the same seed gives
 * the same order. */
uint64_t utofu_emu_seed(void);
/* Restarts the random order of deliveries with this seed. Identifiers do not change. */
void utofu_emu_reseed(uint64_t seed);

/* Writes the state of every CQ of this process to the descriptor: the pointers of its queues,
 * credits, waiting commands. */
void utofu_emu_dump(int fd);

/* Bytes of all puts, piggybacks included, that a TNI has sent for this process so far; 0 for a TNI
 * that does not exist. */
uint64_t utofu_emu_put_bytes(unsigned tni);

/* With UTOFU_EMU_MODEL=1: the calling thread's time in the timing model, which is an estimate, not
 * a measurement; otherwise 0. */
uint64_t utofu_emu_model_now_ns(void);
/* The calling thread has just found, by polling memory, data written to this address. The model
 * sees calls but not loads, so a program that waits in this way must tell it. The thread's time is
 * then not before the arrival of the last data written to that line of 64 bytes. Does nothing
 * without the model. */
void utofu_emu_model_saw(const volatile void* address);
/* The calling thread computes for this time: its time in the model advances by it. Does nothing
 * without the model. */
void utofu_emu_model_spend(uint64_t ns);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
