#include "cuda/graph.hpp"

#include <memory>

namespace engine::cuda {

namespace {

/// Other threads may do what a capture forbids.
constexpr int capture_thread_local = 1;

}  // namespace

Graph::Graph(const Driver& driver, const Stream& stream, const std::function<void()>& put)
    : driver_(driver) {
    driver_.check(driver_.capture_begin(stream.handle(), capture_thread_local),
                  "cuStreamBeginCapture");
    void* raw = nullptr;
    try {
        put();
    } catch (...) {
        if (driver_.capture_end(stream.handle(), &raw) == 0) (void)driver_.graph_destroy(raw);
        throw;
    }
    driver_.check(driver_.capture_end(stream.handle(), &raw), "cuStreamEndCapture");
    const std::unique_ptr<void, int (*)(void*)> graph(raw, driver_.graph_destroy);
    driver_.check(driver_.graph_instantiate(&executable_, graph.get(), 0),
                  "cuGraphInstantiateWithFlags");
}

Graph::~Graph() { (void)driver_.graph_executable_destroy(executable_); }

void Graph::launch(const Stream& stream) const {
    driver_.check(driver_.graph_launch(executable_, stream.handle()), "cuGraphLaunch");
}

}  // namespace engine::cuda
