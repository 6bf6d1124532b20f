// What was put on a stream, recorded once and launched again as a whole: one call of the driver
// instead of one for each kernel of a step.
#ifndef ENGINE_CUDA_GRAPH_HPP
#define ENGINE_CUDA_GRAPH_HPP

#include "cuda/driver.hpp"

#include <functional>

namespace engine::cuda {

class Graph {
public:
    /// Records what `put` puts on the stream; the device does nothing of it yet. Throws what `put`
    /// throws, and Error when the driver cannot record it.
    Graph(const Driver& driver, const Stream& stream, const std::function<void()>& put);
    ~Graph();
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;

    void launch(const Stream& stream) const;

private:
    const Driver& driver_;
    void* executable_ = nullptr;
};

}  // namespace engine::cuda

#endif  // ENGINE_CUDA_GRAPH_HPP
