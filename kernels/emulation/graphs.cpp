// Capture of streams into graphs, and their launch, by the emulated driver.
#include "entry.hpp"

using namespace rkv::emulation;

extern "C" {

int cuThreadExchangeStreamCaptureMode(int *mode) {
    ENTER;
    std::swap(*mode, capture_mode);
    return 0;
}

// In the strictest mode whatever mode is asked for.
int cuStreamBeginCapture_v2(void *handle, int) {
    ENTER;
    if (handle == nullptr || device().stream(handle)->captured != nullptr) {
        return kCaptureUnsupported;
    }
    device().stream(handle)->captured = std::make_unique<Graph>();
    device().stream(handle)->is_invalid = false;
    return 0;
}
int cuStreamEndCapture(void *handle, void **graph) {
    ENTER;
    Stream *stream = device().stream(handle);
    *graph = nullptr;
    if (stream->captured == nullptr) {
        return kCaptureUnmatched;
    }
    const std::unique_ptr<Graph> captured = std::move(stream->captured);
    if (stream->is_invalid) {
        return kCaptureInvalidated;
    }
    *graph = new Graph(*captured);
    return 0;
}
int cuGraphInstantiateWithFlags(void **executable, const void *graph, unsigned long long) {
    ENTER;
    *executable = new Graph(*static_cast<const Graph *>(graph));
    return 0;
}
int cuGraphLaunch(const void *executable, void *stream) {
    ENTER;
    if (const int failed = refuse_in_capture()) {
        return failed;
    }
    for (const Task &task : static_cast<const Graph *>(executable)->tasks) {
        if (const int failed = device().put(stream, task)) {
            return failed;
        }
    }
    return 0;
}
int cuGraphExecDestroy(void *executable) {
    ENTER;
    delete static_cast<Graph *>(executable);
    return 0;
}
int cuGraphDestroy(void *graph) {
    ENTER;
    delete static_cast<Graph *>(graph);
    return 0;
}

} // extern "C"
