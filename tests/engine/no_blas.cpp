// B11: the engine as it is where CMake finds no BLAS. compute/linear.cpp is compiled without one
// here, and stands in for the engine's.
#include "fixture.hpp"

using namespace test;

static void b11_without_a_blas_it_is_refused() {
    CHECK(!engine::has_blas());
    const Checkpoint checkpoint;
    engine::EngineConfig config = tiny_config(checkpoint);
    const auto own = TestCore(config).complete(greedy(random_tokens(1, 40), 3));
    CHECK_EQ(own->tokens.size(), 3U);
    config.gemm = engine::Gemm::blas;
    CHECK_REFUSES(std::runtime_error, "--gemm blas: this build has no BLAS", TestCore core(config));
}

int main() {
    RUN(b11_without_a_blas_it_is_refused);
    return 0;
}
