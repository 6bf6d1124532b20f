#include "bench/library.hpp"

asm(R"(
.section .rodata
.globl engine_library_begin
.globl engine_library_end
engine_library_begin:
.incbin ")" ENGINE_LIBRARY R"("
engine_library_end:
.previous
)");
extern "C" const char engine_library_begin[];
extern "C" const char engine_library_end[];

namespace engine {

std::string library_text() { return {engine_library_begin, engine_library_end}; }

}  // namespace engine
