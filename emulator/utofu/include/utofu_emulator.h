/* What the emulator has beyond uTofu: for tests, and for looking at what happens. A program that is
 * to run on real hardware does without. */
#ifndef UTOFU_EMULATOR_H
#define UTOFU_EMULATOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Which process of how many this is, as UTOFU_EMU_RANK and UTOFU_EMU_PROCESSES say. */
int utofu_emu_process(void);
int utofu_emu_processes(void);

/* With UTOFU_EMU_STEP=1: one round of this process's network interfaces. How many things it did:
 * commands executed and packets handled; 0: there was nothing to do. Without:
 * UTOFU_ERR_NOT_SUPPORTED. */
int utofu_emu_step(void);

/* The seed of everything random here; from UTOFU_EMU_SEED. With UTOFU_EMU_STEP=1, the same seed
 * gives the same order. */
uint64_t utofu_emu_seed(void);
/* Begins the order of deliveries anew from this seed. Identifiers stay as they are. */
void utofu_emu_reseed(uint64_t seed);

/* Writes to the descriptor what every CQ of this process has: pointers of its queues, credits,
 * waiting commands. */
void utofu_emu_dump(int fd);

/* Bytes of all puts, piggybacks included, that a TNI has sent for this process so far; 0 for a TNI
 * that there is not. */
uint64_t utofu_emu_put_bytes(unsigned tni);

/* With UTOFU_EMU_MODEL=1: the calling thread's time in the timing model, a model's guess and no
 * measurement; otherwise 0. */
uint64_t utofu_emu_model_now_ns(void);
/* The calling thread has just found, by polling memory, what was written to this address. The model
 * sees calls and not loads, so a program that waits in this way tells it; the thread's time is then
 * not before the arrival of what was written last into that line of 64 bytes. Does nothing without
 * the model. */
void utofu_emu_model_saw(const volatile void* address);
/* The calling thread computes for so long: its time in the model goes on by that. Does nothing
 * without the model. */
void utofu_emu_model_spend(uint64_t ns);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
