// The words of Hopper (sm_90a) that attn_sm90 is written in, as device.cuh has those of every GPU.
//
//   barriers   objects in shared memory that threads and copies arrive at; a phase ends when all
//              have, and its number's lowest bit is its parity
//   boxes      pieces of a tensor, copied by a unit of the device that arrives with bytes
//   products   of matrices in shared memory, by four warps at once and behind their backs
#pragma once
#include "device.cuh"

#if defined(__CUDACC__)

namespace rkv {

// The value of lane 0, known to be the same in all lanes.
RKV_DEVICE int of_first_lane(int value) { return __shfl_sync(0xffffffffu, value, 0); }

// Registers of each thread, for all four warps of a group. The numbers add up to what a block has.
template <int kCount>
RKV_DEVICE void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
RKV_DEVICE void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}

// Barriers that have a number, for `kThreads` threads; arriving waits for nobody.
template <int kNumber, int kThreads>
RKV_DEVICE void sync_some() {
    asm volatile("bar.sync %0, %1;" ::"n"(kNumber), "n"(kThreads) : "memory");
}
template <int kNumber, int kThreads>
RKV_DEVICE void arrive_some() {
    asm volatile("bar.arrive %0, %1;" ::"n"(kNumber), "n"(kThreads) : "memory");
}

RKV_DEVICE void barrier_init(uint32_t at, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
}
// Lets the unit that copies boxes see them; other threads need sync_block() besides.
RKV_DEVICE void barrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
RKV_DEVICE void barrier_arrive(uint32_t at) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}
// Arrives, and makes the phase wait for so many bytes too.
RKV_DEVICE void barrier_arrive_expect(uint32_t at, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes)
                 : "memory");
}
// Waits for the end of the phase of this parity; of a new barrier the phase before the first one,
// with parity 1, has ended.
RKV_DEVICE void barrier_wait(uint32_t at, int parity) {
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "WAIT:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra DONE;\n"
                 "bra WAIT;\n"
                 "DONE:\n"
                 "}" ::"r"(at),
                 "r"(parity)
                 : "memory");
}

RKV_DEVICE void prefetch_map(const TensorMap *map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
// Copies the box that begins there, by the map's dimensions; its bytes arrive at the barrier.
RKV_DEVICE void copy_box(uint32_t to, const TensorMap *map, uint32_t barrier, int element,
                         int second, int third, int page) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(element), "r"(second), "r"(third), "r"(page)
                 : "memory");
}
// Brings the box to the second cache, where a copy will find it.
RKV_DEVICE void prefetch_box(const TensorMap *map, int element, int second, int third, int page) {
    asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global [%0, {%1, %2, %3, %4}];" ::"l"(map),
                 "r"(element), "r"(second), "r"(third), "r"(page)
                 : "memory");
}
// The same for so many bytes that lie one behind another.
RKV_DEVICE void prefetch_bytes(const void *from, int bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}
// What this thread wrote to shared memory so far is there for products and copies of boxes, too.
RKV_DEVICE void fence_async_proxy() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Before the first product, and after other instructions used the registers of one.
RKV_DEVICE void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
RKV_DEVICE void products_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
RKV_DEVICE void products_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

RKV_DEVICE void pin(uint64_t &x) { asm volatile("" : "+l"(x)); }

// Keeps the compiler from moving uses of these registers across, for it does not know that
// products use them behind its back.
template <int kRows, int kColumns>
RKV_DEVICE void pin(float (&x)[kRows][kColumns]) {
    RKV_UNROLL
    for (int i = 0; i < kRows; i++) {
        RKV_UNROLL
        for (int j = 0; j < kColumns; j++) {
            asm volatile("" : "+f"(x[i][j])::"memory");
        }
    }
}
template <int kRows, int kColumns>
RKV_DEVICE void pin(uint32_t (&x)[kRows][kColumns]) {
    RKV_UNROLL
    for (int i = 0; i < kRows; i++) {
        RKV_UNROLL
        for (int j = 0; j < kColumns; j++) {
            asm volatile("" : "+r"(x[i][j])::"memory");
        }
    }
}

} // namespace rkv

#include "products.cuh"

#else
#include "emulation/hopper.hpp"
#endif
