#include "page/page.hpp"

// The assembler takes the file as it is: no tool is needed to make it an array first.
asm(R"(
.section .rodata
.globl engine_page_begin
.globl engine_page_end
engine_page_begin:
.incbin ")" ENGINE_PAGE R"("
engine_page_end:
.previous
)");
extern "C" const char engine_page_begin[];
extern "C" const char engine_page_end[];

namespace engine {

std::string page_html(const std::string& nonce) {
    std::string html(engine_page_begin, engine_page_end);
    const std::string place = "{{nonce}}";
    for (std::size_t at = 0; (at = html.find(place, at)) != std::string::npos;)
        html.replace(at, place.size(), nonce);
    return html;
}

}  // namespace engine
