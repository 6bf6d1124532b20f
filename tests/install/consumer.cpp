// The C++ interface from an installed package.
#include <cstdio>
#include <radixkv.hpp>

int main() {
    std::printf("radixkv %s\n", rkv_version_string());
}
