// Rows of a table on a terminal.
#ifndef ENGINE_BENCH_TABLE_HPP
#define ENGINE_BENCH_TABLE_HPP

#include <string>
#include <vector>

namespace engine {

/// A number by a pattern of printf.
[[nodiscard]] std::string format(const char* pattern, double value);

/// A line with a name and a cell for each column.
[[nodiscard]] std::string table_row(const std::string& name,
                                    const std::vector<std::string>& cells);

}  // namespace engine

#endif  // ENGINE_BENCH_TABLE_HPP
