// Who may touch which word of shared memory when a block has no common barrier: each thread has a
// clock, and knows from barriers how far the others' clocks were. A touch is in order when the one
// before it is known. Found whatever order the threads happen to run in.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace rkv::emulation {

[[noreturn]] void fail(const char *what);

// How far each thread was, and each barrier's copies.
using Clock = std::vector<uint32_t>;

class Clocks {
  public:
    static constexpr int kBarriersMax = 32;

    void reset(int threads, size_t bytes) {
        threads_ = threads;
        clocks_.assign(threads, Clock(threads + kBarriersMax, 0));
        for (int i = 0; i < threads; i++) {
            clocks_[i][i] = 1;
        }
        unfenced_.assign(threads, {});
        words_.assign(bytes / 4, Word{});
        reads_.assign(1, Read{});
        others_.assign(1, {});
        checked_read_ = 0;
    }

    int thread_count() const { return threads_; }

    // What a thread did so far is known to whoever acquires `into` later.
    void release(int thread, Clock &into) {
        into.resize(clocks_[thread].size(), 0);
        learn(into, clocks_[thread]);
        clocks_[thread][thread]++;
    }
    void acquire(int thread, const Clock &from) {
        if (!from.empty()) {
            learn(clocks_[thread], from);
            checked_read_ = 0;
        }
    }
    bool knows(int thread, int other, uint32_t time) const {
        return thread == other || clocks_[thread][other] >= time;
    }
    uint32_t now(int thread) const { return clocks_[thread][thread]; }

    void read(uint32_t at, uint32_t count, int thread) {
        for (uint32_t w = at / 4; w < (at + count) / 4; w++) {
            Word &word = words_[w];
            check_written(word, thread);
            note_reader(word, thread);
        }
    }

    // A write of a thread, at once or (`is_copy`) later.
    void begin_write(uint32_t at, uint32_t count, int thread, bool is_copy) {
        for (uint32_t w = at / 4; w < (at + count) / 4; w++) {
            Word &word = words_[w];
            check_free(word, thread);
            set_writer(word, thread, now(thread));
            word.in_flight += is_copy ? 1 : 0;
        }
        if (!is_copy) {
            unfenced_[thread].push_back({at, count});
        }
    }
    void end_copy(uint32_t at, uint32_t count, int thread) {
        for (uint32_t w = at / 4; w < (at + count) / 4; w++) {
            words_[w].in_flight--;
            set_writer(words_[w], thread, now(thread));
        }
        unfenced_[thread].push_back({at, count});
    }
    // What a thread wrote is there for the units that have a way to memory of their own.
    void fence(int thread) {
        for (const Piece &piece : unfenced_[thread]) {
            for (uint32_t w = piece.at / 4; w < (piece.at + piece.count) / 4; w++) {
                words_[w].fenced_at = now(thread);
            }
        }
        unfenced_[thread].clear();
    }

    // Bytes of a box, on their way; then they are known to whoever waited for the barrier's phase.
    void begin_box(uint32_t at, uint32_t count, int thread) {
        for (uint32_t w = at / 4; w < (at + count) / 4; w++) {
            check_free(words_[w], thread);
            words_[w].in_flight++;
        }
    }
    void end_box(uint32_t at, uint32_t count, int barrier, uint32_t phase) {
        for (uint32_t w = at / 4; w < (at + count) / 4; w++) {
            words_[w].in_flight--;
            set_writer(words_[w], threads_ + barrier, phase);
            words_[w].fenced_at = phase;
        }
    }

    // A product of four warps, from thread `first` on, that reads until end_read.
    uint32_t begin_read(int first) {
        reads_.push_back({first, {}});
        return static_cast<uint32_t>(reads_.size() - 1);
    }
    void product_reads(uint32_t number, uint32_t at, uint32_t count) {
        const int first = reads_[number].first;
        for (uint32_t w = at / 4; w < (at + count) / 4; w++) {
            Word &word = words_[w];
            if (word.in_flight != 0) {
                fail("a product reads shared memory before the copy into it was waited for");
            }
            if (word.writer == kNobody) {
                fail("a product reads shared memory that nobody wrote");
            }
            if (word.fenced_at == 0) {
                fail("a product reads shared memory without a fence after a thread's write");
            }
            for (int warp = 0; warp < 4; warp++) {
                if (!knows(first + warp * 32, word.writer, word.fenced_at)) {
                    fail("a product reads shared memory that was not waited for");
                }
            }
            word.open_reads++;
            word.read[first / 128] = number;
        }
    }
    void product_ends(uint32_t at, uint32_t count) {
        for (uint32_t w = at / 4; w < (at + count) / 4; w++) {
            words_[w].open_reads--;
        }
    }
    void end_read(uint32_t number) {
        Read &read = reads_[number];
        read.ended.resize(128);
        for (int i = 0; i < 128; i++) {
            read.ended[i] = now(read.first + i);
        }
    }

