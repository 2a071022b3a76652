// Numbers of 128 bits: sums and products of 64-bit ones fit.
#pragma once

namespace heddle::mpi {

__extension__ using Int128 = __int128;
__extension__ using UnsignedInt128 = unsigned __int128;

}  // namespace heddle::mpi
