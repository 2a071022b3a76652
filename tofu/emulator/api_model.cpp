// Functions by which programs query the timing model.
#include <utofu_emulator.h>
#include "tofu/emulator/process.hpp"

using tofu_emulator::Model;
using tofu_emulator::Process;

extern "C" {

uint64_t utofu_emu_model_now_ns(void) {
  return Model::now_ns();
}

void utofu_emu_model_saw(const volatile void* address) {
  if (Process* process = Process::get()) process->model().saw(const_cast<const void*>(address));
}

void utofu_emu_model_spend(uint64_t ns) {
  if (Process* process = Process::get()) process->model().learned(Model::now_ns() + ns);
}

}  // extern "C"
