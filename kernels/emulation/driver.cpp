// An emulated libcuda.so: as much of the driver's interface as radixkv and the reference engine
// call, over emulated kernels.
// The numbers and names are those of the CUDA driver API.
#include "entry.hpp"
#include <array>
#include <dlfcn.h>

using namespace rkv::emulation;

namespace {

thread_local int depth = 0; // contexts that were pushed

bool may_touch(const void *at, size_t bytes) {
    return device().memory.holds(at, bytes) || device().pinned.holds(at, bytes);
}

int shared_memory_of_block() {
    const Device &dev = device();
    const int usual = (dev.capability == 9 ? 227 : 163) << 10;
    return dev.shared_bytes > 0 ? dev.shared_bytes : usual;
}

struct LaunchAttribute {
    int id;
    int padding;
    int value; // of 64 bytes
    int rest[15];
};
struct LaunchConfig {
    unsigned grid[3], block[3], shared_bytes;
    void *stream;
    const LaunchAttribute *attributes;
    unsigned attribute_count;
};

int put_kernel(const void *function, std::array<unsigned, 3> grid, unsigned threads,
               unsigned shared_bytes, void *stream, const void *from, bool is_early) {
    const Kernel *kernel = static_cast<const Kernel *>(function);
    const auto [x, y, z] = grid;
    if (depth == 0 || x == 0 || y == 0 || y > 65535 || z == 0 || z > 65535 ||
        threads != kernel->threads || shared_bytes != kernel->shared_bytes) {
        return kInvalidValue;
    }
    // The arguments are copied before the call returns, as the driver does.
    struct alignas(64) Piece {
        uint8_t bytes[64];
    };
    device().launched[kernel->name] += size_t{x} * y * z;
    const auto arguments =
        std::make_shared<std::vector<Piece>>((kernel->argument_bytes + 63) / 64);
    memcpy(arguments->data(), from, kernel->argument_bytes);
    return device().put(stream, {[=] {
        machine().global_check = may_touch;
        const std::string wrong = machine().run(
            {{grid[0], grid[1], grid[2]}, threads, shared_bytes, kernel->is_hopper, is_early, [&] {
                 kernel->call(arguments->data());
             }});
        if (!wrong.empty()) {
            device().error = kLaunchFailed;
            device().message = std::string(kernel->name) + ": " + wrong;
        }
    }});
}

} // namespace

