#include "model/safetensors.hpp"

#include "model/json.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <set>
#include <stdexcept>
#include <utility>

namespace engine {

namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse(const std::string& what) { throw std::runtime_error(what); }

float half_to_float(std::uint16_t half) {
    const std::uint32_t sign = std::uint32_t{half} >> 15 << 31;
    const std::uint32_t magnitude = half & 0x7fffU;
    if (magnitude >= 0x7c00U) {  // infinities and NaN keep their payload
        const std::uint32_t bits = sign | 0x7f800000U | (magnitude & 0x3ffU) << 13;
        float value;
        std::memcpy(&value, &bits, sizeof value);
        return value;
    }
    // Read with a float's exponent range, the number is 2^112 times too small, exactly.
    const std::uint32_t bits = magnitude << 13;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    value *= 0x1p112F;
    return sign != 0 ? -value : value;
}

float bfloat_to_float(std::uint16_t bfloat) {
    const std::uint32_t bits = std::uint32_t{bfloat} << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

bool dtype_named(const std::string& name, Dtype& dtype) {
    if (name == "F32") dtype = Dtype::f32;
    else if (name == "F16") dtype = Dtype::f16;
    else if (name == "BF16") dtype = Dtype::bf16;
    else return false;
    return true;
}

std::string shape_text(const std::vector<std::size_t>& shape) {
    std::string text = "[";
    for (const std::size_t size : shape)
        text += (text.size() > 1 ? ", " : "") + std::to_string(size);
    return text + "]";
}

/// Reads one entry of a header; `data` are the bytes after the header.
TensorView parse_tensor(const Json& entry, Dtype dtype, const std::byte* data,
                        std::size_t data_bytes) {
    TensorView tensor;
    tensor.dtype = dtype;
    std::size_t bytes = dtype_bytes(dtype);
    for (const Json& size : entry.at("shape")) {
        if (!size.is_number_unsigned()) refuse("its shape is not a list of sizes");
        tensor.shape.push_back(size.get<std::size_t>());
        if (__builtin_mul_overflow(bytes, tensor.shape.back(), &bytes))
            refuse("its shape is too large");
    }
    const Json& offsets = entry.at("data_offsets");
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
        !offsets[1].is_number_unsigned())
        refuse("its data_offsets are not two numbers");
    const auto begin = offsets[0].get<std::size_t>();
    const auto end = offsets[1].get<std::size_t>();
    if (begin > end || end > data_bytes) refuse("its data lies outside of the file");
    if (end - begin != bytes) refuse("its data has not the size that its shape says");
    tensor.data = data + begin;
    return tensor;
}

}  // namespace

std::size_t dtype_bytes(Dtype dtype) noexcept { return dtype == Dtype::f32 ? 4 : 2; }

std::size_t TensorView::count() const {
    std::size_t count = 1;
    for (const std::size_t size : shape) count *= size;
    return count;
}

void TensorView::read(std::size_t first, std::size_t number, float* to) const {
    const std::byte* from = data + first * dtype_bytes(dtype);
    if (dtype == Dtype::f32) {
        std::memcpy(to, from, number * sizeof(float));
        return;
    }
    for (std::size_t i = 0; i < number; ++i) {
        std::uint16_t bits;
        std::memcpy(&bits, from + i * sizeof bits, sizeof bits);
        to[i] = dtype == Dtype::f16 ? half_to_float(bits) : bfloat_to_float(bits);
    }
}

std::vector<float> TensorView::read_all() const {
    std::vector<float> numbers(count());
    read(0, numbers.size(), numbers.data());
    return numbers;
}

/// A whole file, read-only.
class Safetensors::Mapping {
public:
    explicit Mapping(const std::filesystem::path& path) {
        const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
        if (file < 0) refuse(path.string() + ": " + std::strerror(errno));
        struct stat status {};
        void* address = MAP_FAILED;
        if (fstat(file, &status) == 0 && status.st_size > 0)
            address = mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ,
                           MAP_PRIVATE, file, 0);
        close(file);
        if (address == MAP_FAILED) refuse(path.string() + ": empty, or cannot be mapped");
        data_ = static_cast<const std::byte*>(address);
        bytes_ = static_cast<std::size_t>(status.st_size);
    }
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    ~Mapping() { munmap(const_cast<std::byte*>(data_), bytes_); }

    [[nodiscard]] const std::byte* data() const noexcept { return data_; }
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

private:
    const std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
};

std::vector<std::filesystem::path> weight_files(const std::filesystem::path& folder) {
    const std::filesystem::path index = folder / "model.safetensors.index.json";
    if (!std::filesystem::exists(index)) return {folder / "model.safetensors"};
    std::set<std::string> names;
    try {
        std::ifstream stream(index, std::ios::binary);
        const Json json = parse_json(stream);
        for (const auto& [tensor, file] : json.at("weight_map").items())
            names.insert(file.get<std::string>());
    } catch (const std::exception& error) {
        refuse(index.string() + ": " + error.what());
    }
    std::vector<std::filesystem::path> files;
    for (const std::string& name : names) {
        if (name.find('/') != std::string::npos)
            refuse(index.string() + ": " + name + " leads out of the folder");
        files.push_back(folder / name);
    }
    return files;
}

Safetensors::Safetensors(const std::filesystem::path& folder) {
    for (const std::filesystem::path& file : weight_files(folder)) add_file(file);
}

/// A file is the length of its header in eight little-endian bytes, the header in JSON, and data.
void Safetensors::add_file(const std::filesystem::path& path) {
    auto file = std::make_shared<const Mapping>(path);
    std::uint64_t header_bytes = 0;
    if (file->bytes() < sizeof header_bytes) refuse(path.string() + ": too short for a header");
    for (std::size_t i = 0; i < sizeof header_bytes; ++i)
        header_bytes |= std::uint64_t{std::to_integer<std::uint8_t>(file->data()[i])} << (8 * i);
    if (header_bytes > file->bytes() - sizeof header_bytes)
        refuse(path.string() + ": its header is longer than the file");
    const auto* header = reinterpret_cast<const char*>(file->data()) + sizeof header_bytes;
    const std::byte* data = file->data() + sizeof header_bytes + header_bytes;
    const std::size_t data_bytes = file->bytes() - sizeof header_bytes - header_bytes;
    std::string name = "header";
    try {
        const Json json = parse_json(header, header + header_bytes);
        if (!json.is_object()) refuse("not an object");
        for (const auto& [key, entry] : json.items()) {
            name = key;
            if (key == "__metadata__") continue;
            // Other types may lie in the file as long as nobody asks for them.
            Dtype dtype;
            if (!dtype_named(entry.at("dtype").get<std::string>(), dtype)) continue;
            tensors_[key] = parse_tensor(entry, dtype, data, data_bytes);
        }
    } catch (const std::exception& error) {
        refuse(path.string() + ": " + name + ": " + error.what());
    }
    files_.push_back(std::move(file));
}

const TensorView& Safetensors::get(const std::string& name,
                                   const std::vector<std::size_t>& shape) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) refuse("the weights lack " + name + " in F32, F16 or BF16");
    if (found->second.shape != shape)
        refuse(name + " has the shape " + shape_text(found->second.shape) + ", not " +
               shape_text(shape) + " as config.json says");
    return found->second;
}

}  // namespace engine
