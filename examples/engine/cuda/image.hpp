// The engine's compiled kernels.
#ifndef ENGINE_CUDA_IMAGE_HPP
#define ENGINE_CUDA_IMAGE_HPP

namespace engine::cuda {

/// A fatbin that lies in this program; null when it was built without nvcc.
[[nodiscard]] const void* kernel_image() noexcept;

}  // namespace engine::cuda

#endif  // ENGINE_CUDA_IMAGE_HPP
