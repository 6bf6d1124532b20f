package radixkv

// #include "call.h"
import "C"

// The release and the ABI of the header that this package was built with.
const (
	VersionMajor = C.RKV_VERSION_MAJOR
	VersionMinor = C.RKV_VERSION_MINOR
	VersionPatch = C.RKV_VERSION_PATCH
	ABIVersion   = C.RKV_ABI_VERSION
)

// FeatureSet is what a library was built with.
type FeatureSet uint64

const (
	// FeatureRadixIndex is the radix tree index.
	FeatureRadixIndex FeatureSet = C.RKV_FEATURE_RADIX_INDEX
	// FeatureBlockHashIndex is the block-hash index.
	FeatureBlockHashIndex FeatureSet = C.RKV_FEATURE_BLOCK_HASH_INDEX
	// FeatureCUDA: kernels for NVIDIA GPUs. Whether this machine can run them,
	// [RunnerSupports] says.
	FeatureCUDA FeatureSet = C.RKV_FEATURE_CUDA
)

// LibraryABIVersion is the ABI of the loaded library. One with a smaller number than [ABIVersion]
// lacks functions: [NewPageTable] refuses to work with it.
func LibraryABIVersion() uint32 { return uint32(C.rkv_abi_version()) }

// LibraryVersion is the release of the loaded library, e.g. "0.2.0".
func LibraryVersion() string { return C.GoString(C.rkv_version_string()) }

// LibraryFeatures is what the loaded library was built with.
func LibraryFeatures() FeatureSet { return FeatureSet(C.rkv_features()) }
