// Writes a checkpoint with random weights: make_checkpoint --out FOLDER
#include "checkpoint/writer.hpp"
#include "options.hpp"

#include <cstdio>
#include <string>

namespace {

int write(int count, char** arguments) {
    std::string out, dtype = "bf16", architecture = "llama";
    // Small enough that a prompt of 1,100 tokens takes some tens of milliseconds on two cores.
    std::uint64_t layers = 2, hidden = 256, inner = 768, heads = 4, kv_heads = 2, head_dim = 64;
    std::uint64_t seed = 1, window = 128;
    bool qk_norm = false, tied = false;
    constexpr std::uint64_t most = 1U << 16;
    engine::Options options;
    options.text("--out", "folder to write", out)
        .word("--architecture", "llama, gemma3, qwen3-next or deepseek-v2: the kinds of layers",
              architecture, {"llama", "gemma3", "qwen3-next", "deepseek-v2"})
        .number("--window", "of the layers of gemma3 that have one", window, 1, most)
        .number("--layers", "layers", layers, 1, most)
        .number("--hidden", "width of the model", hidden, 1, most)
        .number("--inner", "width of the feed-forward layers", inner, 1, most)
        .number("--heads", "query heads", heads, 1, most)
        .number("--kv-heads", "heads of K and V", kv_heads, 1, most)
        .number("--head-dim", "width of a head", head_dim, 2, most)
        .number("--seed", "of the random weights", seed, 0, UINT64_MAX)
        .word("--dtype", "f32, f16 or bf16", dtype, {"f32", "f16", "bf16"})
        .flag("--qk-norm", "norm the heads of q and k, as Qwen3 does", qk_norm)
        .flag("--tied", "use the embedding for the output too", tied);
    if (!options.parse(count, arguments)) {
        std::printf("usage: %s --out FOLDER [option...]\n%s", arguments[0],
                    options.help().c_str());
        return 0;
    }
    if (out.empty()) throw engine::UsageError("--out: say which folder");
    if (heads % kv_heads != 0) throw engine::UsageError("--heads: no multiple of --kv-heads");
    engine::CheckpointSpec spec =
        engine::llama_checkpoint(layers, hidden, inner, heads, kv_heads, head_dim);
    spec.qk_norm = qk_norm;
    if (qk_norm) spec.model.model_type = "qwen3";
    if (architecture == "gemma3") spec = engine::gemma3_checkpoint(spec, window);
    if (architecture == "qwen3-next") spec = engine::qwen3_next_checkpoint(spec);
    if (architecture == "deepseek-v2") spec = engine::deepseek_v2_checkpoint(spec);
    spec.model.tie_word_embeddings = tied;
    spec.dtype = dtype == "f32"   ? engine::Dtype::f32
                 : dtype == "f16" ? engine::Dtype::f16
                                  : engine::Dtype::bf16;
    spec.seed = seed;
    engine::write_checkpoint(spec, out);
    return 0;
}

}  // namespace

int main(int count, char** arguments) { return engine::run_program(write, count, arguments); }