extern "C" {

int cuInit(unsigned) {
    ENTER;
    return 0;
}
int cuDriverGetVersion(int *version) {
    *version = 12000;
    return 0;
}
int cuGetErrorName(int error, const char **name) {
    switch (error) {
    case 0: *name = "CUDA_SUCCESS"; return 0;
    case kInvalidValue: *name = "CUDA_ERROR_INVALID_VALUE"; return 0;
    case kOutOfMemory: *name = "CUDA_ERROR_OUT_OF_MEMORY"; return 0;
    case kNotFound: *name = "CUDA_ERROR_NOT_FOUND"; return 0;
    case kNotReady: *name = "CUDA_ERROR_NOT_READY"; return 0;
    case kLaunchFailed: *name = "CUDA_ERROR_LAUNCH_FAILED"; return 0;
    default: *name = nullptr; return kInvalidValue;
    }
}
int cuDeviceGetCount(int *count) {
    ENTER;
    *count = 1;
    return 0;
}
int cuDeviceGet(int *dev, int ordinal) {
    ENTER;
    *dev = ordinal;
    return ordinal == 0 ? 0 : kInvalidValue;
}
int cuDeviceGetName(char *name, int length, int) {
    ENTER;
    snprintf(name, static_cast<size_t>(length), "emulated");
    return 0;
}
int cuDeviceGetAttribute(int *value, int attribute, int) {
    ENTER;
    const Device &dev = device();
    switch (attribute) {
    case 16: *value = 6; return 0;           // multiprocessors
    case 75: *value = dev.capability; return 0;
    case 76: *value = 0; return 0;
    // shared memory of a block
    case 97: *value = shared_memory_of_block(); return 0;
    default: return kInvalidValue;
    }
}
int cuDevicePrimaryCtxRetain(void **context, int) {
    ENTER;
    device().retained++;
    *context = &device();
    return 0;
}
// The last one takes the context's streams and memory along: whoever frees them later crashes.
int cuDevicePrimaryCtxRelease_v2(int) {
    ENTER;
    if (--device().retained == 0) {
        const size_t streams = device().stream_count();
        const size_t pieces = device().memory.count() + device().pinned.count();
        if (streams + pieces > 0) {
            fprintf(stderr, "the last context goes before %zu streams and %zu pieces of memory\n",
                    streams, pieces);
            abort();
        }
    }
    return 0;
}

int cuCtxPushCurrent_v2(void *) {
    ENTER;
    depth++;
    return 0;
}
int cuCtxPopCurrent_v2(void **context) {
    LOCKED;
    *context = &device();
    depth--;
    return 0;
}
int cuCtxSynchronize() {
    ENTER;
    // In any mode: it would wait for what is captured.
    if (const int failed = refuse_in_capture()) {
        return failed;
    }
    device().drain_all();
    return device().error;
}

// An image says "so:" and the path of a shared library, which lists kernels when it is loaded, or
// anything else: those that are here already.
int cuLibraryLoadData(void **library, const void *image, void *, void *, unsigned, void *, void *,
                      unsigned) {
    ENTER;
    constexpr char kShared[] = "so:";
    const char *text = static_cast<const char *>(image);
    if (strncmp(text, kShared, sizeof kShared - 1) == 0 &&
        dlopen(text + sizeof kShared - 1, RTLD_NOW) == nullptr) {
        fprintf(stderr, "%s\n", dlerror());
        return kNotFound;
    }
    *library = &kernels();
    return 0;
}
int cuLibraryUnload(void *) {
    ENTER;
    return 0;
}
int cuLibraryGetKernel(const void **kernel, void *, const char *name) {
    ENTER;
    *kernel = find_kernel(name);
    return *kernel != nullptr ? 0 : kNotFound;
}
int cuKernelGetFunction(const void **function, const void *kernel) {
    ENTER;
    *function = kernel;
    return 0;
}
int cuFuncSetAttribute(const void *, int, int) {
    ENTER;
    return 0;
}

// As if every thread had 168 registers.
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *, int threads,
                                                size_t shared_bytes) {
    ENTER;
    const Device &dev = device();
    const int reserved = 1024; // of each block's shared memory, by the system
    const int room = reserved + shared_memory_of_block();
    const int by_registers = 65536 / (168 * threads);
    const int by_memory = room / (reserved + static_cast<int>(shared_bytes));
    *blocks = dev.blocks > 0 ? dev.blocks : std::min(by_registers, by_memory);
    return 0;
}

int cuFuncGetAttribute(int *value, int attribute, const void *) {
    ENTER;
    constexpr int kPtxVersion = 5;
    // As if of each kernel there were the newest that the device takes.
    *value = device().capability * 10;
    return attribute == kPtxVersion ? 0 : kInvalidValue;
}

int cuLaunchKernel(const void *function, unsigned x, unsigned y, unsigned z, unsigned threads,
                   unsigned, unsigned, unsigned shared_bytes, void *stream, void **parameters,
                   void **) {
    ENTER;
    return put_kernel(function, {x, y, z}, threads, shared_bytes, stream, parameters[0], false);
}

int cuLaunchKernelEx(const LaunchConfig *config, const void *function, void **parameters, void **) {
    ENTER;
    constexpr int kSerialization = 6;
    const LaunchConfig &c = *config;
    const bool is_known = c.attribute_count == 1 && c.attributes->id == kSerialization &&
                          c.attributes->value == 1 && device().capability >= 9;
    return is_known ? put_kernel(function, {c.grid[0], c.grid[1], c.grid[2]}, c.block[0],
                                 c.shared_bytes, c.stream, parameters[0], true)
                    : kInvalidValue;
}

