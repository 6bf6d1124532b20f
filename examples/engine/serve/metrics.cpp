#include "serve/metrics.hpp"

#include <cstdio>

namespace engine {

namespace {

std::string short_number(double number) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", number);
    return text;
}

}  // namespace

void Histogram::observe(double seconds) noexcept {
    std::size_t bucket = 0;
    while (bucket < limits.size() && seconds > limits[bucket]) ++bucket;
    counts_[bucket].fetch_add(1, std::memory_order_relaxed);
    double sum = sum_.load(std::memory_order_relaxed);
    while (!sum_.compare_exchange_weak(sum, sum + seconds, std::memory_order_relaxed)) {
    }
}

std::uint64_t Histogram::count() const noexcept {
    std::uint64_t count = 0;
    for (const auto& bucket : counts_) count += bucket.load(std::memory_order_relaxed);
    return count;
}

void Histogram::write(const std::string& name, std::string& out) const {
    out += "# TYPE " + name + " histogram\n";
    std::uint64_t count = 0;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
        count += counts_[i].load(std::memory_order_relaxed);
        const std::string limit = i < limits.size() ? short_number(limits[i]) : "+Inf";
        out += name + "_bucket{le=\"" + limit + "\"} " + std::to_string(count) + "\n";
    }
    // With all digits: rates are differences of sums that grow for weeks.
    out += name + "_sum " + std::to_string(sum_.load(std::memory_order_relaxed)) + "\n";
    out += name + "_count " + std::to_string(count) + "\n";
}

}  // namespace engine
