#include "reference.hpp"

#include <algorithm>
#include <cmath>

namespace test {

namespace {

double dot(const Vector& a, const Vector& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

void add_to(Vector& sum, const Vector& x, double factor = 1) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += factor * x[i];
}

Vector normalized(const Vector& x, const Vector& weight, double epsilon) {
    const double mean_square = dot(x, x) / static_cast<double>(x.size());
    Vector out(x.size());
    for (std::size_t i = 0; i < x.size(); ++i)
        out[i] = x[i] / std::sqrt(mean_square + epsilon) * weight[i];
    return out;
}

/// Softmax of q.k over the keys from `first` on, times the values.
Vector attend(const Vector& query, const std::vector<Vector>& keys,
              const std::vector<Vector>& values, std::size_t first, double scale) {
    Vector weights;
    for (std::size_t i = first; i < keys.size(); ++i)
        weights.push_back(dot(query, keys[i]) * scale);
    const double most = *std::max_element(weights.begin(), weights.end());
    double sum = 0;
    for (double& weight : weights) sum += weight = std::exp(weight - most);
    Vector out(values.front().size(), 0);
    for (std::size_t i = first; i < keys.size(); ++i)
        add_to(out, values[i], weights[i - first] / sum);
    return out;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double silu(double x) { return x * sigmoid(x); }

double gelu_tanh(double x) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

/// Of length one.
Vector direction(const Vector& x) {
    Vector out(x.size(), 0);
    add_to(out, x, 1 / std::sqrt(dot(x, x) + 1e-6));
    return out;
}

Vector part(const Vector& x, std::size_t first, std::size_t count) {
    const auto begin = x.begin() + static_cast<std::ptrdiff_t>(first);
    return Vector(begin, begin + static_cast<std::ptrdiff_t>(count));
}

/// S (1 - b k k^T) a + b v k^T, where S is [values][keys].
void learn(std::vector<Vector>& memory, const Vector& k, const Vector& v, double a, double b) {
    for (std::size_t i = 0; i < v.size(); ++i) {
        const double known = dot(memory[i], k);
        for (std::size_t j = 0; j < k.size(); ++j)
            memory[i][j] = a * (memory[i][j] - b * known * k[j]) + b * v[i] * k[j];
    }
}

}  // namespace

Vector Reference::tensor(const std::string& name, const std::vector<std::size_t>& shape) const {
    const std::vector<float> numbers = file_.get(name, shape).read_all();
    return Vector(numbers.begin(), numbers.end());
}

Vector Reference::linear(const std::string& name, const Vector& x, std::size_t outputs) const {
    const Vector weight = tensor(name + ".weight", {outputs, x.size()});
    Vector out(outputs, 0);
    if (file_.has(name + ".bias")) out = tensor(name + ".bias", {outputs});
    for (std::size_t n = 0; n < outputs; ++n)
        for (std::size_t k = 0; k < x.size(); ++k) out[n] += weight[n * x.size() + k] * x[k];
    return out;
}

Vector Reference::norm(const std::string& name, const Vector& x) const {
    Vector weight = tensor(name + ".weight", {x.size()});
    if (config_.norms_add_one)
        for (double& number : weight) number += 1;
    return normalized(x, weight, config_.rms_norm_eps);
}

double Reference::frequency(std::size_t pair, std::size_t turned, bool in_window) const {
    const double exponent = 2 * static_cast<double>(pair) / static_cast<double>(turned);
    if (in_window) return std::pow(config_.window_rope_theta, -exponent);
    const double plain = std::pow(config_.rope_theta, -exponent);
    if (!config_.rope_scaling) return plain / config_.rope_divisor;
    const engine::Llama3Rope& scaling = *config_.rope_scaling;
    const double turns = scaling.original_max_position_embeddings * plain / (2 * std::acos(-1.0));
    const double smooth = (turns - scaling.low_freq_factor) /
                          (scaling.high_freq_factor - scaling.low_freq_factor);
    const double share = std::clamp(smooth, 0.0, 1.0);
    return share * plain + (1 - share) * plain / scaling.factor;
}

/// x * cos + rotate_half(x) * sin, where rotate_half puts minus the second half before the first;
/// of the numbers that are turned.
Vector Reference::rotated(const Vector& head, std::size_t position, bool in_window) const {
    const std::size_t turned = config_.rotary_dim > 0 ? config_.rotary_dim : head.size();
    Vector out = head;
    for (std::size_t i = 0; i < turned; ++i) {
        const std::size_t half = turned / 2;
        const double other = i < half ? -head[half + i] : head[i - half];
        const double angle = static_cast<double>(position) * frequency(i % half, turned, in_window);
        out[i] = head[i] * std::cos(angle) + other * std::sin(angle);
    }
    return out;
}

std::vector<Vector> Reference::heads(const std::string& projection, const std::string& head_norm,
                                     const Vector& x, std::size_t count, std::size_t dim) const {
    const Vector all = linear(projection, x, count * dim);
    std::vector<Vector> out;
    for (std::size_t head = 0; head < count; ++head) {
        out.push_back(part(all, head * dim, dim));
        if (!head_norm.empty() && file_.has(head_norm + ".weight"))
            out.back() = norm(head_norm, out.back());
    }
    return out;
}

std::vector<Vector> Reference::attention(const std::string& prefix,
                                         const std::vector<Vector>& normed,
                                         bool in_window) const {
    const std::size_t group = config_.query_head_count / config_.kv_head_count;
    const std::size_t dim = config_.head_dim, kv_heads = config_.kv_head_count;
    const double scale = config_.attention_scale > 0
                             ? double{config_.attention_scale}
                             : 1 / std::sqrt(static_cast<double>(dim));
    std::vector<std::vector<Vector>> keys(kv_heads), values(kv_heads);
    std::vector<Vector> out;
    for (std::size_t position = 0; position < normed.size(); ++position) {
        const Vector& x = normed[position];
        const auto q = heads(prefix + "q_proj", "", x, config_.query_head_count,
                             config_.gates_attention ? 2 * dim : dim);
        const auto k = heads(prefix + "k_proj", prefix + "k_norm", x, kv_heads, dim);
        const auto v = heads(prefix + "v_proj", "", x, kv_heads, dim);
        for (std::size_t head = 0; head < kv_heads; ++head) {
            keys[head].push_back(rotated(k[head], position, in_window));
            values[head].push_back(v[head]);
        }
        const std::size_t seen = in_window ? std::min(position + 1, config_.window) : position + 1;
        Vector joined;
        for (std::size_t head = 0; head < config_.query_head_count; ++head) {
            Vector query = part(q[head], 0, dim);
            if (file_.has(prefix + "q_norm.weight")) query = norm(prefix + "q_norm", query);
            Vector result = attend(rotated(query, position, in_window), keys[head / group],
                                   values[head / group], position + 1 - seen, scale);
            for (std::size_t i = dim; i < q[head].size(); ++i)
                result[i - dim] *= sigmoid(q[head][i]);
            joined.insert(joined.end(), result.begin(), result.end());
        }
        out.push_back(linear(prefix + "o_proj", joined, x.size()));
    }
    return out;
}

/// Neighbours are the two coordinates of what is turned.
Vector Reference::turned_pairs(const Vector& head, std::size_t position) const {
    Vector out(head.size());
    for (std::size_t i = 0; i < head.size(); i += 2) {
        const double angle =
            static_cast<double>(position) * frequency(i / 2, head.size(), false);
        out[i] = head[i] * std::cos(angle) - head[i + 1] * std::sin(angle);
        out[i + 1] = head[i + 1] * std::cos(angle) + head[i] * std::sin(angle);
    }
    return out;
}

/// Each head's own keys and values are made of the latent vector; the part of a key that is turned
/// is the same for all.
std::vector<Vector> Reference::latent_attention(const std::string& prefix,
                                                const std::vector<Vector>& normed) const {
    const engine::LatentConfig& latent = config_.latent;
    const std::size_t count = config_.query_head_count, plain = latent.plain_dim;
    const double scale = 1 / std::sqrt(static_cast<double>(plain + latent.rotary_dim));
    std::vector<std::vector<Vector>> keys(count), values(count);
    std::vector<Vector> out;
    for (std::size_t position = 0; position < normed.size(); ++position) {
        const Vector& x = normed[position];
        const auto with_turned = [&](const Vector& first, const Vector& turned) {
            Vector all = first;
            const Vector second = turned_pairs(turned, position);
            all.insert(all.end(), second.begin(), second.end());
            return all;
        };
        const Vector kv = linear(prefix + "kv_a_proj_with_mqa", x,
                                 latent.rank + latent.rotary_dim);
        const Vector compressed = norm(prefix + "kv_a_layernorm", part(kv, 0, latent.rank));
        const auto q = heads(prefix + "q_proj", "", x, count, plain + latent.rotary_dim);
        const auto unfolded =
            heads(prefix + "kv_b_proj", "", compressed, count, plain + latent.value_dim);
        Vector joined;
        for (std::size_t head = 0; head < count; ++head) {
            keys[head].push_back(with_turned(part(unfolded[head], 0, plain),
                                             part(kv, latent.rank, latent.rotary_dim)));
            values[head].push_back(part(unfolded[head], plain, latent.value_dim));
            const Vector query = with_turned(part(q[head], 0, plain),
                                             part(q[head], plain, latent.rotary_dim));
            const Vector result = attend(query, keys[head], values[head], 0, scale);
            joined.insert(joined.end(), result.begin(), result.end());
        }
        out.push_back(linear(prefix + "o_proj", joined, x.size()));
    }
    return out;
}

/// The file has for each key head its q, k, the v of its value heads, and their gates.
std::vector<Vector> Reference::delta_net(const std::string& prefix,
                                         const std::vector<Vector>& normed) const {
    const engine::DeltaNetConfig& delta = config_.delta_net;
    const std::size_t key_dim = delta.key_head_dim, value_dim = delta.value_head_dim;
    const std::size_t shared = delta.value_head_count / delta.key_head_count;
    const std::size_t group = 2 * (key_dim + shared * value_dim), taps = delta.kernel_size;
    const std::size_t channels = 2 * delta.key_width() + delta.value_width();
    const Vector weight = tensor(prefix + "conv1d.weight", {channels, 1, taps});
    const Vector rate = tensor(prefix + "A_log", {delta.value_head_count});
    const Vector time_bias = tensor(prefix + "dt_bias", {delta.value_head_count});
    const Vector out_norm = tensor(prefix + "norm.weight", {value_dim});
    std::vector<std::vector<Vector>> memories(
        delta.value_head_count, std::vector<Vector>(value_dim, Vector(key_dim, 0)));
    std::vector<Vector> inputs, out;
    for (const Vector& x : normed) {
        const Vector qkvz = linear(prefix + "in_proj_qkvz", x, delta.key_head_count * group);
        const Vector ba = linear(prefix + "in_proj_ba", x, 2 * delta.value_head_count);
        Vector input(channels);
        for (std::size_t head = 0; head < delta.key_head_count; ++head) {
            const auto from = qkvz.begin() + static_cast<std::ptrdiff_t>(head * group);
            const auto put = [&](std::size_t first, std::size_t count, std::size_t to) {
                std::copy_n(from + static_cast<std::ptrdiff_t>(first), count,
                            input.begin() + static_cast<std::ptrdiff_t>(to));
            };
            put(0, key_dim, head * key_dim);
            put(key_dim, key_dim, delta.key_width() + head * key_dim);
            put(2 * key_dim, shared * value_dim,
                2 * delta.key_width() + head * shared * value_dim);
        }
        inputs.push_back(input);
        Vector mixed(channels, 0);
        for (std::size_t i = 0; i < channels; ++i) {
            for (std::size_t tap = 0; tap < taps && tap < inputs.size(); ++tap)
                mixed[i] += weight[i * taps + taps - 1 - tap] * inputs[inputs.size() - 1 - tap][i];
            mixed[i] = silu(mixed[i]);
        }
        Vector joined;
        for (std::size_t head = 0; head < delta.value_head_count; ++head) {
            const std::size_t key = head / shared, which = head % shared;
            const Vector q = direction(part(mixed, key * key_dim, key_dim));
            const Vector k = direction(part(mixed, delta.key_width() + key * key_dim, key_dim));
            const Vector v = part(mixed, 2 * delta.key_width() + head * value_dim, value_dim);
            const double learning = sigmoid(ba[key * 2 * shared + which]);
            const double time =
                std::log1p(std::exp(ba[key * 2 * shared + shared + which] + time_bias[head]));
            learn(memories[head], k, v, std::exp(-std::exp(rate[head]) * time), learning);
            Vector answer;
            for (const Vector& row : memories[head])
                answer.push_back(dot(row, q) / std::sqrt(static_cast<double>(key_dim)));
            answer = normalized(answer, out_norm, config_.rms_norm_eps);
            const std::size_t gates = key * group + 2 * key_dim + shared * value_dim;
            for (std::size_t i = 0; i < value_dim; ++i)
                joined.push_back(answer[i] * silu(qkvz[gates + which * value_dim + i]));
        }
        out.push_back(linear(prefix + "out_proj", joined, x.size()));
    }
    return out;
}

Vector Reference::feed_forward(const std::string& prefix, const Vector& normed) const {
    Vector gate = linear(prefix + "gate_proj", normed, config_.intermediate_size);
    const Vector up = linear(prefix + "up_proj", normed, config_.intermediate_size);
    const bool is_silu = config_.activation == engine::Activation::silu;
    for (std::size_t i = 0; i < gate.size(); ++i)
        gate[i] = (is_silu ? silu(gate[i]) : gelu_tanh(gate[i])) * up[i];
    return linear(prefix + "down_proj", gate, normed.size());
}

std::vector<Vector> Reference::logits(const std::vector<std::uint32_t>& tokens) const {
    const std::size_t width = config_.hidden_size;
    const Vector embedding = tensor("model.embed_tokens.weight", {config_.vocab_size, width});
    std::vector<Vector> hidden;
    for (const std::uint32_t id : tokens) {
        hidden.emplace_back(width, 0);
        add_to(hidden.back(), part(embedding, id * width, width), config_.embedding_scale);
    }
    for (std::size_t layer = 0; layer < config_.layer_count; ++layer) {
        const std::string prefix = "model.layers." + std::to_string(layer) + ".";
        const engine::LayerKind kind = config_.layers[layer];
        // Gemma calls the norm behind attention what others call that before the feed-forward part.
        const std::string behind = prefix + "post_attention_layernorm";
        const bool both = config_.norms_outputs;
        std::vector<Vector> normed;
        for (const Vector& x : hidden) normed.push_back(norm(prefix + "input_layernorm", x));
        const std::vector<Vector> attended =
            kind == engine::LayerKind::delta_net
                ? delta_net(prefix + "linear_attn.", normed)
            : config_.is_latent()
                ? latent_attention(prefix + "self_attn.", normed)
                : attention(prefix + "self_attn.", normed, kind == engine::LayerKind::window);
        for (std::size_t i = 0; i < hidden.size(); ++i) {
            add_to(hidden[i], both ? norm(behind, attended[i]) : attended[i]);
            const Vector again =
                norm(both ? prefix + "pre_feedforward_layernorm" : behind, hidden[i]);
            const Vector fed = feed_forward(prefix + "mlp.", again);
            add_to(hidden[i], both ? norm(prefix + "post_feedforward_layernorm", fed) : fed);
        }
    }
    const std::string head = config_.tie_word_embeddings ? "model.embed_tokens" : "lm_head";
    std::vector<Vector> out;
    for (const Vector& x : hidden)
        out.push_back(linear(head, norm("model.norm", x), config_.vocab_size));
    return out;
}

}  // namespace test
