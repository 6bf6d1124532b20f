// The transformer once more, written from the formulas alone: double precision, no batching, no
// cache, every position anew. It shares no code with the engine but the reader of the files.
#ifndef RADIXKV_TESTS_ENGINE_REFERENCE_HPP
#define RADIXKV_TESTS_ENGINE_REFERENCE_HPP

#include "model/config.hpp"
#include "model/safetensors.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace test {

using Vector = std::vector<double>;

class Reference {
public:
    explicit Reference(const std::filesystem::path& folder)
        : config_(engine::read_model_config(folder / "config.json")), file_(folder) {}

    /// The logits after each token.
    [[nodiscard]] std::vector<Vector> logits(const std::vector<std::uint32_t>& tokens) const;

private:
    engine::ModelConfig config_;
    engine::Safetensors file_;

    [[nodiscard]] Vector tensor(const std::string& name,
                                const std::vector<std::size_t>& shape) const;
    [[nodiscard]] Vector linear(const std::string& name, const Vector& x,
                                std::size_t outputs) const;
    [[nodiscard]] Vector norm(const std::string& name, const Vector& x) const;
    [[nodiscard]] double frequency(std::size_t pair, std::size_t turned, bool in_window) const;
    [[nodiscard]] Vector rotated(const Vector& head, std::size_t position, bool in_window) const;
    [[nodiscard]] std::vector<Vector> heads(const std::string& projection,
                                            const std::string& head_norm, const Vector& x,
                                            std::size_t count, std::size_t dim) const;
    [[nodiscard]] std::vector<Vector> attention(const std::string& prefix,
                                                const std::vector<Vector>& normed,
                                                bool in_window) const;
    [[nodiscard]] Vector turned_pairs(const Vector& head, std::size_t position) const;
    [[nodiscard]] std::vector<Vector> latent_attention(const std::string& prefix,
                                                       const std::vector<Vector>& normed) const;
    [[nodiscard]] std::vector<Vector> delta_net(const std::string& prefix,
                                                const std::vector<Vector>& normed) const;
    [[nodiscard]] Vector feed_forward(const std::string& prefix, const Vector& normed) const;
};

}  // namespace test

#endif  // RADIXKV_TESTS_ENGINE_REFERENCE_HPP
