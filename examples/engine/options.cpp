#include "options.hpp"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <sstream>
#include <utility>

namespace engine {

namespace {

std::string number_text(double number) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", number);
    return text;
}

std::string number_text(std::uint64_t number) { return std::to_string(number); }

/// Reads all of a text as a number of some type.
template <class T> T parse_number(const std::string& name, const std::string& text) {
    std::istringstream stream(text);
    T value{};
    if (!(stream >> value) || !stream.eof() || text.front() == '-')
        throw UsageError(name + ": " + text + " is not a number");
    return value;
}

template <class T>
void check_range(const std::string& name, T value, T least, T most) {
    if (value >= least && value <= most) return;
    throw UsageError(name + ": from " + number_text(least) + " to " + number_text(most));
}

}  // namespace

Options& Options::text(const std::string& name, const std::string& help, std::string& to) {
    options_.push_back({name, help, to, true, [&to](const std::string& value) { to = value; }});
    return *this;
}

Options& Options::number(const std::string& name, const std::string& help, std::uint64_t& to,
                         std::uint64_t least, std::uint64_t most) {
    options_.push_back({name, help, std::to_string(to), true, [=, &to](const std::string& value) {
                            to = parse_number<std::uint64_t>(name, value);
                            check_range(name, to, least, most);
                        }});
    return *this;
}

Options& Options::real(const std::string& name, const std::string& help, double& to, double least,
                       double most) {
    options_.push_back({name, help, number_text(to), true, [=, &to](const std::string& value) {
                            to = parse_number<double>(name, value);
                            check_range(name, to, least, most);
                        }});
    return *this;
}

Options& Options::word(const std::string& name, const std::string& help, std::string& to,
                       std::vector<std::string> words) {
    options_.push_back({name, help, to, true, [=, &to](const std::string& value) {
                            if (std::find(words.begin(), words.end(), value) == words.end())
                                throw UsageError(name + ": " + value + " is no choice");
                            to = value;
                        }});
    return *this;
}

Options& Options::flag(const std::string& name, const std::string& help, bool& to) {
    options_.push_back({name, help, "", false, [&to](const std::string&) { to = true; }});
    return *this;
}

bool Options::parse(int count, const char* const* arguments) const {
    for (int i = 1; i < count; ++i) {
        const std::string name = arguments[i];
        if (name == "--help" || name == "-h") return false;
        const auto option =
            std::find_if(options_.begin(), options_.end(),
                         [&](const Option& candidate) { return candidate.name == name; });
        if (option == options_.end()) throw UsageError(name + ": there is no such option");
        std::string value;
        if (option->takes_value) {
            if (++i == count || *arguments[i] == '\0') throw UsageError(name + ": needs a value");
            value = arguments[i];
        }
        option->set(value);
    }
    return true;
}

std::string Options::help() const {
    std::string text;
    for (const Option& option : options_) {
        std::string line = "  " + option.name;
        line.resize(std::max<std::size_t>(line.size() + 1, 22), ' ');
        text += line + option.help;
        if (!option.otherwise.empty()) text += " (" + option.otherwise + ")";
        text += "\n";
    }
    return text;
}

int run_program(int (*program)(int, char**), int count, char** arguments) {
    try {
        return program(count, arguments);
    } catch (const UsageError& error) {
        std::fprintf(stderr, "%s (--help lists the options)\n", error.what());
        return 2;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "error: %s\n", error.what());
        return 1;
    }
}

}  // namespace engine
