// GET /metrics.
#ifndef ENGINE_HTTP_PROMETHEUS_HPP
#define ENGINE_HTTP_PROMETHEUS_HPP

#include "serve/core.hpp"

#include <string>

namespace engine {

/// Counters of the engine, its page table and its cache in Prometheus' text format. Throws
/// rkv::Error when the library can't say.
[[nodiscard]] std::string prometheus_text(const Core& core);

}  // namespace engine

#endif  // ENGINE_HTTP_PROMETHEUS_HPP
