#include "cuda/model.hpp"

#include "model/rope.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

namespace engine::cuda {

namespace {

/// To the nearest, of two the even one; as the kernels round.
Bf16 rounded(float value) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffU) > 0x7f800000U) return 0x7fff;
    return static_cast<Bf16>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}

std::vector<Bf16> rounded(const std::vector<float>& numbers) {
    std::vector<Bf16> out(numbers.size());
    std::transform(numbers.begin(), numbers.end(), out.begin(),
                   [](float number) { return rounded(number); });
    return out;
}

/// The kernels read two numbers at once.
void require_even(std::size_t width, const char* name) {
    if (width % 2 != 0)
        throw std::runtime_error(std::string(name) + " " + std::to_string(width) +
                                 ": on a GPU it must be even");
}

std::size_t blocks_for(std::size_t threads) {
    return (threads + block_threads - 1) / block_threads;
}

std::uint32_t narrow(std::size_t number) { return static_cast<std::uint32_t>(number); }

}  // namespace

CudaModel::Memory::Memory(const Driver& driver)
    : embedding(driver),
      norm(driver),
      rope(driver),
      head{Buffer(driver), Buffer(driver)},
      sent(driver, Buffer::Place::pinned),
      arrived(driver),
      hidden(driver),
      normed(driver),
      qkv(driver),
      attended(driver),
      gate_up(driver),
      inner(driver),
      projected(driver),
      logits(driver),
      logits_here(driver, Buffer::Place::pinned) {}

void CudaModel::Release::operator()(Memory* memory) const noexcept {
    const Context::Current current(*context);
    delete memory;
}

CudaModel::CudaModel(const std::filesystem::path& folder, std::size_t position_limit,
                     std::unique_ptr<Gpu> gpu)
    : Model(read_model_config(folder / "config.json"), position_limit),
      gpu_(std::move(gpu)),
      memory_(nullptr, Release{&gpu_->context()}) {
    require_even(config().hidden_size, "hidden_size");
    require_even(config().intermediate_size, "intermediate_size");
    const Context::Current current(gpu_->context());
    memory_.reset(new Memory(gpu_->driver()));
    load(folder);
    // Copies from memory that is not pinned are over for the host before they are for the device,
    // and our stream waits for nobody else's.
    gpu_->driver().check(gpu_->driver().context_synchronize(), "cuCtxSynchronize");
}

void CudaModel::load(const std::filesystem::path& folder) {
    const Safetensors file(folder);
    const WeightReader reader(config(), file);
    const std::vector<Bf16> embedding = rounded(reader.embedding().read_all());
    memory_->embedding.fill(embedding.data(), embedding.size() * sizeof(Bf16));
    for (std::size_t i = 0; i < config().layer_count; ++i)
        memory_->layers.push_back(layer_as<Matrix, Buffer>(
            reader.layer(i), [this](const HostMatrix& matrix) { return on_gpu(matrix); },
            [this](const std::vector<float>& numbers) { return on_gpu(numbers); }));
    memory_->norm = on_gpu(reader.norm());
    memory_->rope = on_gpu(Rope(config(), position_limit()).table());
    if (config().tie_word_embeddings) return;
    memory_->head = on_gpu(reader.head());
    if (!memory_->head.bias.empty())
        throw std::runtime_error("lm_head.bias: not computed on a GPU");
}

Buffer CudaModel::on_gpu(const std::vector<float>& numbers) const {
    Buffer buffer(gpu_->driver());
    if (!numbers.empty()) buffer.fill(numbers.data(), numbers.size() * sizeof(float));
    return buffer;
}

CudaModel::Matrix CudaModel::on_gpu(const HostMatrix& matrix) const {
    Matrix made{Buffer(gpu_->driver()), on_gpu(matrix.bias), matrix.outputs, matrix.inputs};
    const std::vector<Bf16> weight = rounded(matrix.weight);
    made.weight.fill(weight.data(), weight.size() * sizeof(Bf16));
    return made;
}

const float* CudaModel::forward(const StepTokens& tokens, Attention& attention) {
    const Context::Current current(gpu_->context());
    try {
        compute(tokens, attention);
        // The only time that a step waits for the device: the sampler wants the logits, and the
        // next step reuses what this one was sent from.
        gpu_->stream().synchronize();
    } catch (const std::exception& error) {
        // What was put on the stream until then still reads and writes this step's memory, and
        // pages that are about to be somebody else's.
        if (!gpu_->stream().settle()) throw DeviceLost(error.what());
        throw;
    }
    return memory_->logits_here.as<float>();
}

