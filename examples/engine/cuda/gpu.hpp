// A GPU as the engine uses it: one stream, and what computes on it.
#ifndef ENGINE_CUDA_GPU_HPP
#define ENGINE_CUDA_GPU_HPP

#include "cuda/arguments.hpp"
#include "cuda/cublas.hpp"
#include "cuda/driver.hpp"

#include <optional>

namespace engine::cuda {

/// The engine's kernels by name.
struct Kernels {
    explicit Kernels(const KernelLibrary& library) {
        library.find("engine_embed", embed);
        library.find("engine_norm", norm);
        library.find("engine_add_bias", add_bias);
        library.find("engine_turn_heads", turn_heads);
        library.find("engine_silu_multiply", silu_multiply);
    }
    Kernel<EmbedArguments> embed;
    Kernel<NormArguments> norm;
    Kernel<BiasArguments> add_bias;
    Kernel<TurnArguments> turn_heads;
    Kernel<SiluArguments> silu_multiply;
};

class Gpu {
public:
    /// The first GPU, and kernels from an image. Throws Unavailable that says what is missing, of
    /// the build or of the machine.
    explicit Gpu(const void* image);
    ~Gpu();
    Gpu(const Gpu&) = delete;
    Gpu& operator=(const Gpu&) = delete;

    [[nodiscard]] const Driver& driver() const noexcept { return driver_; }
    [[nodiscard]] const Context& context() const noexcept { return context_; }
    [[nodiscard]] const Stream& stream() const noexcept { return parts_->stream; }
    [[nodiscard]] const KernelLibrary& library() const noexcept { return parts_->library; }
    [[nodiscard]] const Kernels& kernels() const noexcept { return parts_->kernels; }
    [[nodiscard]] const Cublas& cublas() const noexcept { return parts_->cublas; }

private:
    /// What is made and given back while the context is current.
    struct Parts {
        Parts(const Driver& driver, const void* image)
            : stream(driver), library(driver, image), kernels(library), cublas(stream) {}
        Stream stream;
        KernelLibrary library;
        Kernels kernels;
        Cublas cublas;
    };

    Driver driver_;
    Context context_;
    std::optional<Parts> parts_;
};

}  // namespace engine::cuda

#endif  // ENGINE_CUDA_GPU_HPP
