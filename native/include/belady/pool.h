// Worker threads that claim chunks: the caller always works, helpers take what is left, nobody waits for a helper that has
// claimed nothing. Idle helpers sleep.
#pragma once

#include <cstdint>

namespace bk {

class Pool;
using Chunk = void (*)(void* arg, int64_t index, int thread);  // thread: 0 is the caller, helpers 1..threads-1

Pool* pool_create(int threads, const int* cpus, int cpu_count);  // cpus: pinning, or null
void pool_destroy(Pool*);
int pool_threads(const Pool*);
void pool_run(Pool*, int64_t chunks, Chunk, void* arg);

}  // namespace bk
