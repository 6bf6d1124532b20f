// The words of hopper.cuh for the emulator.
#pragma once

namespace rkv {

inline int of_first_lane(int value) { return value; }

// The emulator has as many registers as anybody wants.
template <int kCount>
void take_registers() {}
template <int kCount>
void give_registers() {}

template <int kNumber, int kThreads>
void sync_some() {
    emulation::machine().units().sync_some(kNumber, kThreads);
}
template <int kNumber, int kThreads>
void arrive_some() {
    emulation::machine().units().arrive_some(kNumber, kThreads);
}

inline void barrier_init(uint32_t at, int count) {
    emulation::machine().units().barrier_init(at, count);
}
inline void barrier_init_fence() { emulation::machine().units().barrier_init_fence(); }
inline void barrier_arrive(uint32_t at) { emulation::machine().units().barrier_arrive(at, 0); }
inline void barrier_arrive_expect(uint32_t at, int bytes) {
    emulation::machine().units().barrier_arrive(at, bytes);
}
inline void barrier_wait(uint32_t at, int parity) {
    emulation::machine().units().barrier_wait(at, parity);
}

inline void prefetch_map(const TensorMap *) {}
inline void copy_box(uint32_t to, const TensorMap *map, uint32_t barrier, int element, int second,
                     int third, int page) {
    emulation::machine().units().copy_box(to, map, barrier, {element, second, third, page});
}
inline void prefetch_box(const TensorMap *map, int element, int second, int third, int page) {
    emulation::machine().units().prefetch_box(map, {element, second, third, page});
}
inline void prefetch_bytes(const void *from, int bytes) {
    emulation::machine().touch_global(from, static_cast<size_t>(bytes), 16);
}
inline void fence_async_proxy() {
    emulation::machine().units().clocks().fence(emulation::machine().thread());
}

inline void products_begin() { emulation::machine().units().products_begin(); }
inline void products_commit() { emulation::machine().units().products_commit(); }
template <int kPending>
void products_wait() {
    emulation::machine().units().products_wait(kPending);
}
template <class T>
void pin(T &) {}

template <class Number, int kRows>
void multiply_shared(Number, float (&d)[kRows][4], uint64_t left, uint64_t right, int is_added) {
    emulation::machine().units().multiply(
        {&d[0][0], nullptr, left, right, kRows * 8, is_added != 0, false, Number::low});
}
template <class Number, int kRows>
void multiply_registers(Number, float (&d)[kRows][4], const uint32_t (&left)[4], uint64_t right) {
    emulation::machine().units().multiply(
        {&d[0][0], left, 0, right, kRows * 8, true, true, Number::low});
}

} // namespace rkv
