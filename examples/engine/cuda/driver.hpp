// The CUDA driver's interface, as much of it as the engine needs, over a libcuda.so that is found
// at run time: this builds without CUDA and starts without a GPU. What is made here gives itself
// back.
#ifndef ENGINE_CUDA_DRIVER_HPP
#define ENGINE_CUDA_DRIVER_HPP

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>

namespace engine::cuda {

/// This machine, or this build, has no GPU to compute on; the text says what is missing.
class Unavailable : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// A function of the driver or of cuBLAS failed; the text has its name and the code.
class Error : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// A shared library that stays loaded until the process ends, as drivers want it.
class SharedLibrary {
public:
    /// The first of these files that can be loaded. Throws Unavailable: there is no `what`.
    SharedLibrary(std::initializer_list<const char*> files, const std::string& what);

    /// Throws Unavailable when there is no such function.
    template <class F> void find(const char* name, F*& function) const {
        function = reinterpret_cast<F*>(address(name));
    }

private:
    void* handle_ = nullptr;
    std::string what_;

    [[nodiscard]] void* address(const char* name) const;
};

/// The driver's functions, with its own types spelled out: CUresult and CUdevice are int,
/// CUdeviceptr is an address, and handles are pointers.
struct Driver {
    /// Loads and initialises it. Throws Unavailable.
    Driver();

    int (*init)(unsigned flags) = nullptr;
    int (*error_name)(int error, const char** name) = nullptr;
    int (*device_count)(int* count) = nullptr;
    int (*device_get)(int* device, int ordinal) = nullptr;
    int (*context_retain)(void** context, int device) = nullptr;
    int (*context_release)(int device) = nullptr;
    int (*context_push)(void* context) = nullptr;
    int (*context_pop)(void** context) = nullptr;
    int (*context_synchronize)() = nullptr;
    int (*library_load)(void** library, const void* image, void* jit_options, void* jit_values,
                        unsigned jit_count, void* options, void* values,
                        unsigned count) = nullptr;
    int (*library_unload)(void* library) = nullptr;
    int (*library_kernel)(void** kernel, void* library, const char* name) = nullptr;
    int (*kernel_function)(void** function, void* kernel) = nullptr;
    int (*launch)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                  unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                  void* stream, void** parameters, void** extra) = nullptr;
    int (*allocate)(void** address, std::size_t bytes) = nullptr;
    int (*free)(void* address) = nullptr;
    int (*allocate_pinned)(void** address, std::size_t bytes, unsigned flags) = nullptr;
    int (*free_pinned)(void* address) = nullptr;
    int (*copy_in)(void* to, const void* from, std::size_t bytes) = nullptr;
    int (*copy_in_async)(void* to, const void* from, std::size_t bytes, void* stream) = nullptr;
    int (*copy_out_async)(void* to, const void* from, std::size_t bytes, void* stream) = nullptr;
    int (*stream_create)(void** stream, unsigned flags) = nullptr;
    int (*stream_destroy)(void* stream) = nullptr;
    int (*stream_synchronize)(void* stream) = nullptr;
    int (*capture_begin)(void* stream, int mode) = nullptr;
    int (*capture_end)(void* stream, void** graph) = nullptr;
    int (*graph_instantiate)(void** executable, void* graph,
                             unsigned long long flags) = nullptr;
    int (*graph_launch)(void* executable, void* stream) = nullptr;
    int (*graph_destroy)(void* graph) = nullptr;
    int (*graph_executable_destroy)(void* executable) = nullptr;

    /// Throws Error unless a call succeeded; `what` is its name.
    void check(int result, const char* what) const;
};

/// The primary context of a device, which radixkv and cuBLAS use too.
class Context {
public:
    /// Throws Unavailable when there is no such device.
    Context(const Driver& driver, int ordinal);
    ~Context();
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;

    [[nodiscard]] const Driver& driver() const noexcept { return driver_; }

    /// The thread's current context while this lives. Everything below needs one, and says so
    /// where it could not be had.
    class Current {
    public:
        explicit Current(const Context& context) noexcept;
        ~Current();
        Current(const Current&) = delete;
        Current& operator=(const Current&) = delete;

    private:
        const Driver& driver_;
        bool is_pushed_;
    };

private:
    const Driver& driver_;
    int device_ = 0;
    void* handle_ = nullptr;
};

class Stream {
public:
    explicit Stream(const Driver& driver);
    ~Stream();
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    [[nodiscard]] void* handle() const noexcept { return handle_; }
    void synchronize() const;
    /// The same; false when the device failed.
    [[nodiscard]] bool settle() const noexcept;

private:
    const Driver& driver_;
    void* handle_ = nullptr;
};

/// Memory of the device, or of the host where the device reaches it. It does not shrink.
class Buffer {
public:
    enum class Place { device, pinned };

    explicit Buffer(const Driver& driver, Place place = Place::device) noexcept
        : driver_(&driver), place_(place) {}
    ~Buffer() { release(); }
    Buffer(Buffer&& other) noexcept;
    Buffer& operator=(Buffer&& other) noexcept;
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    [[nodiscard]] bool empty() const noexcept { return bytes_ == 0; }
    template <class T> [[nodiscard]] T* as() const noexcept { return static_cast<T*>(address_); }
    /// Room for so many T; what was there before is lost when there was less.
    template <class T> T* room(std::size_t count) {
        reserve(count * sizeof(T));
        return as<T>();
    }
    /// Makes room and fills it, of the device. `from` may change afterwards; streams see the bytes
    /// once the context was synchronized.
    void fill(const void* from, std::size_t bytes);

private:
    const Driver* driver_;
    Place place_;
    void* address_ = nullptr;
    std::size_t bytes_ = 0;

    void reserve(std::size_t bytes);
    void release() noexcept;
};

/// Pinned memory for one who has no context of his own.
class PinnedMemory {
public:
    /// Throws Unavailable when there is no driver or device, Error when there is no memory.
    explicit PinnedMemory(std::size_t bytes);
    ~PinnedMemory();
    PinnedMemory(const PinnedMemory&) = delete;
    PinnedMemory& operator=(const PinnedMemory&) = delete;

    [[nodiscard]] void* address() const noexcept { return buffer_->as<void>(); }

private:
    Driver driver_;
    Context context_;
    /// Made and given back while the context is current.
    std::optional<Buffer> buffer_;
};

/// A kernel that is launched with one struct.
template <class Arguments> struct Kernel {
    void* function = nullptr;
};

/// Compiled kernels, loaded.
class KernelLibrary {
public:
    /// `image` is a fatbin.
    KernelLibrary(const Driver& driver, const void* image);
    ~KernelLibrary();
    KernelLibrary(const KernelLibrary&) = delete;
    KernelLibrary& operator=(const KernelLibrary&) = delete;

    template <class Arguments> void find(const char* name, Kernel<Arguments>& kernel) const {
        kernel.function = function(name);
    }
    /// Blocks of `threads` each. The arguments are copied before this returns.
    template <class Arguments>
    void launch(Kernel<Arguments> kernel, std::size_t grid_x, std::size_t grid_y,
                unsigned threads, const Stream& stream, Arguments arguments) const {
        launch_with(kernel.function, grid_x, grid_y, threads, stream, &arguments);
    }

private:
    const Driver& driver_;
    void* handle_ = nullptr;

    [[nodiscard]] void* function(const char* name) const;
    void launch_with(void* function, std::size_t grid_x, std::size_t grid_y, unsigned threads,
                     const Stream& stream, void* arguments) const;
};

}  // namespace engine::cuda

#endif  // ENGINE_CUDA_DRIVER_HPP
