#include "checkpoint/writer.hpp"

#include "checkpoint/config_file.hpp"
#include "checkpoint/tensors.hpp"

#include <nlohmann/json.hpp>

#include <cmath>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace engine {

namespace {

using Json = nlohmann::ordered_json;

/// Numbers near the normal distribution, the same on every machine: sums of integers, where
/// logarithms and cosines might differ in the last bit.
class Random {
public:
    explicit Random(std::uint64_t seed) : state_(seed) {}

    /// Mean 0, variance 1.
    float normal() {
        std::int64_t sum = 0;
        for (int i = 0; i < 3; ++i) {
            const std::uint64_t bits = next();
            for (int part = 0; part < 4; ++part)
                sum += static_cast<std::int64_t>(bits >> (16 * part) & 0xffff);
        }
        // Twelve uniform numbers have the variance 12 / 12.
        return static_cast<float>(static_cast<double>(sum) / 65536.0 - 6.0);
    }

private:
    std::uint64_t state_;

    std::uint64_t next() {  // SplitMix64
        std::uint64_t x = state_ += 0x9e3779b97f4a7c15U;
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
        return x ^ (x >> 31);
    }
};

const char* dtype_name(Dtype dtype) {
    return dtype == Dtype::f32 ? "F32" : dtype == Dtype::f16 ? "F16" : "BF16";
}

/// Round to nearest; the numbers here are small and finite.
std::uint16_t to_bfloat(float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}

std::uint16_t to_half(float value) {
    // Scaled by 2^-112, a float's bits are a half's, 13 places further left; below the smallest
    // normal half too, where both become coarse.
    float scaled = std::fabs(value) * 0x1p-112F;
    std::uint32_t bits;
    std::memcpy(&bits, &scaled, sizeof bits);
    bits = (bits + 0xfffU + (bits >> 13 & 1U)) >> 13;
    return static_cast<std::uint16_t>(bits | (std::signbit(value) ? 0x8000U : 0U));
}

void append(std::string& bytes, float value, Dtype dtype) {
    char raw[4];
    if (dtype == Dtype::f32) {
        std::memcpy(raw, &value, 4);
        bytes.append(raw, 4);
        return;
    }
    const std::uint16_t half = dtype == Dtype::f16 ? to_half(value) : to_bfloat(value);
    std::memcpy(raw, &half, 2);
    bytes.append(raw, 2);
}

std::size_t count_of(const Tensor& tensor) {
    std::size_t count = 1;
    for (const std::size_t size : tensor.shape) count *= size;
    return count;
}

std::string header(const std::vector<Tensor>& tensors, Dtype dtype) {
    Json json;
    json["__metadata__"] = {{"format", "pt"}};
    std::size_t offset = 0;
    for (const Tensor& tensor : tensors) {
        const std::size_t end = offset + count_of(tensor) * dtype_bytes(dtype);
        json[tensor.name] = {{"dtype", dtype_name(dtype)},
                             {"shape", tensor.shape},
                             {"data_offsets", {offset, end}}};
        offset = end;
    }
    std::string text = json.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    return text;
}

std::ofstream open_for_writing(const std::filesystem::path& path) {
    std::ofstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error(path.string() + ": cannot be written");
    return file;
}

void write_weights(const CheckpointSpec& spec, std::ofstream file) {
    const std::vector<Tensor> tensors = tensors_of(spec);
    const std::string text = header(tensors, spec.dtype);
    for (std::size_t i = 0; i < 8; ++i)
        file.put(static_cast<char>(static_cast<std::uint64_t>(text.size()) >> (8 * i) & 0xff));
    file << text;
    Random random(spec.seed);
    for (const Tensor& tensor : tensors) {
        const std::size_t rows = tensor.shape.size() > 1 ? tensor.shape[0] : 1;
        std::string bytes;
        for (std::size_t row = 0; row < rows; ++row) {
            const Spread spread = tensor.spread(row);
            for (std::size_t i = 0; i < count_of(tensor) / rows; ++i)
                append(bytes, spread.mean + spread.deviation * random.normal(), spec.dtype);
        }
        file << bytes;
    }
    file.close();
    if (!file) throw std::runtime_error("model.safetensors: could not be written whole");
}

}  // namespace

void write_checkpoint(const CheckpointSpec& spec, const std::filesystem::path& folder) {
    std::filesystem::create_directories(folder);
    write_weights(spec, open_for_writing(folder / "model.safetensors"));
    std::ofstream config = open_for_writing(folder / "config.json");
    config << config_text(spec);
    config.close();
    if (!config) throw std::runtime_error("config.json: could not be written whole");
}

}  // namespace engine
