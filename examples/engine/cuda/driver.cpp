#include "cuda/driver.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <utility>

namespace engine::cuda {

namespace {

// CU_STREAM_NON_BLOCKING: work on the legacy default stream, whoever's it is, does not wait for
// ours, nor ours for it.
constexpr unsigned stream_non_blocking = 1;

}  // namespace

SharedLibrary::SharedLibrary(std::initializer_list<const char*> files, const std::string& what)
    : what_(what) {
    std::string reasons;
    for (const char* file : files) {
        // Global, so that cuBLAS finds the driver that is here already.
        handle_ = dlopen(file, RTLD_NOW | RTLD_GLOBAL);
        if (handle_ != nullptr) return;
        const char* reason = dlerror();
        if (reasons.empty() && reason != nullptr) reasons = reason;
    }
    throw Unavailable("there is no " + what_ + " (" + reasons + ")");
}

void* SharedLibrary::address(const char* name) const {
    void* found = dlsym(handle_, name);
    if (found == nullptr) throw Unavailable(what_ + " is too old: it has no " + name);
    return found;
}

Driver::Driver() {
    const SharedLibrary library({"libcuda.so.1", "libcuda.so"}, "CUDA driver");
    library.find("cuInit", init);
    library.find("cuGetErrorName", error_name);
    library.find("cuDeviceGetCount", device_count);
    library.find("cuDeviceGet", device_get);
    library.find("cuDevicePrimaryCtxRetain", context_retain);
    library.find("cuDevicePrimaryCtxRelease_v2", context_release);
    library.find("cuCtxPushCurrent_v2", context_push);
    library.find("cuCtxPopCurrent_v2", context_pop);
    library.find("cuCtxSynchronize", context_synchronize);
    library.find("cuLibraryLoadData", library_load);
    library.find("cuLibraryUnload", library_unload);
    library.find("cuLibraryGetKernel", library_kernel);
    library.find("cuKernelGetFunction", kernel_function);
    library.find("cuLaunchKernel", launch);
    library.find("cuMemAlloc_v2", allocate);
    library.find("cuMemFree_v2", free);
    library.find("cuMemHostAlloc", allocate_pinned);
    library.find("cuMemFreeHost", free_pinned);
    library.find("cuMemcpyHtoD_v2", copy_in);
    library.find("cuMemcpyHtoDAsync_v2", copy_in_async);
    library.find("cuMemcpyDtoHAsync_v2", copy_out_async);
    library.find("cuStreamCreate", stream_create);
    library.find("cuStreamDestroy_v2", stream_destroy);
    library.find("cuStreamSynchronize", stream_synchronize);
    library.find("cuStreamBeginCapture_v2", capture_begin);
    library.find("cuStreamEndCapture", capture_end);
    library.find("cuGraphInstantiateWithFlags", graph_instantiate);
    library.find("cuGraphLaunch", graph_launch);
    library.find("cuGraphDestroy", graph_destroy);
    library.find("cuGraphExecDestroy", graph_executable_destroy);
    try {
        check(init(0), "cuInit");
    } catch (const Error& error) {
        throw Unavailable(std::string("the CUDA driver does not start: ") + error.what());
    }
}

void Driver::check(int result, const char* what) const {
    if (result == 0) return;
    const char* name = nullptr;
    if (error_name(result, &name) != 0 || name == nullptr) name = "an unknown error";
    throw Error(std::string(what) + ": " + name + " (" + std::to_string(result) + ")");
}

Context::Context(const Driver& driver, int ordinal) : driver_(driver) {
    int count = 0;
    driver_.check(driver_.device_count(&count), "cuDeviceGetCount");
    if (ordinal >= count)
        throw Unavailable("there is no GPU " + std::to_string(ordinal) + ", of " +
                          std::to_string(count));
    driver_.check(driver_.device_get(&device_, ordinal), "cuDeviceGet");
    driver_.check(driver_.context_retain(&handle_, device_), "cuDevicePrimaryCtxRetain");
}

// What the driver says about giving things back is not listened to: after a fault it refuses that
// too, and then everything goes with the process.
Context::~Context() { (void)driver_.context_release(device_); }

Context::Current::Current(const Context& context) noexcept
    : driver_(context.driver_), is_pushed_(driver_.context_push(context.handle_) == 0) {}

Context::Current::~Current() {
    void* popped = nullptr;
    if (is_pushed_) (void)driver_.context_pop(&popped);
}

Stream::Stream(const Driver& driver) : driver_(driver) {
    driver_.check(driver_.stream_create(&handle_, stream_non_blocking), "cuStreamCreate");
}

Stream::~Stream() { (void)driver_.stream_destroy(handle_); }

void Stream::synchronize() const {
    driver_.check(driver_.stream_synchronize(handle_), "cuStreamSynchronize");
}

bool Stream::settle() const noexcept { return driver_.stream_synchronize(handle_) == 0; }

Buffer::Buffer(Buffer&& other) noexcept
    : driver_(other.driver_),
      place_(other.place_),
      address_(std::exchange(other.address_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(place_, other.place_);
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

void Buffer::reserve(std::size_t bytes) {
    if (bytes <= bytes_) return;
    // Twice as much, so that steps that grow by a token each don't wait for the driver each.
    const std::size_t more = std::max(bytes, 2 * bytes_);
    release();
    if (place_ == Place::pinned)
        driver_->check(driver_->allocate_pinned(&address_, more, 0), "cuMemHostAlloc");
    else
        driver_->check(driver_->allocate(&address_, more), "cuMemAlloc");
    bytes_ = more;
}

void Buffer::release() noexcept {
    if (bytes_ == 0) return;
    (void)(place_ == Place::pinned ? driver_->free_pinned(address_) : driver_->free(address_));
    address_ = nullptr;
    bytes_ = 0;
}

void Buffer::fill(const void* from, std::size_t bytes) {
    reserve(bytes);
    driver_->check(driver_->copy_in(address_, from, bytes), "cuMemcpyHtoD");
}

PinnedMemory::PinnedMemory(std::size_t bytes) : context_(driver_, 0) {
    const Context::Current current(context_);
    buffer_.emplace(driver_, Buffer::Place::pinned).room<char>(bytes);
}

PinnedMemory::~PinnedMemory() {
    const Context::Current current(context_);
    buffer_.reset();
}

KernelLibrary::KernelLibrary(const Driver& driver, const void* image) : driver_(driver) {
    driver_.check(driver_.library_load(&handle_, image, nullptr, nullptr, 0, nullptr, nullptr, 0),
                  "cuLibraryLoadData");
}

KernelLibrary::~KernelLibrary() { (void)driver_.library_unload(handle_); }

void* KernelLibrary::function(const char* name) const {
    void* kernel = nullptr;
    void* function = nullptr;
    driver_.check(driver_.library_kernel(&kernel, handle_, name), "cuLibraryGetKernel");
    driver_.check(driver_.kernel_function(&function, kernel), "cuKernelGetFunction");
    return function;
}

void KernelLibrary::launch_with(void* function, std::size_t grid_x, std::size_t grid_y,
                                unsigned threads, const Stream& stream, void* arguments) const {
    driver_.check(driver_.launch(function, static_cast<unsigned>(grid_x),
                                 static_cast<unsigned>(grid_y), 1, threads, 1, 1, 0,
                                 stream.handle(), &arguments, nullptr),
                  "cuLaunchKernel");
}

}  // namespace engine::cuda
