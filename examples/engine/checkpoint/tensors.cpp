#include "checkpoint/tensors.hpp"

#include <cmath>
#include <utility>

namespace engine {

namespace {

bool is_printable(std::size_t id) { return id >= ' ' && id <= '~'; }

class Tensors {
public:
    explicit Tensors(const CheckpointSpec& spec) : spec_(spec), model_(spec.model) {
        const std::size_t hidden = model_.hidden_size;
        matrix("model.embed_tokens.weight", model_.vocab_size, hidden, embedding_spread());
        for (std::size_t i = 0; i < model_.layer_count; ++i) layer(i);
        norm("model.norm", hidden);
        if (!model_.tie_word_embeddings)
            matrix("lm_head.weight", model_.vocab_size, hidden, head_spread());
    }
    [[nodiscard]] std::vector<Tensor> take() { return std::move(list_); }

private:
    const CheckpointSpec& spec_;
    const ModelConfig& model_;
    std::vector<Tensor> list_;

    void matrix(const std::string& name, std::size_t rows, std::size_t columns,
                std::function<Spread(std::size_t)> spread) {
        list_.push_back({name, {rows, columns}, std::move(spread)});
    }
    void linear(const std::string& name, std::size_t rows, std::size_t columns, float gain) {
        const float deviation = gain / std::sqrt(static_cast<float>(columns));
        matrix(name + ".weight", rows, columns, [=](std::size_t) { return Spread{0, deviation}; });
    }
    void vector(const std::string& name, std::size_t size, Spread spread) {
        list_.push_back({name, {size}, [=](std::size_t) { return spread; }});
    }
    void norm(const std::string& name, std::size_t size) {
        vector(name + ".weight", size, {model_.norms_add_one ? 0.0F : 1.0F, 0.1F});
    }
    void bias(const std::string& name, std::size_t size) {
        vector(name + ".bias", size, {0, 0.2F});
    }
    [[nodiscard]] std::function<Spread(std::size_t)> embedding_spread() const {
        if (model_.tie_word_embeddings) return head_spread();
        const float wide = 1 / model_.embedding_scale;
        return [wide](std::size_t) { return Spread{0, wide}; };
    }
    /// Printable characters are likely, so that one can read what comes out; an end of text is not,
    /// so that it comes when max_tokens says.
    [[nodiscard]] std::function<Spread(std::size_t)> head_spread() const {
        const float wide = 3 / std::sqrt(static_cast<float>(model_.hidden_size));
        return [wide](std::size_t id) {
            return Spread{0, is_printable(id) ? wide : wide / 10};
        };
    }
    void layer(std::size_t index) {
        const std::string prefix = "model.layers." + std::to_string(index) + ".";
        const std::size_t hidden = model_.hidden_size, inner = model_.intermediate_size;
        if (model_.layers.at(index) == LayerKind::delta_net)
            delta_net(prefix + "linear_attn.");
        else if (model_.is_latent())
            latent_attention(prefix + "self_attn.");
        else
            attention(prefix + "self_attn.");
        linear(prefix + "mlp.gate_proj", inner, hidden, 1);
        linear(prefix + "mlp.up_proj", inner, hidden, 1);
        linear(prefix + "mlp.down_proj", hidden, inner, 2);
        norm(prefix + "input_layernorm", hidden);
        norm(prefix + "post_attention_layernorm", hidden);
        if (!model_.norms_outputs) return;
        norm(prefix + "pre_feedforward_layernorm", hidden);
        norm(prefix + "post_feedforward_layernorm", hidden);
    }
    void attention(const std::string& prefix) {
        const std::size_t hidden = model_.hidden_size, queries = model_.query_width();
        // With gains of one, attention would be an even mean of everything before: the same for all
        // prompts. Queries and keys that are larger look at a few tokens, and the output depends on
        // which.
        linear(prefix + "q_proj", model_.gates_attention ? 2 * queries : queries, hidden, 2);
        linear(prefix + "k_proj", model_.kv_width(), hidden, 2);
        linear(prefix + "v_proj", model_.kv_width(), hidden, 1);
        linear(prefix + "o_proj", hidden, queries, 2);
        if (spec_.qk_norm) {
            norm(prefix + "q_norm", model_.head_dim);
            norm(prefix + "k_norm", model_.head_dim);
        }
        if (spec_.attention_bias) {
            bias(prefix + "q_proj", queries);
            bias(prefix + "k_proj", model_.kv_width());
            bias(prefix + "v_proj", model_.kv_width());
        }
    }
    /// What is made of the latent vector, which is normed, is as large as what is turned.
    void latent_attention(const std::string& prefix) {
        const LatentConfig& latent = model_.latent;
        const std::size_t hidden = model_.hidden_size, heads = model_.query_head_count;
        linear(prefix + "q_proj", heads * (latent.plain_dim + latent.rotary_dim), hidden, 2);
        linear(prefix + "kv_a_proj_with_mqa", latent.rank + latent.rotary_dim, hidden, 2);
        norm(prefix + "kv_a_layernorm", latent.rank);
        linear(prefix + "kv_b_proj", heads * (latent.plain_dim + latent.value_dim), latent.rank,
               2);
        linear(prefix + "o_proj", hidden, heads * latent.value_dim, 2);
    }
    /// Heads forget within tens of tokens, some sooner and some later.
    void delta_net(const std::string& prefix) {
        const DeltaNetConfig& delta = model_.delta_net;
        const std::size_t hidden = model_.hidden_size, heads = delta.value_head_count;
        linear(prefix + "in_proj_qkvz", delta.conv_width() + delta.value_width(), hidden, 1);
        linear(prefix + "in_proj_ba", 2 * heads, hidden, 1);
        linear(prefix + "out_proj", hidden, delta.value_width(), 2);
        const float wide = 1 / std::sqrt(static_cast<float>(delta.kernel_size));
        list_.push_back({prefix + "conv1d.weight",
                         {delta.conv_width(), 1, delta.kernel_size},
                         [=](std::size_t) { return Spread{0, wide}; }});
        vector(prefix + "A_log", heads, {0, 0.3F});
        vector(prefix + "dt_bias", heads, {-4, 1.5F});
        vector(prefix + "norm.weight", delta.value_head_dim, {1, 0.1F});
    }
};

}  // namespace

std::vector<Tensor> tensors_of(const CheckpointSpec& spec) { return Tensors(spec).take(); }

}  // namespace engine
