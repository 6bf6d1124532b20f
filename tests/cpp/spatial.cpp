// Coordinates and sizes as bins.
#include "check.hpp"

#include <limits>
#include <vector>

namespace {

// K23
void decodes_bins() {
    std::vector<float> logits(RKV_BIN_COUNT, -1);
    logits[512] = 2;
    const rkv::SpatialValue coord = rkv::spatial_decode(RKV_TOKEN_COORD, logits);
    CHECK_EQ(coord.bin, 512u);
    CHECK_EQ(coord.value, rkv::coord_value(512));
    CHECK_EQ(rkv::spatial_decode(RKV_TOKEN_SIZE, logits).value, rkv::size_value(512));
    logits[3] = std::numeric_limits<float>::quiet_NaN();
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)rkv::spatial_decode(RKV_TOKEN_COORD, logits));
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)rkv::spatial_decode(99, {1.0F}));
}

}  // namespace

int main() { decodes_bins(); }
