// What every function of the emulated driver begins with, and the codes that it returns.
#pragma once
#include "streams.hpp"

namespace rkv::emulation {

constexpr int kInvalidValue = 1, kOutOfMemory = 2, kNotFound = 500, kNotReady = 600,
              kLaunchFailed = 719, kCaptureUnsupported = 900, kCaptureInvalidated = 901,
              kCaptureUnmatched = 903, kCaptureIsolation = 905;

// Counts the call, and fails it if a test wants that.
inline int enter(const char *name) {
    Device &dev = device();
    dev.calls[name]++;
    if (dev.failing == name && dev.fail_after-- <= 0) {
        if (--dev.fail_times <= 0) {
            dev.failing.clear();
        }
        return dev.fail_code;
    }
    return dev.error;
}

// Refuses what the driver refuses while a stream is captured: what waits for the device, or could
// make others wait.
inline int refuse_in_capture() {
    if (!device().is_capturing()) {
        return 0;
    }
    device().invalidate_captures();
    return kCaptureUnsupported;
}

// How this thread gets along with captures, see cuThreadExchangeStreamCaptureMode().
inline thread_local int capture_mode = 0;
constexpr int kRelaxed = 2;

} // namespace rkv::emulation

#define LOCKED std::lock_guard<std::recursive_mutex> guard(device().mutex)
#define ENTER \
    LOCKED; \
    if (const int failed = enter(__func__)) { \
        return failed; \
    }
#define ENTER_UNLESS_CAPTURING \
    ENTER; \
    if (const int failed = capture_mode == kRelaxed ? 0 : refuse_in_capture()) { \
        return failed; \
    }