// Only what boxes of 16-bit elements in four dimensions need; refuses what the driver refuses.
int cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *address,
                           const uint64_t *extents, const uint64_t *strides, const unsigned *box,
                           const unsigned *element_strides, int interleave, int swizzle, int,
                           int) {
    ENTER;
    constexpr int kU16 = 1, kF16 = 6, kBf16 = 9, kSwizzle128 = 3;
    const bool is_known = (type == kU16 || type == kF16 || type == kBf16) && rank == 4 &&
                          interleave == 0 && swizzle == kSwizzle128;
    const auto begin = reinterpret_cast<uintptr_t>(address);
    if (!is_known || begin % 16 != 0 || reinterpret_cast<uintptr_t>(map) % 64 != 0) {
        return kInvalidValue;
    }
    BoxMap made{BoxMap::kMagic, begin, {}, {}, {}, 1};
    for (unsigned dim = 0; dim < rank; dim++) {
        const bool fits = extents[dim] >= 1 && extents[dim] <= uint64_t{1} << 32 &&
                          box[dim] >= 1 && box[dim] <= 256 && element_strides[dim] == 1;
        const uint64_t stride = dim == 0 ? 16 : strides[dim - 1];
        // Each stride is a multiple of the one before it, as the driver's manual wants it.
        const uint64_t inner = dim < 2 ? 16 : strides[dim - 2];
        if (!fits || stride % inner != 0 || stride >= uint64_t{1} << 40) {
            return kInvalidValue;
        }
        made.extents[dim] = extents[dim];
        made.box[dim] = box[dim];
        if (dim > 0) {
            made.strides[dim - 1] = stride;
        }
    }
    if (box[0] * 2 > 128) {
        return kInvalidValue;
    }
    memcpy(map, &made, sizeof made);
    return 0;
}

int cuLaunchHostFunc(void *stream, void (*function)(void *), void *argument) {
    ENTER;
    return device().put(stream, {[=] { function(argument); }});
}

int cuEventCreate(void **event, unsigned) {
    ENTER;
    *event = new Event;
    return 0;
}
int cuEventDestroy_v2(void *event) {
    ENTER;
    device().drain_all();
    delete static_cast<Event *>(event);
    return 0;
}
// Into a graph it would be an event that nobody outside may ask about: radixkv never does that.
int cuEventRecord(void *handle, void *stream) {
    ENTER;
    if (device().stream(stream)->captured != nullptr) {
        return refuse_in_capture();
    }
    Event *event = static_cast<Event *>(handle);
    const uint64_t number = ++event->recorded;
    return device().put(stream, {[=] { event->reached = std::max(event->reached, number); }});
}
int cuEventSynchronize(void *) {
    ENTER_UNLESS_CAPTURING;
    device().drain_all();
    return device().error;
}
// There is no clock: a millisecond.
int cuEventElapsedTime(float *milliseconds, void *, void *) {
    ENTER;
    *milliseconds = 1.0f;
    return 0;
}
int cuEventQuery(void *handle) {
    ENTER_UNLESS_CAPTURING;
    const Event *event = static_cast<Event *>(handle);
    if (event->reached == event->recorded) {
        return 0;
    }
    device().advance_any();
    return kNotReady;
}
int cuStreamWaitEvent(void *stream, void *handle, unsigned) {
    ENTER;
    if (device().stream(stream)->captured != nullptr) {
        device().invalidate_captures();
        return kCaptureIsolation;
    }
    const Event *event = static_cast<Event *>(handle);
    return device().put(stream, {nullptr, event, event->recorded});
}
int cuStreamCreate(void **stream, unsigned flags) {
    ENTER;
    constexpr unsigned kNonBlocking = 1;
    *stream = device().new_stream((flags & kNonBlocking) == 0);
    return 0;
}
int cuStreamDestroy_v2(void *stream) {
    ENTER;
    device().delete_stream(stream);
    return 0;
}
int cuStreamSynchronize(void *stream) {
    ENTER;
    if (device().stream(stream)->captured != nullptr) {
        return refuse_in_capture();
    }
    device().drain(device().stream(stream));
    return device().error;
}
int cuStreamIsCapturing(void *handle, int *status) {
    ENTER;
    // Harms no capture, as the driver's manual says of it alone.
    if (device().is_unusable(handle)) {
        return kCaptureImplicit;
    }
    const Stream *stream = device().stream(handle);
    *status = stream->captured == nullptr ? 0 : stream->is_invalid ? 2 : 1;
    return 0;
}