std::array<const void*, 11> CudaModel::Memory::places() const {
    const auto at = [](const Buffer& buffer) { return buffer.as<const void>(); };
    return {at(sent),     at(arrived), at(hidden), at(normed),    at(qkv),   at(attended),
            at(gate_up),  at(inner),   at(projected), at(logits), at(logits_here)};
}

void CudaModel::compute(const StepTokens& tokens, Attention& attention) {
    Inputs inputs = send(tokens);
    const std::size_t repeatable = attention.prepare_to_repeat(gpu_->stream().handle());
    inputs.room = std::max(inputs.rows, repeatable);
    if (repeatable == 0 || !can_record_ || !repeat(tokens, inputs, attention))
        put(tokens, inputs, attention);
}

/// Launches the graph of such a step; false when there is none yet.
bool CudaModel::repeat(const StepTokens& tokens, const Inputs& inputs, Attention& attention) {
    if (memory_->places() != memory_->recorded_at) {
        memory_->graphs.clear();
        memory_->recorded_at = memory_->places();
    }
    const auto [found, is_first] =
        memory_->graphs.try_emplace({tokens.ids.size(), tokens.logit_rows.size()});
    // The first step is computed as any other: memory may grow, and cuBLAS may load kernels.
    if (is_first) return false;
    std::unique_ptr<Graph>& graph = found->second;
    if (!graph) {
        try {
            graph = std::make_unique<Graph>(gpu_->driver(), gpu_->stream(),
                                            [&] { put(tokens, inputs, attention); });
        } catch (const std::exception& error) {
            std::fprintf(stderr, "no CUDA graphs from here on: %s\n", error.what());
            can_record_ = false;
            return false;
        }
    }
    graph->launch(gpu_->stream());
    return true;
}

/// Puts a step on the stream.
void CudaModel::put(const StepTokens& tokens, const Inputs& inputs, Attention& attention) {
    const std::size_t rows = inputs.rows;
    const EmbedArguments embed{inputs.ids, memory_->embedding.as<Bf16>(),
                               memory_->hidden.room<Bf16>(rows * config().hidden_size),
                               narrow(config().hidden_size)};
    gpu_->library().launch(gpu_->kernels().embed, rows, 1, block_threads, gpu_->stream(), embed);
    for (std::size_t layer = 0; layer < memory_->layers.size(); ++layer) {
        attention_block(layer, inputs, attention);
        mlp_block(memory_->layers[layer], rows);
    }
    if (!tokens.logit_rows.empty()) compute_logits(inputs, tokens.logit_rows.size());
}

/// Brings ids, positions and rows to the device, by one copy.
CudaModel::Inputs CudaModel::send(const StepTokens& tokens) {
    const std::size_t rows = tokens.ids.size();
    const std::size_t count = 2 * rows + tokens.logit_rows.size();
    std::uint32_t* sent = memory_->sent.room<std::uint32_t>(count);
    std::uint32_t* at = std::copy(tokens.ids.begin(), tokens.ids.end(), sent);
    at = std::transform(tokens.positions.begin(), tokens.positions.end(), at, narrow);
    std::transform(tokens.logit_rows.begin(), tokens.logit_rows.end(), at, narrow);
    std::uint32_t* arrived = memory_->arrived.room<std::uint32_t>(count);
    const Driver& driver = gpu_->driver();
    driver.check(driver.copy_in_async(arrived, sent, count * sizeof *sent,
                                      gpu_->stream().handle()),
                 "cuMemcpyHtoDAsync");
    return {arrived, arrived + rows, arrived + 2 * rows, rows, rows};
}

/// hidden += delta, and normed = norm(hidden), of all rows or of those that are picked.
void CudaModel::norm(const Buffer& weight, const Bf16* delta, std::size_t rows,
                     const std::uint32_t* picked) {
    const std::size_t width = config().hidden_size;
    const NormArguments norm{memory_->hidden.as<Bf16>(),
                             delta,
                             picked,
                             weight.as<float>(),
                             memory_->normed.room<Bf16>(rows * width),
                             narrow(width),
                             config().rms_norm_eps};
    gpu_->library().launch(gpu_->kernels().norm, rows, 1, block_threads, gpu_->stream(), norm);
}

