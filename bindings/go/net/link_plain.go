//go:build radixkv_nopkgconfig

package net

// The headers of the working tree, with the one that store.go is compared with; where the library
// lies is said with CGO_LDFLAGS=-L<folder>.

// #cgo CFLAGS: -I${SRCDIR}/../../../include -DRKVNETGO_TREE
// #cgo LDFLAGS: -lradixkv_net
import "C"
