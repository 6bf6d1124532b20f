//go:build radixkv_nopkgconfig

package net

// The header of the working tree; where the library lies is said with CGO_LDFLAGS=-L<folder>.

// #cgo CFLAGS: -I${SRCDIR}/../../../include
// #cgo LDFLAGS: -lradixkv_net
import "C"
