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

/// Softmax of q.k over the keys so far, times the values.
Vector attend(const Vector& query, const std::vector<Vector>& keys,
              const std::vector<Vector>& values) {
    Vector weights;
    for (const Vector& key : keys)
        weights.push_back(dot(query, key) / std::sqrt(static_cast<double>(query.size())));
    const double most = *std::max_element(weights.begin(), weights.end());
    double sum = 0;
    for (double& weight : weights) sum += weight = std::exp(weight - most);
    Vector out(query.size(), 0);
    for (std::size_t i = 0; i < keys.size(); ++i) add_to(out, values[i], weights[i] / sum);
    return out;
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
    return normalized(x, tensor(name + ".weight", {x.size()}), config_.rms_norm_eps);
}

/// x * cos + rotate_half(x) * sin, where rotate_half puts minus the second half before the first.
Vector Reference::rotated(const Vector& head, std::size_t position) const {
    const std::size_t half = head.size() / 2;
    Vector turned(head.size()), out(head.size());
    for (std::size_t i = 0; i < half; ++i) {
        turned[i] = -head[half + i];
        turned[half + i] = head[i];
    }
    for (std::size_t i = 0; i < head.size(); ++i) {
        const double exponent =
            2 * static_cast<double>(i % half) / static_cast<double>(head.size());
        double frequency = 1 / std::pow(config_.rope_theta, exponent);
        if (const auto& scaling = config_.rope_scaling) {
            const double context = scaling->original_max_position_embeddings;
            const double turns = context * frequency / (2 * std::acos(-1.0));
            const double smooth = (turns - scaling->low_freq_factor) /
                                  (scaling->high_freq_factor - scaling->low_freq_factor);
            const double share = std::clamp(smooth, 0.0, 1.0);
            frequency = share * frequency + (1 - share) * frequency / scaling->factor;
        }
        const double angle = static_cast<double>(position) * frequency;
        out[i] = head[i] * std::cos(angle) + turned[i] * std::sin(angle);
    }
    return out;
}

std::vector<Vector> Reference::heads(const std::string& projection, const std::string& head_norm,
                                     const Vector& x, std::size_t count) const {
    const std::size_t dim = config_.head_dim;
    const Vector all = linear(projection, x, count * dim);
    std::vector<Vector> out;
    for (std::size_t head = 0; head < count; ++head) {
        const auto begin = all.begin() + static_cast<std::ptrdiff_t>(head * dim);
        out.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(dim));
        if (!head_norm.empty() && file_.has(head_norm + ".weight"))
            out.back() = norm(head_norm, out.back());
    }
    return out;
}

std::vector<Vector> Reference::attention(const std::string& prefix,
                                         const std::vector<Vector>& normed) const {
    const std::size_t group = config_.query_head_count / config_.kv_head_count;
    std::vector<std::vector<Vector>> keys(config_.kv_head_count), values(config_.kv_head_count);
    std::vector<Vector> out;
    for (std::size_t position = 0; position < normed.size(); ++position) {
        const Vector& x = normed[position];
        const auto q = heads(prefix + "q_proj", prefix + "q_norm", x, config_.query_head_count);
        const auto k = heads(prefix + "k_proj", prefix + "k_norm", x, config_.kv_head_count);
        const auto v = heads(prefix + "v_proj", "", x, config_.kv_head_count);
        for (std::size_t head = 0; head < config_.kv_head_count; ++head) {
            keys[head].push_back(rotated(k[head], position));
            values[head].push_back(v[head]);
        }
        Vector joined;
        for (std::size_t head = 0; head < config_.query_head_count; ++head) {
            const Vector result =
                attend(rotated(q[head], position), keys[head / group], values[head / group]);
            joined.insert(joined.end(), result.begin(), result.end());
        }
        out.push_back(linear(prefix + "o_proj", joined, x.size()));
    }
    return out;
}

Vector Reference::feed_forward(const std::string& prefix, const Vector& normed) const {
    Vector gate = linear(prefix + "gate_proj", normed, config_.intermediate_size);
    const Vector up = linear(prefix + "up_proj", normed, config_.intermediate_size);
    for (std::size_t i = 0; i < gate.size(); ++i)
        gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    return linear(prefix + "down_proj", gate, normed.size());
}

std::vector<Vector> Reference::logits(const std::vector<std::uint32_t>& tokens) const {
    const std::size_t width = config_.hidden_size;
    const Vector embedding = tensor("model.embed_tokens.weight", {config_.vocab_size, width});
    std::vector<Vector> hidden;
    for (const std::uint32_t id : tokens) {
        const auto begin = embedding.begin() + static_cast<std::ptrdiff_t>(id * width);
        hidden.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(width));
    }
    for (std::size_t layer = 0; layer < config_.layer_count; ++layer) {
        const std::string prefix = "model.layers." + std::to_string(layer) + ".";
        std::vector<Vector> normed;
        for (const Vector& x : hidden) normed.push_back(norm(prefix + "input_layernorm", x));
        const std::vector<Vector> attended = attention(prefix + "self_attn.", normed);
        for (std::size_t i = 0; i < hidden.size(); ++i) {
            add_to(hidden[i], attended[i]);
            const Vector again = norm(prefix + "post_attention_layernorm", hidden[i]);
            add_to(hidden[i], feed_forward(prefix + "mlp.", again));
        }
    }
    const std::string head = config_.tie_word_embeddings ? "model.embed_tokens" : "lm_head";
    std::vector<Vector> out;
    for (const Vector& x : hidden)
        out.push_back(linear(head, norm("model.norm", x), config_.vocab_size));
    return out;
}

}  // namespace test
