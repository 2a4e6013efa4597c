// What this machine can do at best: the roofs under which a profile shows operators.
#pragma once

namespace weft {

struct MachineSpeed {
  double flops = 0;  // additions and multiplications a second, of an f32 matrix product
  double bytes = 0;  // read and written a second, of a copy that is far larger than the caches
};

// Measured on num_threads() threads, in about a second: the best of a few products of 1024x1024
// matrices by Weft's own kernel, and of copies of 128 MiB (McCalpin, "Memory Bandwidth and Machine
// Balance in Current High Performance Computers", 1995: STREAM's copy).
MachineSpeed measure_machine_speed();

}  // namespace weft
