#include "cuda/gpu.hpp"

namespace engine::cuda {

namespace {

Driver driver_for(const void* image) {
    if (image == nullptr)
        throw Unavailable("this build of the engine has no kernels: there was no nvcc (CUDA_HOME)");
    return Driver();
}

}  // namespace

Gpu::Gpu(const void* image) : driver_(driver_for(image)), context_(driver_, 0) {
    const Context::Current current(context_);
    parts_.emplace(driver_, image);
}

Gpu::~Gpu() {
    const Context::Current current(context_);
    parts_.reset();
}

}  // namespace engine::cuda
