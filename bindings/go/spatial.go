package radixkv

/*
#include "call.h"

#include <radixkv_spatial.h>

typedef struct rkvgo_bin {
	rkvgo_failure *failure;
	uint32_t bin;
} rkvgo_bin;

typedef struct rkvgo_value {
	rkvgo_failure *failure;
	double value;
} rkvgo_value;

typedef struct rkvgo_spatial {
	rkvgo_failure *failure;
	uint32_t bin;
	double value;
} rkvgo_spatial;

static inline rkvgo_bin rkvgo_coord_bin(double value) {
	rkvgo_bin made = {0};
	made.failure = rkvgo_end(rkv_coord_bin(value, &made.bin));
	return made;
}

static inline rkvgo_value rkvgo_coord_value(uint32_t bin) {
	rkvgo_value made = {0};
	made.failure = rkvgo_end(rkv_coord_value(bin, &made.value));
	return made;
}

static inline rkvgo_bin rkvgo_size_bin(double value) {
	rkvgo_bin made = {0};
	made.failure = rkvgo_end(rkv_size_bin(value, &made.bin));
	return made;
}

static inline rkvgo_value rkvgo_size_value(uint32_t bin) {
	rkvgo_value made = {0};
	made.failure = rkvgo_end(rkv_size_value(bin, &made.value));
	return made;
}

static inline rkvgo_spatial rkvgo_spatial_decode(
	uint32_t kind, const float *logits, size_t logit_count
) {
	rkvgo_spatial made = {0};
	made.failure = rkvgo_end(
		rkv_spatial_decode(kind, logits, logit_count, &made.bin, &made.value));
	return made;
}
*/
import "C"

// BinCount is the number of bins of a coordinate, a width or a height.
const BinCount = C.RKV_BIN_COUNT

// CoordBin is the bin of a coordinate: 1024 bins, evenly spaced over [0, 1], ends included.
func CoordBin(value float64) (uint32, error) {
	made := C.rkvgo_coord_bin(C.double(value))
	return uint32(made.bin), asError(made.failure)
}

// CoordValue is the value of a coordinate bin. CoordBin of it is the bin again.
func CoordValue(bin uint32) (float64, error) {
	made := C.rkvgo_coord_value(C.uint32_t(bin))
	return float64(made.value), asError(made.failure)
}

// SizeBin is the bin of a width or a height: 1024 bins, exponentially spaced over [2^-10, 1], ends
// included.
func SizeBin(value float64) (uint32, error) {
	made := C.rkvgo_size_bin(C.double(value))
	return uint32(made.bin), asError(made.failure)
}

// SizeValue is the value of a width or height bin. SizeBin of it is the bin again.
func SizeValue(bin uint32) (float64, error) {
	made := C.rkvgo_size_value(C.uint32_t(bin))
	return float64(made.value), asError(made.failure)
}

// SpatialDecode is the most likely bin of a coordinate or a size, from a model's BinCount logits,
// and its value: CoordValue or SizeValue of it. kind is TokenCoord or TokenSize; of equal logits
// the first counts.
func SpatialDecode(kind TokenKind, logits []float32) (bin uint32, value float64, err error) {
	made := C.rkvgo_spatial_decode(
		C.uint32_t(kind), f32Pointer(logits), C.size_t(len(logits)))
	return uint32(made.bin), float64(made.value), asError(made.failure)
}
