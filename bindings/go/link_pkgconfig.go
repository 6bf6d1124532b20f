//go:build !radixkv_nopkgconfig

package radixkv

// #cgo pkg-config: radixkv
import "C"
