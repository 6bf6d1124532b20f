// Writes a GGUF file with other weights: those of a quantised model, as floats.
//
//     convert_gguf --model FILE --out FILE --weights f32 | bf16
#include "engine/options.hpp"

#include <llama.h>

#include <cstdio>
#include <stdexcept>
#include <string>

namespace {

int convert(int count, char** words) {
    std::string from, to, weights = "bf16";
    engine::Options options;
    options.text("--model", "a GGUF file", from)
        .text("--out", "the file to write", to)
        .word("--weights", "what they become", weights, {"bf16", "f32"});
    if (!options.parse(count, words)) {
        std::printf("usage: %s --model FILE --out FILE [option...]\n%s", words[0],
                    options.help().c_str());
        return 0;
    }
    if (from.empty()) throw engine::UsageError("--model: say which file");
    if (to.empty()) throw engine::UsageError("--out: say which file");
    llama_log_set(
        [](ggml_log_level level, const char* text, void*) {
            if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
        },
        nullptr);
    llama_model_quantize_params params = llama_model_quantize_default_params();
    params.ftype = weights == "f32" ? LLAMA_FTYPE_ALL_F32 : LLAMA_FTYPE_MOSTLY_BF16;
    params.allow_requantize = true;
    params.pure = true;  // the embedding too
    if (llama_model_quantize(from.c_str(), to.c_str(), &params) != 0)
        throw std::runtime_error(from + ": llama.cpp cannot convert it to " + to);
    return 0;
}

}  // namespace

int main(int count, char** words) { return engine::run_program(convert, count, words); }
