// Shared memory of a block that knows who touched it when: two threads that touch a place, one of
// them to write, need a barrier in between. Found whatever order the threads happen to run in.
//
// Blocks that have no common barrier are looked after by clocks instead, see clocks.hpp.
#pragma once
#include "clocks.hpp"
#include <cstring>

namespace rkv::emulation {

class SharedMemory {
  public:
    // Without `clocks`, barriers of the whole block are what counts.
    void reset(size_t bytes, Clocks *clocks) {
        clocks_ = clocks;
        bytes_.assign(bytes, 0xff);
        words_.assign(bytes / 4, Word{});
        epoch_ = 1;
    }
    void barrier() { epoch_++; }

    const uint8_t *read(uint32_t at, uint32_t count, int thread) {
        check(at, count);
        if (clocks_ != nullptr) {
            clocks_->read(at, count, thread);
            return &bytes_[at];
        }
        for (uint32_t w = at / 4; w < (at + count) / 4; w++) {
            Word &word = words_[w];
            if (word.in_flight != 0) {
                fail("shared memory is read before the copy into it was waited for");
            }
            if (word.writer_epoch == epoch_ && word.writer != thread) {
                fail("shared memory is read without a barrier after another thread's write");
            }
            if (word.writer_epoch == 0) {
                fail("shared memory is read that nobody wrote");
            }
            if (word.reader_epoch == epoch_ && word.reader != thread) {
                word.reader = kSeveral;
            } else {
                word.reader = thread;
            }
            word.reader_epoch = epoch_;
        }
        return &bytes_[at];
    }

    void write(uint32_t at, const void *from, uint32_t count, int thread) {
        begin_write(at, count, thread, false);
        memcpy(&bytes_[at], from, count);
    }

    // A copy that another engine carries out later.
    void begin_copy(uint32_t at, uint32_t count, int thread) {
        begin_write(at, count, thread, true);
    }
    void end_copy(uint32_t at, const void *from, uint32_t count, int thread) {
        if (from != nullptr) {
            memcpy(&bytes_[at], from, count);
        } else {
            memset(&bytes_[at], 0, count);
        }
        if (clocks_ != nullptr) {
            clocks_->end_copy(at, count, thread);
            return;
        }
        for (uint32_t w = at / 4; w < (at + count) / 4; w++) {
            words_[w].in_flight--;
            words_[w].writer = thread;
            words_[w].writer_epoch = epoch_;
        }
    }

    // For units that see to the order of touches themselves.
    uint8_t *bytes(uint32_t at, uint32_t count) {
        check(at, count);
        return &bytes_[at];
    }

  private:
    static constexpr int kSeveral = -2;
    struct Word {
        uint32_t writer_epoch = 0, reader_epoch = 0;
        int writer = -1, reader = -1;
        int in_flight = 0;
    };

    void check(uint32_t at, uint32_t count) const {
        if (static_cast<uint64_t>(at) + count > bytes_.size()) {
            fail("shared memory is touched beyond its end");
        }
        if (at % count != 0) {
            fail("shared memory is touched at a misaligned place");
        }
    }

    void begin_write(uint32_t at, uint32_t count, int thread, bool copy) {
        check(at, count);
        if (clocks_ != nullptr) {
            clocks_->begin_write(at, count, thread, copy);
            return;
        }
        for (uint32_t w = at / 4; w < (at + count) / 4; w++) {
            Word &word = words_[w];
            if (word.in_flight != 0) {
                fail("shared memory is written while a copy into it is under way");
            }
            if (word.reader_epoch == epoch_ && (word.reader != thread || copy)) {
                fail("shared memory is written without a barrier after a read");
            }
            if (word.writer_epoch == epoch_ && word.writer != thread) {
                fail("shared memory is written by two threads without a barrier");
            }
            word.writer = thread;
            word.writer_epoch = epoch_;
            word.in_flight += copy ? 1 : 0;
        }
    }

    std::vector<uint8_t> bytes_;
    std::vector<Word> words_;
    uint32_t epoch_ = 1;
    Clocks *clocks_ = nullptr;
};

} // namespace rkv::emulation