void CudaModel::apply(const Matrix& matrix, const Buffer& x, std::size_t rows, Bf16* y) {
    gpu_->cublas().multiply(x.as<Bf16>(), rows, matrix.weight.as<Bf16>(), matrix.outputs,
                            matrix.inputs, y);
    if (matrix.bias.empty()) return;
    const BiasArguments bias{y, matrix.bias.as<float>(), narrow(matrix.outputs)};
    gpu_->library().launch(gpu_->kernels().add_bias, rows, blocks_for(matrix.outputs / 2),
                           block_threads, gpu_->stream(), bias);
}

/// projected = out(attention(rope(qkv(norm(hidden))))), once the layer before has been added.
void CudaModel::attention_block(std::size_t layer, const Inputs& inputs, Attention& attention) {
    const LayerOnGpu& weights = memory_->layers[layer];
    const std::size_t rows = inputs.rows;
    norm(weights.attention_norm, layer > 0 ? memory_->projected.as<Bf16>() : nullptr, rows);
    Bf16* qkv = memory_->qkv.room<Bf16>(inputs.room * weights.qkv.outputs);
    apply(weights.qkv, memory_->normed, rows, qkv);
    const std::size_t heads = config().query_head_count + config().kv_head_count;
    const TurnArguments turn{qkv,
                             inputs.positions,
                             memory_->rope.as<float>(),
                             weights.q_norm.as<float>(),
                             weights.k_norm.as<float>(),
                             narrow(weights.qkv.outputs),
                             narrow(config().head_dim),
                             narrow(config().query_head_count),
                             narrow(heads),
                             config().rms_norm_eps};
    gpu_->library().launch(gpu_->kernels().turn_heads, rows, blocks_for(heads * 32),
                           block_threads, gpu_->stream(), turn);
    Bf16* attended = memory_->attended.room<Bf16>(inputs.room * config().query_width());
    const Bf16* k = qkv + config().query_width();
    attention.attend({layer, qkv, k, k + config().kv_width(), weights.qkv.outputs, attended,
                      config().attention_scale, gpu_->stream().handle()});
    apply(weights.attention_out, memory_->attended, rows,
          memory_->projected.room<Bf16>(rows * config().hidden_size));
}

/// hidden += projected, and projected = down(silu(gate(norm(hidden))) * up(norm(hidden))).
void CudaModel::mlp_block(const LayerOnGpu& layer, std::size_t rows) {
    const std::size_t inner = config().intermediate_size;
    norm(layer.mlp_norm, memory_->projected.as<Bf16>(), rows);
    Bf16* gate_up = memory_->gate_up.room<Bf16>(rows * 2 * inner);
    apply(layer.gate_up, memory_->normed, rows, gate_up);
    const SiluArguments silu{gate_up, memory_->inner.room<Bf16>(rows * inner), narrow(inner)};
    gpu_->library().launch(gpu_->kernels().silu_multiply, rows, blocks_for(inner / 2),
                           block_threads, gpu_->stream(), silu);
    apply(layer.down, memory_->inner, rows, memory_->projected.as<Bf16>());
}

/// Only the rows that somebody asked for: the head is the largest matrix of a small model.
void CudaModel::compute_logits(const Inputs& inputs, std::size_t rows) {
    const std::size_t count = rows * config().vocab_size;
    norm(memory_->norm, memory_->projected.as<Bf16>(), rows, inputs.logit_rows);
    const Buffer& head =
        config().tie_word_embeddings ? memory_->embedding : memory_->head.weight;
    float* logits = memory_->logits.room<float>(count);
    gpu_->cublas().multiply(memory_->normed.as<Bf16>(), rows, head.as<Bf16>(),
                            config().vocab_size, config().hidden_size, logits);
    float* here = memory_->logits_here.room<float>(count);
    const Driver& driver = gpu_->driver();
    driver.check(driver.copy_out_async(here, logits, count * sizeof *logits,
                                       gpu_->stream().handle()),
                 "cuMemcpyDtoHAsync");
}

}  // namespace engine::cuda
