// The command line.
#ifndef ENGINE_OPTIONS_HPP
#define ENGINE_OPTIONS_HPP

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace engine {

/// A command line that cannot be understood, with the reason.
class UsageError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// Options of the form --name VALUE, or --name alone.
class Options {
public:
    /// Where a value goes.
    Options& text(const std::string& name, const std::string& help, std::string& to);
    Options& number(const std::string& name, const std::string& help, std::uint64_t& to,
                    std::uint64_t least, std::uint64_t most);
    Options& real(const std::string& name, const std::string& help, double& to, double least,
                  double most);
    /// One of some words.
    Options& word(const std::string& name, const std::string& help, std::string& to,
                  std::vector<std::string> words);
    Options& flag(const std::string& name, const std::string& help, bool& to);

    /// Throws UsageError. False when --help was among them.
    [[nodiscard]] bool parse(int count, const char* const* arguments) const;
    /// A line for each option, with its default.
    [[nodiscard]] std::string help() const;

private:
    struct Option {
        std::string name, help, otherwise;
        bool takes_value;
        std::function<void(const std::string&)> set;
    };
    std::vector<Option> options_;
};

/// What main() returns: the program's own status, 2 for a command line that cannot be understood, 1
/// for any other exception. Says on stderr what went wrong.
int run_program(int (*program)(int, char**), int count, char** arguments);

}  // namespace engine

#endif  // ENGINE_OPTIONS_HPP
