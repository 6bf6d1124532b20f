//go:build !radixkv_nopkgconfig

package net

// #cgo pkg-config: radixkv_net
import "C"
