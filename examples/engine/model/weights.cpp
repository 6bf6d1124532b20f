#include "model/weights.hpp"

#include <cmath>
#include <cstddef>
#include <utility>

namespace engine {

namespace {

/// Rows of a matrix, some of them, one range after another.
class Rows {
public:
    explicit Rows(const HostMatrix& from) : from_(from) { to_.inputs = from.inputs; }

    void take(std::size_t first, std::size_t count) {
        const auto copy = [](const std::vector<float>& from, std::size_t begin, std::size_t size,
                             std::vector<float>& to) {
            if (from.empty()) return;
            const auto at = from.begin() + static_cast<std::ptrdiff_t>(begin);
            to.insert(to.end(), at, at + static_cast<std::ptrdiff_t>(size));
        };
        copy(from_.weight, first * from_.inputs, count * from_.inputs, to_.weight);
        copy(from_.bias, first, count, to_.bias);
        to_.outputs += count;
    }
    /// `count` rows of each of `group_count` groups of `group_rows`, from `first` of a group on.
    void take_of_groups(std::size_t begin, std::size_t group_count, std::size_t group_rows,
                        std::size_t first, std::size_t count) {
        for (std::size_t group = 0; group < group_count; ++group)
            take(begin + group * group_rows + first, count);
    }
    [[nodiscard]] HostMatrix done() { return std::move(to_); }

private:
    const HostMatrix& from_;
    HostMatrix to_;
};

}  // namespace

std::vector<float> WeightReader::vector(const std::string& name, std::size_t size) const {
    return file_.get(name, {size}).read_all();
}

std::vector<float> WeightReader::norm(const std::string& name, std::size_t size) const {
    std::vector<float> weight = vector(name + ".weight", size);
    if (config_.norms_add_one)
        for (float& number : weight) number += 1;
    return weight;
}

std::vector<float> WeightReader::norm_if_present(const std::string& name,
                                                 std::size_t size) const {
    return file_.has(name + ".weight") ? norm(name, size) : std::vector<float>();
}

/// Matrices with the same inputs, stacked: their outputs lie one after the other. A bias that only
/// some have is zero for the others.
HostMatrix WeightReader::stacked(const std::vector<std::pair<std::string, std::size_t>>& parts,
                                 std::size_t inputs) const {
    HostMatrix all;
    all.inputs = inputs;
    bool has_bias = false;
    for (const auto& [name, size] : parts) {
        all.weight.resize(all.weight.size() + size * inputs);
        file_.get(name + ".weight", {size, inputs})
            .read(0, size * inputs, all.weight.data() + all.outputs * inputs);
        const std::vector<float> own =
            file_.has(name + ".bias") ? vector(name + ".bias", size) : std::vector<float>();
        all.bias.insert(all.bias.end(), own.begin(), own.end());
        has_bias = has_bias || !own.empty();
        all.outputs += size;
        all.bias.resize(all.outputs, 0.0F);
    }
    if (!has_bias) all.bias.clear();
    return all;
}

const TensorView& WeightReader::embedding() const {
    return file_.get("model.embed_tokens.weight", {config_.vocab_size, config_.hidden_size});
}

HostLayer WeightReader::layer(std::size_t index) const {
    const std::string prefix = "model.layers." + std::to_string(index) + ".";
    const std::size_t hidden = config_.hidden_size;
    const std::size_t inner = config_.intermediate_size;
    HostLayer layer;
    layer.attention_norm = norm(prefix + "input_layernorm", hidden);
    if (config_.layers.at(index) == LayerKind::delta_net)
        read_delta_net(prefix + "linear_attn.", layer);
    else if (config_.is_latent())
        read_latent_attention(prefix + "self_attn.", layer);
    else
        read_attention(prefix + "self_attn.", layer);
    // Gemma calls by this name what it has behind attention, and has another one here.
    layer.mlp_norm = norm(prefix + "post_attention_layernorm", hidden);
    if (config_.norms_outputs) {
        layer.attention_out_norm = std::exchange(
            layer.mlp_norm, norm(prefix + "pre_feedforward_layernorm", hidden));
        layer.mlp_out_norm = norm(prefix + "post_feedforward_layernorm", hidden);
    }
    layer.gate_up =
        stacked({{prefix + "mlp.gate_proj", inner}, {prefix + "mlp.up_proj", inner}}, hidden);
    layer.down = stacked({{prefix + "mlp.down_proj", hidden}}, inner);
    return layer;
}

void WeightReader::read_attention(const std::string& prefix, HostLayer& layer) const {
    const std::size_t queries = config_.query_width(), keys = config_.kv_width();
    const std::size_t gates = config_.gates_attention ? queries : 0;
    layer.qkv = stacked({{prefix + "q_proj", queries + gates},
                         {prefix + "k_proj", keys},
                         {prefix + "v_proj", keys}},
                        config_.hidden_size);
    if (gates > 0) {
        // Each head of q_proj is followed by its gate.
        const std::size_t heads = config_.query_head_count, dim = config_.head_dim;
        Rows rows(layer.qkv);
        rows.take_of_groups(0, heads, 2 * dim, 0, dim);
        rows.take(2 * queries, 2 * keys);
        rows.take_of_groups(0, heads, 2 * dim, dim, dim);
        layer.qkv = rows.done();
    }
    layer.q_norm = norm_if_present(prefix + "q_norm", config_.head_dim);
    layer.k_norm = norm_if_present(prefix + "k_norm", config_.head_dim);
    layer.attention_out = stacked({{prefix + "o_proj", config_.hidden_size}}, queries);
}

/// The file has matrices that make heads of k and v of a latent vector. Neither is computed: a
/// score is as well the product of the latent vector with q times the one matrix, and the sum of
/// values is the other matrix times the sum of latent vectors. So both are multiplied into their
/// neighbours, once. The two numbers of a pair that is turned lie beside each other in the file.
void WeightReader::read_latent_attention(const std::string& prefix, HostLayer& layer) const {
    const LatentConfig& latent = config_.latent;
    const std::size_t heads = config_.query_head_count, hidden = config_.hidden_size;
    const std::size_t query = latent.plain_dim + latent.rotary_dim;
    const std::size_t unfolded = latent.plain_dim + latent.value_dim;
    const HostMatrix q = stacked({{prefix + "q_proj", heads * query}}, hidden);
    const HostMatrix kv = stacked({{prefix + "kv_a_proj_with_mqa", config_.head_dim}}, hidden);
    const HostMatrix unfold = stacked({{prefix + "kv_b_proj", heads * unfolded}}, latent.rank);
    const HostMatrix out = stacked({{prefix + "o_proj", hidden}}, heads * latent.value_dim);
    layer.k_norm = norm(prefix + "kv_a_layernorm", latent.rank);

    HostMatrix& qkv = layer.qkv;
    qkv = {{}, (heads + 1) * config_.head_dim, hidden, {}};
    const auto take_turned = [&](const HostMatrix& from, std::size_t first) {
        Rows rows(from);
        for (const std::size_t which : {0U, 1U})
            rows.take_of_groups(first, latent.rotary_dim / 2, 2, which, 1);
        const HostMatrix taken = rows.done();
        qkv.weight.insert(qkv.weight.end(), taken.weight.begin(), taken.weight.end());
    };
    for (std::size_t head = 0; head < heads; ++head) {
        std::vector<double> sums(latent.rank * hidden);
        for (std::size_t i = 0; i < latent.plain_dim; ++i) {
            const float* a = unfold.weight.data() + (head * unfolded + i) * latent.rank;
            const float* b = q.weight.data() + (head * query + i) * hidden;
            for (std::size_t r = 0; r < latent.rank; ++r)
                for (std::size_t x = 0; x < hidden; ++x)
                    sums[r * hidden + x] += double{a[r]} * double{b[x]};
        }
        for (const double sum : sums) qkv.weight.push_back(static_cast<float>(sum));
        take_turned(q, head * query + latent.plain_dim);
    }
    const auto end = kv.weight.begin() + static_cast<std::ptrdiff_t>(latent.rank * hidden);
    qkv.weight.insert(qkv.weight.end(), kv.weight.begin(), end);
    take_turned(kv, latent.rank);

    layer.attention_out = {{}, hidden, heads * latent.rank, {}};
    for (std::size_t y = 0; y < hidden; ++y) {
        for (std::size_t head = 0; head < heads; ++head) {
            std::vector<double> sums(latent.rank);
            for (std::size_t i = 0; i < latent.value_dim; ++i) {
                const float a = out.weight[(y * heads + head) * latent.value_dim + i];
                const float* b = unfold.weight.data() +
                                 (head * unfolded + latent.plain_dim + i) * latent.rank;
                for (std::size_t r = 0; r < latent.rank; ++r)
                    sums[r] += double{a} * double{b[r]};
            }
            for (const double sum : sums)
                layer.attention_out.weight.push_back(static_cast<float>(sum));
        }
    }
}

/// The file has for each key head its [q | k | v heads | gates], and in another matrix its [how
/// much, how long] of the v heads.
void WeightReader::read_delta_net(const std::string& prefix, HostLayer& layer) const {
    const DeltaNetConfig& delta = config_.delta_net;
    const std::size_t keys = delta.key_head_count, heads = delta.value_head_count;
    const std::size_t dim = delta.key_head_dim;
    const std::size_t values = delta.values_per_key() * delta.value_head_dim;
    const std::size_t group = 2 * dim + 2 * values, both = keys * group;
    const HostMatrix in = stacked(
        {{prefix + "in_proj_qkvz", both}, {prefix + "in_proj_ba", 2 * heads}}, config_.hidden_size);
    Rows rows(in);
    rows.take_of_groups(0, keys, group, 0, dim);
    rows.take_of_groups(0, keys, group, dim, dim);
    rows.take_of_groups(0, keys, group, 2 * dim, values);
    rows.take_of_groups(0, keys, group, 2 * dim + values, values);
    const std::size_t few = delta.values_per_key();
    rows.take_of_groups(both, keys, 2 * few, 0, few);
    rows.take_of_groups(both, keys, 2 * few, few, few);
    layer.qkv = rows.done();
    layer.attention_out =
        stacked({{prefix + "out_proj", config_.hidden_size}}, delta.value_width());

    const std::size_t width = delta.conv_width(), taps = delta.kernel_size;
    const std::vector<float> by_channel =
        file_.get(prefix + "conv1d.weight", {width, 1, taps}).read_all();
    DeltaNetWeights& own = layer.delta_net;
    own.convolution.resize(width * taps);
    for (std::size_t channel = 0; channel < width; ++channel)
        for (std::size_t tap = 0; tap < taps; ++tap)
            own.convolution[tap * width + channel] = by_channel[channel * taps + tap];
    own.rate = vector(prefix + "A_log", heads);
    for (float& rate : own.rate) rate = std::exp(rate);
    own.time_bias = vector(prefix + "dt_bias", heads);
    own.norm = vector(prefix + "norm.weight", delta.value_head_dim);
}

std::vector<float> WeightReader::norm() const {
    return norm("model.norm", config_.hidden_size);
}

HostMatrix WeightReader::head() const {
    const std::string name = config_.tie_word_embeddings ? "model.embed_tokens" : "lm_head";
    return stacked({{name, config_.vocab_size}}, config_.hidden_size);
}

Weights load_weights(const ModelConfig& config, const Safetensors& file, Gemm gemm) {
    const WeightReader reader(config, file);
    const auto linear = [gemm](HostMatrix matrix) {
        return Linear(std::move(matrix.weight), matrix.outputs, matrix.inputs,
                      std::move(matrix.bias), gemm);
    };
    const auto norm = [](std::vector<float> vector) { return vector; };
    Weights weights;
    weights.embedding = reader.embedding();
    weights.layers.reserve(config.layer_count);
    for (std::size_t i = 0; i < config.layer_count; ++i)
        weights.layers.push_back(
            layer_as<Linear, std::vector<float>>(reader.layer(i), linear, norm));
    weights.norm = reader.norm();
    weights.head = linear(reader.head());
    return weights;
}

}  // namespace engine
