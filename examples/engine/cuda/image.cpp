#include "cuda/image.hpp"

#ifdef ENGINE_KERNEL_IMAGE

// The assembler takes the file as it is: no tool is needed to make it an array first.
asm(R"(
.section .rodata
.balign 64
.globl engine_kernel_image
engine_kernel_image:
.incbin ")" ENGINE_KERNEL_IMAGE R"("
.previous
)");
extern "C" const unsigned char engine_kernel_image[];

#endif

namespace engine::cuda {

const void* kernel_image() noexcept {
#ifdef ENGINE_KERNEL_IMAGE
    return engine_kernel_image;
#else
    return nullptr;
#endif
}

}  // namespace engine::cuda
