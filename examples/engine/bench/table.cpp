#include "bench/table.hpp"

#include <cstdio>

namespace engine {

std::string format(const char* pattern, double value) {
    char text[64];
    std::snprintf(text, sizeof text, pattern, value);
    return text;
}

std::string table_row(const std::string& name, const std::vector<std::string>& cells) {
    std::string text = "  " + name;
    text.resize(33, ' ');
    for (const std::string& cell : cells)
        text += std::string(cell.size() < 14 ? 14 - cell.size() : 1, ' ') + cell;
    return text + "\n";
}

}  // namespace engine
