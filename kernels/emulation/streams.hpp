// Streams, events and memory of the emulated driver. What is put on a stream happens as late as is
// legal, or at once: whoever reuses a buffer too early, or forgets an event, gets wrong results.
#pragma once
#include "machine.hpp"
#include <algorithm>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>

namespace rkv::emulation {

constexpr int kCaptureImplicit = 906;

struct Event {
    uint64_t recorded = 0; // how often it was put on a stream
    uint64_t reached = 0;
};

struct Task {
    std::function<void()> run;
    const Event *awaits = nullptr; // only when this event was reached ...
    uint64_t count = 0;            // ... this many times
};

// What was put on a stream while it was captured: kernels with copies of their arguments.
struct Graph {
    std::vector<Task> tasks;
};

struct Stream {
    std::deque<Task> tasks;
    bool is_blocking = true; // it and the legacy default stream wait for each other
    std::unique_ptr<Graph> captured; // while it is: what is put on it goes here
    bool is_invalid = false;         // the capture: something forbidden was called
};

// Memory by address. The device may touch what lies inside, and nothing else.
class Allocations {
  public:
    void *allocate(size_t bytes) {
        void *made = aligned_alloc(256, (bytes + 255) / 256 * 256);
        memset(made, 0xff, bytes);
        bytes_[reinterpret_cast<uintptr_t>(made)] = bytes;
        return made;
    }
    bool release(void *at) {
        if (bytes_.erase(reinterpret_cast<uintptr_t>(at)) == 0) {
            return false;
        }
        last_begin_ = last_end_ = 0;
        free(at);
        return true;
    }
    bool holds(const void *at, size_t bytes) {
        const auto begin = reinterpret_cast<uintptr_t>(at), end = begin + bytes;
        if (last_begin_ <= begin && end <= last_end_) {
            return true;
        }
        auto after = bytes_.upper_bound(begin);
        if (after == bytes_.begin()) {
            return false;
        }
        --after;
        last_begin_ = after->first;
        last_end_ = after->first + after->second;
        return end <= last_end_;
    }
    size_t count() const { return bytes_.size(); }

  private:
    std::map<uintptr_t, size_t> bytes_;
    uintptr_t last_begin_ = 0, last_end_ = 0;
};

class Device {
  public:
    std::recursive_mutex mutex;
    Allocations memory, pinned;
    int retained = 0; // how often somebody holds the context
    bool is_late = true;
    bool may_be_pageable = true; // what the host copies from and to, asynchronously
    int capability = 8;   // compute capability 8.0
    int shared_bytes = 0; // of a block at most; 0: what such devices have
    int blocks = 0;       // of a multiprocessor, as tests want it; 0: as seems right
    int error = 0;        // sticky, as after a fault on a real device
    std::string message;  // what the fault was
    std::map<std::string, int> calls;
    std::map<std::string, size_t> launched; // blocks of each kernel
    std::string failing;  // the next calls of this function fail ...
    int fail_after = 0;   // ... after so many that succeed ...
    int fail_times = 0;   // ... so many of them ...
    int fail_code = 0;    // ... with this code

    Stream *stream(void *handle) {
        return handle == nullptr ? &default_stream_ : static_cast<Stream *>(handle);
    }
    void *new_stream(bool is_blocking) {
        streams_.push_back(new Stream);
        streams_.back()->is_blocking = is_blocking;
        return streams_.back();
    }
    size_t stream_count() const { return streams_.size(); }
    void delete_stream(void *handle) {
        drain(stream(handle));
        for (auto it = streams_.begin(); it != streams_.end(); ++it) {
            if (*it == handle) {
                delete *it;
                streams_.erase(it);
                return;
            }
        }
    }

    // Whether it is the default stream while one that waits for it is captured: then nothing may be
    // put there, for the graph would have to wait for it.
    bool is_unusable(void *handle) {
        return stream(handle) == &default_stream_ &&
               std::any_of(streams_.begin(), streams_.end(), [](const Stream *one) {
                   return one->is_blocking && one->captured != nullptr;
               });
    }

    int put(void *handle, Task task) {
        Stream *onto = stream(handle);
        if (is_unusable(handle)) {
            invalidate_captures();
            return kCaptureImplicit;
        }
        if (onto->captured != nullptr) {
            onto->captured->tasks.push_back(std::move(task));
            return 0;
        }
        if (onto == &default_stream_) {
            for (Stream *other : streams_) {
                if (other->is_blocking) {
                    drain(other);
                }
            }
        } else if (onto->is_blocking) {
            drain(&default_stream_);
        }
        onto->tasks.push_back(std::move(task));
        if (!is_late) {
            drain(onto);
        }
        return 0;
    }

    // Whether some stream is being captured. Then much is forbidden, to every thread; what is
    // called all the same makes the capture invalid.
    bool is_capturing() const {
        return std::any_of(streams_.begin(), streams_.end(),
                           [](const Stream *one) { return one->captured != nullptr; });
    }
    void invalidate_captures() {
        for (Stream *one : streams_) {
            one->is_invalid = true;
        }
    }

    // Runs the first task of a stream, if it may.
    bool advance(Stream *onto) {
        if (onto->tasks.empty()) {
            return false;
        }
        Task &first = onto->tasks.front();
        if (first.awaits != nullptr && first.awaits->reached < first.count) {
            return false;
        }
        const Task task = std::move(first);
        onto->tasks.pop_front();
        if (error == 0 && task.run) {
            task.run();
        }
        return true;
    }
    void drain(Stream *onto) {
        while (!onto->tasks.empty()) {
            if (!advance(onto)) {
                bool moved = advance(&default_stream_);
                for (Stream *other : streams_) {
                    moved |= advance(other);
                }
                if (!moved) {
                    error = 999;
                    message = "streams wait for each other";
                    onto->tasks.clear();
                }
            }
        }
    }
    void drain_all() {
        drain(&default_stream_);
        for (Stream *onto : streams_) {
            drain(onto);
        }
    }
    // Lets one task of some stream happen.
    void advance_any() {
        if (advance(&default_stream_)) {
            return;
        }
        for (Stream *onto : streams_) {
            if (advance(onto)) {
                return;
            }
        }
    }

  private:
    Stream default_stream_;
    std::vector<Stream *> streams_;
};

inline Device &device() {
    static Device *instance = new Device; // outlives whatever ends after main
    return *instance;
}

} // namespace rkv::emulation
