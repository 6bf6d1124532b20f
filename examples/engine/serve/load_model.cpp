#include "serve/load_model.hpp"

#include "cuda/image.hpp"
#include "cuda/model.hpp"
#include "model/cpu_model.hpp"

#include <string>
#include <utility>

namespace engine {

namespace {

std::unique_ptr<Model> load_on_gpu(const EngineConfig& config, ThreadPool& pool) {
    std::unique_ptr<cuda::Gpu> gpu;
    try {
        const ModelConfig model = read_model_config(config.model / "config.json");
        if (!model.is_llama_like())
            throw cuda::Unavailable("model_type " + model.model_type +
                                    " is computed on the processor only");
        gpu = std::make_unique<cuda::Gpu>(cuda::kernel_image());
        Kv::require(model, config.kv, pool);
    } catch (const cuda::Unavailable& error) {
        throw cuda::Unavailable(std::string("--device cuda: ") + error.what());
    } catch (const cuda::Error& error) {
        throw cuda::Unavailable(std::string("--device cuda: ") + error.what());
    } catch (const rkv::Error& error) {
        throw cuda::Unavailable(std::string("--device cuda: radixkv: ") + error.what());
    }
    return std::make_unique<cuda::CudaModel>(config.model, config.max_positions, std::move(gpu));
}

}  // namespace

std::unique_ptr<Model> load_model(const EngineConfig& config, ThreadPool& pool) {
    if (config.device == Device::cuda) return load_on_gpu(config, pool);
    return std::make_unique<CpuModel>(config.model, config.max_positions, config.gemm, pool);
}

}  // namespace engine
