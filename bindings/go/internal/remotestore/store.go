// Package remotestore makes C functions of a Go one, as an engine in Go would that has a remote
// store of its own: for tests, which may not have C themselves.
package remotestore

/*
#include <stdint.h>
#include <stdlib.h>

extern void rkvgoRemoteCall(void *, void *, size_t, size_t, uint64_t);

typedef void call(void *, void *, size_t, size_t, uint64_t);

static inline call *rkvgo_remote_call(void) { return rkvgoRemoteCall; }
*/
import "C"

import (
	"runtime/cgo"
	"unsafe"
)

// Store is what all four functions of a radixkv.RemoteStore have: they call one function of Go.
type Store struct {
	// UserData leads to that function, by way of C's memory: a handle is no pointer.
	UserData unsafe.Pointer
	// Function is the one of C.
	Function unsafe.Pointer
}

// New makes one of a function that gets itemCount values, the radixkv.RemoteItem of each itemSize
// bytes after the one before.
func New(call func(items unsafe.Pointer, itemSize, itemCount int)) Store {
	userData := (*C.uintptr_t)(C.malloc(C.sizeof_uintptr_t))
	*userData = C.uintptr_t(cgo.NewHandle(call))
	return Store{unsafe.Pointer(userData), unsafe.Pointer(C.rkvgo_remote_call())}
}

// Close ends it. Nobody calls it any more.
func (s Store) Close() {
	cgo.Handle(*(*C.uintptr_t)(s.UserData)).Delete()
	C.free(s.UserData)
}

//export rkvgoRemoteCall
func rkvgoRemoteCall(
	userData, items unsafe.Pointer, itemSize, itemCount C.size_t, timeoutMS C.uint64_t,
) {
	call := cgo.Handle(*(*C.uintptr_t)(userData)).Value()
	call.(func(unsafe.Pointer, int, int))(items, int(itemSize), int(itemCount))
}
