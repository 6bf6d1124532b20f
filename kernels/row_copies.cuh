// How a warp copies rows of keys or values from their pages into a tile, 16 bytes at a time: each
// lane looks up one row and tells the others where it begins.
#pragma once
#include "places.cuh"

namespace rkv {

// `kRows` rows, at most 32, of `kChunks` pieces of 16 bytes; lane l has looked up row l % kRows.
template <int kRows, int kChunks>
struct RowCopies {
    static constexpr int kPieces = kRows * kChunks;
    static constexpr bool kWholeRows = 32 % kChunks == 0;

    // Calls `use(row, chunk, exists)` for each piece that this lane copies; all lanes of a warp
    // call it equally often, some perhaps without a piece.
    template <class Use>
    static RKV_DEVICE void pieces(int lane, Use use) {
        RKV_UNROLL
        for (int first = 0; first < kPieces; first += 32) {
            // With whole rows at once a lane always has the same piece of them.
            const int piece = kWholeRows ? lane : first + lane;
            const int row = piece / kChunks + (kWholeRows ? first / kChunks : 0);
            use(row, piece % kChunks, first + 32 <= kPieces || row < kRows);
        }
    }

    // `place`: of this lane's row; negative where it is not wanted. Calls
    // `copy(row, chunk, place, wanted)` for each piece that this lane copies.
    template <class Copy>
    static RKV_DEVICE void each(int64_t place, int lane, Copy copy) {
        pieces(lane, [&](int row, int chunk, bool exists) {
            // All lanes, also those without a piece.
            const int low = shuffle_from(static_cast<int>(place), row & 31);
            const int high = shuffle_from(static_cast<int>(place >> 32), row & 31);
            const bool wanted = high >= 0;
            if (!exists || (!wanted && fault(Fault::kTailNotZeroed))) {
                return;
            }
            const int64_t at = static_cast<int64_t>(high) << 32 | static_cast<uint32_t>(low);
            copy(row, chunk, wanted ? at : 0, wanted);
        });
    }

    // The same where rows are no power of two long: eight pieces of each row at a time, one round
    // after another, for all at once would take too many registers.
    template <class Copy>
    static RKV_DEVICE void each_in_rounds(int64_t place, int lane, Copy copy) {
        if constexpr (kWholeRows) {
            each(place, lane, copy);
        } else {
            RKV_NO_UNROLL
            for (int first = 0; first < kChunks; first += 8) {
                RowCopies<kRows, 8>::each(
                    place, lane, [&](int row, int chunk, int64_t at, bool wanted) {
                        copy(row, first + chunk, at, wanted);
                    });
            }
        }
    }

    static_assert(kRows <= 32, "a lane for each row");
};

} // namespace rkv
