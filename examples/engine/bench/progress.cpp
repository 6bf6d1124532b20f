#include "bench/progress.hpp"

#include <unistd.h>

#include <cstdio>
#include <utility>

namespace engine {

Progress::Progress(std::string label, std::size_t total)
    : label_(std::move(label)),
      total_(total > 0 ? total : 1),
      terminal_(isatty(STDERR_FILENO) != 0),
      start_(std::chrono::steady_clock::now()) {}

Progress::~Progress() {
    if (drawn_) std::fputs("\r\033[K", stderr);
}

void Progress::show(std::size_t done) {
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    if (terminal_) {
        if (seconds < 0.5) return;
        drawn_ = true;
        constexpr std::size_t width = 30;
        std::string bar(width, '.');
        bar.replace(0, width * done / total_, width * done / total_, '#');
        std::fprintf(stderr, "\r\033[K[%s] %zu of %zu, %.0f s  %s", bar.c_str(), done, total_,
                     seconds, label_.c_str());
        std::fflush(stderr);
        return;
    }
    const std::size_t tenths = 10 * done / total_;
    if (tenths <= tenths_ || seconds < last_ + 2) return;
    tenths_ = tenths;
    last_ = seconds;
    std::fprintf(stderr, "%3zu %% after %.1f s: %s\n", tenths * 10, seconds, label_.c_str());
}

}  // namespace engine
