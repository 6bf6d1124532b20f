// The time to first token of each request, as a picture.
#ifndef ENGINE_BENCH_CHART_HPP
#define ENGINE_BENCH_CHART_HPP

#include "bench/report.hpp"

#include <string>

namespace engine {

/// SVG: a mark for each request and run; time on a logarithmic scale.
[[nodiscard]] std::string chart_svg(const BenchReport& report);

}  // namespace engine

#endif  // ENGINE_BENCH_CHART_HPP