// ---- what tests ask for ----

void rkv_emulator_set(int schedule, int landing, unsigned seed, int fault, int is_late) {
    LOCKED;
    device().drain_all();
    machine().settings = {static_cast<Schedule>(schedule), static_cast<Landing>(landing), seed,
                          fault};
    device().is_late = is_late != 0;
}
// Bytes of shared memory that a block has at most; 0: as the capability says.
void rkv_emulator_shared_memory(int bytes) {
    LOCKED;
    device().shared_bytes = bytes;
}
// Whether asynchronous copies may come from, or go to, memory of the host that is not pinned.
void rkv_emulator_pageable(int may) {
    LOCKED;
    device().may_be_pageable = may != 0;
}
// Blocks that a multiprocessor is said to hold at a time; 0: as many as seems right.
void rkv_emulator_occupancy(int blocks) {
    LOCKED;
    device().blocks = blocks;
}
// Blocks of a kernel that were launched so far.
size_t rkv_emulator_launched(const char *name) {
    LOCKED;
    return device().launched[name];
}
// The first number of the compute capability.
void rkv_emulator_capability(int major) {
    LOCKED;
    device().capability = major;
}
// The calls of `name`, after `after` more that succeed, fail so many times with `code`.
void rkv_emulator_fail_times(const char *name, int after, int times, int code) {
    LOCKED;
    device().failing = name;
    device().fail_after = after;
    device().fail_times = times;
    device().fail_code = code;
}
void rkv_emulator_fail(const char *name, int after, int code) {
    rkv_emulator_fail_times(name, after, 1, code);
}
// The device falls over, for good.
void rkv_emulator_lose(int code) {
    LOCKED;
    device().error = code;
}
// Pieces of memory, of the device and pinned, that nobody gave back.
size_t rkv_emulator_memory() {
    LOCKED;
    return device().memory.count() + device().pinned.count();
}
// Whether it is the device's memory.
int rkv_emulator_holds(const void *at, size_t bytes) {
    LOCKED;
    return device().memory.holds(at, bytes);
}
int rkv_emulator_calls(const char *name) {
    LOCKED;
    return device().calls[name];
}
// What the device did wrong, and forgets it.
size_t rkv_emulator_fault(char *text, size_t capacity) {
    LOCKED;
    const std::string message = device().message;
    device().message.clear();
    device().error = 0;
    const size_t length = std::min(capacity, message.size());
    memcpy(text, message.data(), length);
    return length;
}
size_t rkv_emulator_kernel(size_t index, const char **name, unsigned *threads, unsigned *shared) {
    if (index < kernels().size()) {
        const Kernel &kernel = kernels()[index];
        *name = kernel.name;
        *threads = kernel.threads;
        *shared = kernel.shared_bytes;
    }
    return kernels().size();
}
size_t rkv_emulator_sizeof(const char *name) {
    const std::pair<const char *, size_t> sizes[] = {
#define SIZE(type) {#type, sizeof(rkv::type)}
        SIZE(Query),          SIZE(Item),      SIZE(AttentionArguments),
        SIZE(MergeArguments), SIZE(MergeStatesArguments), SIZE(StepCounts),
        SIZE(KvWriteArguments), SIZE(PageCopy), SIZE(Layer),
        SIZE(PageCopyArguments), SIZE(PositionMove), SIZE(PositionMoveArguments),
        SIZE(MirrorRun), SIZE(MirrorArguments),
        SIZE(HopperArguments), SIZE(TreeMask),
    };
    for (const auto &size : sizes) {
        if (strcmp(size.first, name) == 0) {
            return size.second;
        }
    }
    return 0;
}

} // extern "C"
