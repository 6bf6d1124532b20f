#include "http/loopback.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <strings.h>

#include <algorithm>
#include <cstdint>

namespace engine {

bool is_loopback(const std::string& host) {
    if (strcasecmp(host.c_str(), "localhost") == 0) return true;
    in6_addr six{};
    if (inet_pton(AF_INET6, host.c_str(), &six) == 1) return IN6_IS_ADDR_LOOPBACK(&six);
    in_addr four{};
    return inet_pton(AF_INET, host.c_str(), &four) == 1 && ntohl(four.s_addr) >> 24 == 127;
}

bool names_loopback(const std::string& host_field) {
    std::string name = host_field;
    const std::size_t colon = name.find_last_of(":]");
    if (colon != std::string::npos && name[colon] == ':') {
        const std::string port = name.substr(colon + 1);
        const bool is_number =
            std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; });
        if (!is_number) return false;
        name.resize(colon);
    }
    if (name.size() > 2 && name.front() == '[' && name.back() == ']')
        name = name.substr(1, name.size() - 2);
    return is_loopback(name);
}

}  // namespace engine
