// What the emulator's clocks say of one word of shared memory: some threads read it, one writes it
// then, with and without barriers in between.
#include "kernels/emulation/clocks.hpp"
#include <cstdio>
#include <string>

namespace rkv::emulation {
void fail(const char *what) { throw std::string(what); }
} // namespace rkv::emulation

using rkv::emulation::Clock;
using rkv::emulation::Clocks;

namespace {

constexpr int kThreads = 4;

// What thread `from` did is known to thread `to`.
void order(Clocks &clocks, int from, int to) {
    Clock barrier;
    clocks.release(from, barrier);
    clocks.acquire(to, barrier);
}

// A word that thread 3 wrote and everybody knows of.
Clocks written() {
    Clocks clocks;
    clocks.reset(kThreads, 64);
    clocks.begin_write(8, 4, 3, false);
    for (int thread = 0; thread < 3; thread++) {
        order(clocks, 3, thread);
    }
    return clocks;
}

// Whether a write is found to be too early: threads read one after another, some tell the writer.
bool is_found(std::initializer_list<int> readers, std::initializer_list<int> told, int writer) {
    Clocks clocks = written();
    for (int reader : readers) {
        clocks.read(8, 4, reader);
    }
    for (int reader : told) {
        order(clocks, reader, writer);
    }
    try {
        clocks.begin_write(8, 4, writer, false);
    } catch (const std::string &) {
        return true;
    }
    return false;
}

int check(const char *what, bool found, bool expected) {
    if (found == expected) {
        return 0;
    }
    std::printf("%s: %s\n", what, found ? "found" : "not found");
    return 1;
}

// A reader that knows of the one before it stands for both.
bool is_found_behind(bool tells) {
    Clocks clocks = written();
    clocks.read(8, 4, 1);
    order(clocks, 1, 2);
    clocks.read(8, 4, 2);
    if (tells) {
        order(clocks, 2, 0);
    }
    try {
        clocks.begin_write(8, 4, 0, false);
    } catch (const std::string &) {
        return true;
    }
    return false;
}

// Readers of what was there before are no matter once it was written anew.
bool is_found_anew() {
    Clocks clocks = written();
    clocks.read(8, 4, 0);
    clocks.read(8, 4, 1);
    order(clocks, 0, 2);
    order(clocks, 1, 2);
    clocks.begin_write(8, 4, 2, false);
    try {
        clocks.begin_write(8, 4, 2, false);
    } catch (const std::string &) {
        return true;
    }
    return false;
}

} // namespace

int main() {
    int wrong = 0;
    wrong += check("the writer reads first", is_found({0, 1}, {}, 0), true);
    wrong += check("the writer reads last", is_found({1, 0}, {}, 0), true);
    wrong += check("a third one writes", is_found({0, 1}, {1}, 2), true);
    wrong += check("a third one writes, the other order", is_found({1, 0}, {1}, 2), true);
    wrong += check("three read, of whom one is not known", is_found({0, 1, 2}, {1, 2}, 3), true);
    wrong += check("one reads twice", is_found({1, 0, 1, 0}, {}, 0), true);
    wrong += check("the other one told", is_found({0, 1}, {1}, 0), false);
    wrong += check("both told", is_found({1, 0, 1}, {0, 1}, 2), false);
    wrong += check("all told", is_found({0, 1, 2}, {0, 1, 2}, 3), false);
    wrong += check("the last of a chain told", is_found_behind(true), false);
    wrong += check("the last of a chain did not", is_found_behind(false), true);
    wrong += check("written anew", is_found_anew(), false);
    return wrong == 0 ? 0 : 1;
}