  private:
    static constexpr int kNobody = -1;
    static constexpr int kGroupsMax = 4;
    struct Reader {
        int thread = kNobody;
        uint32_t at = 0;
    };
    struct Word {
        int writer = kNobody;
        uint32_t written_at = 0, fenced_at = 0;
        Reader reader;       // since it was written: one of them ...
        uint32_t others = 0; // ... and where the others are; 0: there were none yet
        uint16_t in_flight = 0, open_reads = 0;
        uint32_t read[kGroupsMax]{}; // last product of each group; 0: none
    };
    struct Read {
        int first;
        std::vector<uint32_t> ended; // clocks of its threads
    };
    struct Piece {
        uint32_t at, count;
    };

    static void learn(Clock &into, const Clock &from) {
        for (size_t i = 0; i < from.size(); i++) {
            into[i] = std::max(into[i], from[i]);
        }
    }
    // Whoever knows the last touch of a thread knows what that thread knew: so a reader stands for
    // those before it that it knows of.
    void note_reader(Word &word, int thread) {
        const Reader reader{thread, now(thread)};
        if (stands_for(thread, word.reader) && is_alone(word)) {
            word.reader = reader;
            return;
        }
        if (word.others == 0) {
            word.others = static_cast<uint32_t>(others_.size());
            others_.emplace_back();
        }
        std::vector<Reader> &others = others_[word.others];
        others.erase(std::remove_if(others.begin(), others.end(),
                                    [&](const Reader &one) { return stands_for(thread, one); }),
                     others.end());
        others.push_back(reader);
    }
    bool stands_for(int thread, const Reader &before) const {
        return before.thread == kNobody || knows(thread, before.thread, before.at);
    }
    bool is_alone(const Word &word) const {
        return word.others == 0 || others_[word.others].empty();
    }
    void set_writer(Word &word, int writer, uint32_t time) {
        word.writer = writer;
        word.written_at = time;
        word.fenced_at = 0;
        word.reader = {};
        if (word.others != 0) {
            others_[word.others].clear();
        }
        std::fill(std::begin(word.read), std::end(word.read), 0);
    }
    void check_written(const Word &word, int thread) const {
        if (word.in_flight != 0) {
            fail("shared memory is read before the copy into it was waited for");
        }
        if (word.writer == kNobody) {
            fail("shared memory is read that nobody wrote");
        }
        if (!knows(thread, word.writer, word.written_at)) {
            fail("shared memory is read without a barrier after another thread's write");
        }
    }
    void check_free(const Word &word, int thread) {
        if (word.in_flight != 0) {
            fail("shared memory is written while a copy into it is under way");
        }
        if (word.open_reads != 0) {
            fail("shared memory is written while a product may read it");
        }
        if (word.writer != kNobody && !knows(thread, word.writer, word.written_at)) {
            fail("shared memory is written by two threads without a barrier");
        }
        bool is_free = stands_for(thread, word.reader);
        for (size_t i = 0; is_free && i < others_[word.others].size(); i++) {
            is_free = stands_for(thread, others_[word.others][i]);
        }
        if (!is_free) {
            fail("shared memory is written without a barrier after a read");
        }
        for (uint32_t number : word.read) {
            if (number != 0 && !knows_end(thread, number)) {
                fail("shared memory is written before those who read it said that they have");
            }
        }
    }
    // Whether each warp of a product told that it has ended, by some thread of it.
    bool knows_end(int thread, uint32_t number) {
        if (checked_read_ == number && checked_by_ == thread) {
            return true;
        }
        const Read &read = reads_[number];
        for (int warp = 0; warp < 4; warp++) {
            bool some = false;
            for (int i = warp * 32; i < warp * 32 + 32 && !some; i++) {
                some = knows(thread, read.first + i, read.ended[i]);
            }
            if (!some) {
                return false;
            }
        }
        checked_read_ = number;
        checked_by_ = thread;
        return true;
    }

    std::vector<Clock> clocks_; // of threads
    std::vector<Word> words_;
    std::vector<Read> reads_;
    std::vector<std::vector<Reader>> others_; // the first is empty, and no word's
    std::vector<std::vector<Piece>> unfenced_;
    int threads_ = 0;
    uint32_t checked_read_ = 0;
    int checked_by_ = -1;
};

} // namespace rkv::emulation
