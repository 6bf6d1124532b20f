// Weights in safetensors files, mapped into memory: a page of a file is read when it is used.
#ifndef ENGINE_MODEL_SAFETENSORS_HPP
#define ENGINE_MODEL_SAFETENSORS_HPP

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace engine {

enum class Dtype { f32, f16, bf16 };

[[nodiscard]] std::size_t dtype_bytes(Dtype dtype) noexcept;

/// A tensor in a mapped file; row-major, at any alignment.
struct TensorView {
    Dtype dtype = Dtype::f32;
    std::vector<std::size_t> shape;
    const std::byte* data = nullptr;

    [[nodiscard]] std::size_t count() const;
    /// Writes `number` of its numbers, from index `first` on, as floats.
    void read(std::size_t first, std::size_t number, float* to) const;
    [[nodiscard]] std::vector<float> read_all() const;
};

/// The files with the weights of a model folder, by name: model.safetensors, or those that
/// model.safetensors.index.json names. Throws std::runtime_error when that file is wrong.
[[nodiscard]] std::vector<std::filesystem::path> weight_files(const std::filesystem::path& folder);

/// The tensors of a model folder.
class Safetensors {
public:
    /// Throws std::runtime_error that names the file, and the tensor, that is wrong.
    explicit Safetensors(const std::filesystem::path& folder);

    [[nodiscard]] bool has(const std::string& name) const { return tensors_.count(name) != 0; }
    /// The tensor, which must have this shape: else std::runtime_error.
    [[nodiscard]] const TensorView& get(const std::string& name,
                                        const std::vector<std::size_t>& shape) const;

private:
    class Mapping;
    std::vector<std::shared_ptr<const Mapping>> files_;
    std::map<std::string, TensorView> tensors_;

    void add_file(const std::filesystem::path& path);
};

}  // namespace engine

#endif  // ENGINE_MODEL_SAFETENSORS_HPP
