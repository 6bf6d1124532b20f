// Compares rounds, and tells what came out.
#ifndef LLAMA_CPP_REPORT_HPP
#define LLAMA_CPP_REPORT_HPP

#include "chat.hpp"

#include <string>
#include <vector>

namespace example {

/// Rounds with the same limits, so that each request has a median time.
struct Series {
    std::string name;
    std::vector<Round> rounds;

    /// The first round, with median times in the place of its own.
    [[nodiscard]] Round median() const;
};

/// Whether all rounds generated the same tokens, from the same probabilities to the last bit where
/// both computed them. Says what differs, if anything does.
[[nodiscard]] std::string difference(const std::vector<Series>& all);

/// Each request of two series side by side.
void print_requests(const Round& without, const Round& with);
/// A line for each series.
void print_summary(const std::vector<Series>& all);

}  // namespace example

#endif  // LLAMA_CPP_REPORT_HPP
