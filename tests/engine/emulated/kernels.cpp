// The engine's kernels as kernels of the emulated device: nvcc.sh compiles this instead of the
// source that it is given.
#include "kernels/emulation/cuda.hpp"

#include "cuda/kernels.cu"

namespace emulation = rkv::emulation;

RKV_LIST_KERNEL(engine_embed, EmbedArguments, block_threads, 0)
RKV_LIST_KERNEL(engine_norm, NormArguments, block_threads, 0)
RKV_LIST_KERNEL(engine_add_bias, BiasArguments, block_threads, 0)
RKV_LIST_KERNEL(engine_turn_heads, TurnArguments, block_threads, 0)
RKV_LIST_KERNEL(engine_silu_multiply, SiluArguments, block_threads, 0)
