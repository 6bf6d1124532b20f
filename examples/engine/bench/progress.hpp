// A bar on a terminal, or a line now and then in a file; nothing of what is done at once.
#ifndef ENGINE_BENCH_PROGRESS_HPP
#define ENGINE_BENCH_PROGRESS_HPP

#include <chrono>
#include <cstddef>
#include <string>

namespace engine {

class Progress {
public:
    Progress(std::string label, std::size_t total);
    ~Progress();
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    /// How many are done; draws when it is time.
    void show(std::size_t done);

private:
    std::string label_;
    std::size_t total_, tenths_ = 0;
    bool terminal_, drawn_ = false;
    double last_ = 0;
    std::chrono::steady_clock::time_point start_;
};

}  // namespace engine

#endif  // ENGINE_BENCH_PROGRESS_HPP
