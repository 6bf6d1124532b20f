// How fast llama.cpp computes a model, measured like examples/engine:
//
//     llama_cpp_speed --model FILE.gguf
#include "sequence.hpp"

#include "bench/speed.hpp"
#include "options.hpp"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

using Prompts = std::vector<std::vector<std::uint32_t>>;

class LlamaGenerator final : public engine::Generator {
public:
    LlamaGenerator(const example::Model& model, std::uint64_t most_sequences, std::size_t longest,
                   std::uint64_t threads)
        : vocab_size_(model.vocabulary_size()) {
        llama_context_params params = llama_context_default_params();
        params.n_seq_max = static_cast<std::uint32_t>(most_sequences);
        params.n_ctx = static_cast<std::uint32_t>(most_sequences * longest);
        params.n_threads = params.n_threads_batch = static_cast<std::int32_t>(threads);
        context_.reset(llama_init_from_model(model.get(), params));
        if (context_ == nullptr) throw std::runtime_error("llama.cpp cannot make a context");
        batch_ = llama_batch_init(static_cast<std::int32_t>(params.n_batch), 0, 1);
    }
    ~LlamaGenerator() override { llama_batch_free(batch_); }
    LlamaGenerator(const LlamaGenerator&) = delete;
    LlamaGenerator& operator=(const LlamaGenerator&) = delete;

    void read(const Prompts& prompts) override {
        llama_memory_clear(llama_get_memory(context_.get()), false);
        next_.assign(prompts.size(), {});
        const std::size_t most = llama_n_batch(context_.get());
        for (std::size_t row = 0; row < prompts.size(); ++row) {
            const std::vector<std::uint32_t>& prompt = prompts[row];
            for (std::size_t first = 0; first < prompt.size(); first += most) {
                const std::size_t end = std::min(first + most, prompt.size());
                for (std::size_t i = first; i < end; ++i)
                    add(prompt[i], i, row, i + 1 == prompt.size());
                decode();
            }
            next_[row] = {predict(-1), prompt.size()};
        }
    }

    void step() override {
        for (std::size_t row = 0; row < next_.size(); ++row)
            add(next_[row].token, next_[row].position, row, true);
        decode();
        for (std::size_t row = 0; row < next_.size(); ++row)
            next_[row] = {predict(static_cast<std::int32_t>(row)), next_[row].position + 1};
    }

private:
    struct Free {
        void operator()(llama_context* context) const noexcept { llama_free(context); }
    };
    struct Next {
        std::uint32_t token = 0;
        std::size_t position = 0;
    };
    std::unique_ptr<llama_context, Free> context_;
    std::size_t vocab_size_;
    llama_batch batch_{};
    std::vector<Next> next_;

    void add(std::uint32_t token, std::size_t position, std::size_t row, bool predicts) {
        const std::int32_t at = batch_.n_tokens++;
        batch_.token[at] = static_cast<llama_token>(token);
        batch_.pos[at] = static_cast<llama_pos>(position);
        batch_.n_seq_id[at] = 1;
        batch_.seq_id[at][0] = static_cast<llama_seq_id>(row);
        batch_.logits[at] = predicts;
    }
    void decode() {
        if (llama_decode(context_.get(), batch_) != 0)
            throw std::runtime_error("llama.cpp cannot read these tokens");
        batch_.n_tokens = 0;
    }
    [[nodiscard]] std::uint32_t predict(std::int32_t at) const {
        const float* logits = llama_get_logits_ith(context_.get(), at);
        return static_cast<std::uint32_t>(std::max_element(logits, logits + vocab_size_) - logits);
    }
};

int speed(int count, char** words) {
    std::string file;
    std::uint64_t threads = std::max(1U, std::thread::hardware_concurrency());
    engine::SpeedOptions measured;
    engine::Options options;
    options.text("--model", "a GGUF file", file)
        .number("--threads", "of llama.cpp", threads, 1, 1024);
    measured.add_to(options);
    if (!options.parse(count, words)) {
        std::printf("usage: %s --model FILE [option...]\n%s", words[0], options.help().c_str());
        return 0;
    }
    if (file.empty()) throw engine::UsageError("--model: say which file");
    llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
    const example::Model model(file);
    LlamaGenerator generator(model, measured.batch, measured.longest(), threads);
    print_speed(generator, model.vocabulary_size(), measured);
    return 0;
}

}  // namespace

int main(int count, char** words) { return engine::run_program(speed, count, words); }
