//go:build radixkv_nopkgconfig

package radixkv

// The header of the working tree; where the library lies is said with CGO_LDFLAGS=-L<folder>.

// #cgo CFLAGS: -I${SRCDIR}/../../include
// #cgo LDFLAGS: -lradixkv
import "C"
