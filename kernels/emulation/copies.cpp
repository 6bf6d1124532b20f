// Memory of the emulated driver, and copies to it and from it.
#include "entry.hpp"
#include <vector>

using namespace rkv::emulation;

namespace {

int copy_now(void *to, const void *from, size_t bytes) {
    device().drain_all();
    if (device().error == 0) {
        memcpy(to, from, bytes);
    }
    return device().error;
}

int refuse_pageable(void *stream) {
    if (!device().may_be_pageable) {
        return kInvalidValue;
    }
    return device().stream(stream)->captured != nullptr ? refuse_in_capture() : 0;
}

} // namespace

extern "C" {

int cuMemAlloc_v2(void **made, size_t bytes) {
    ENTER_UNLESS_CAPTURING;
    *made = device().memory.allocate(bytes);
    return 0;
}
int cuMemFree_v2(void *at) {
    ENTER_UNLESS_CAPTURING;
    device().drain_all();
    return device().memory.release(at) ? 0 : kInvalidValue;
}
int cuMemsetD8Async(void *at, unsigned char value, size_t bytes, void *stream) {
    ENTER;
    if (!device().memory.holds(at, bytes)) {
        return kInvalidValue;
    }
    return device().put(stream, {[=] { memset(at, value, bytes); }});
}
int cuMemHostAlloc(void **made, size_t bytes, unsigned) {
    ENTER_UNLESS_CAPTURING;
    *made = device().pinned.allocate(bytes);
    return 0;
}
int cuMemFreeHost(void *at) {
    ENTER_UNLESS_CAPTURING;
    device().drain_all();
    return device().pinned.release(at) ? 0 : kInvalidValue;
}
int cuMemcpyHtoD_v2(void *to, const void *from, size_t bytes) {
    ENTER_UNLESS_CAPTURING;
    return device().memory.holds(to, bytes) ? copy_now(to, from, bytes) : kInvalidValue;
}
int cuMemcpyDtoH_v2(void *to, const void *from, size_t bytes) {
    ENTER_UNLESS_CAPTURING;
    return device().memory.holds(from, bytes) ? copy_now(to, from, bytes) : kInvalidValue;
}
int cuMemcpyDtoDAsync_v2(void *to, const void *from, size_t bytes, void *stream) {
    ENTER;
    if (!device().memory.holds(to, bytes) || !device().memory.holds(from, bytes)) {
        return kInvalidValue;
    }
    return device().put(stream, {[=] { memcpy(to, from, bytes); }});
}
// Memory of the host that is not pinned is read before the call returns, and written before that.
int cuMemcpyHtoDAsync_v2(void *to, const void *from, size_t bytes, void *stream) {
    ENTER;
    if (!device().memory.holds(to, bytes)) {
        return kInvalidValue;
    }
    if (device().pinned.holds(from, bytes)) {
        return device().put(stream, {[=] { memcpy(to, from, bytes); }});
    }
    if (const int failed = refuse_pageable(stream)) {
        return failed;
    }
    const uint8_t *begin = static_cast<const uint8_t *>(from);
    const auto read = std::make_shared<std::vector<uint8_t>>(begin, begin + bytes);
    return device().put(stream, {[=] { memcpy(to, read->data(), bytes); }});
}
int cuMemcpyDtoHAsync_v2(void *to, const void *from, size_t bytes, void *stream) {
    ENTER;
    if (!device().memory.holds(from, bytes)) {
        return kInvalidValue;
    }
    const bool is_pinned = device().pinned.holds(to, bytes);
    if (const int failed = is_pinned ? 0 : refuse_pageable(stream)) {
        return failed;
    }
    if (const int failed = device().put(stream, {[=] { memcpy(to, from, bytes); }})) {
        return failed;
    }
    if (!is_pinned) {
        device().drain(device().stream(stream));
    }
    return device().error;
}

} // extern "C"
