package radixkv

// #include "call.h"
import "C"

import "unsafe"

// RemoteAnswer is what a remote store says of a value.
type RemoteAnswer uint32

const (
	// RemoteFailed: nothing is known about it.
	RemoteFailed RemoteAnswer = C.RKV_REMOTE_FAILED
	// RemoteDone: it is there; it was read, written or removed.
	RemoteDone RemoteAnswer = C.RKV_REMOTE_DONE
	// RemoteMissing: it is not there.
	RemoteMissing RemoteAnswer = C.RKV_REMOTE_MISSING
)

// RemoteStore is a store of C functions, an rkv_remote_call each, such as rkv_net_store_describe()
// of the network library gives. What they lead to outlives the tiers. UserData is nil or an address
// in C's memory: a cgo.Handle, which is none, goes into such memory.
//
// The functions may call this package, but for what waits for them: detach, flush and Close of the
// cache that they belong to. Beside its Close they get ErrClosed.
type RemoteStore struct {
	UserData unsafe.Pointer
	Has      unsafe.Pointer
	Get      unsafe.Pointer
	Put      unsafe.Pointer
	Remove   unsafe.Pointer
}

// RemoteItem is one value of such a call, as it lies in memory: rkv_remote_item. They lie itemSize
// bytes apart, which may be more than this one has: of a library with a later header.
type RemoteItem struct {
	Key       [32]byte
	Bytes     unsafe.Pointer
	ByteCount uint64
	Answer    RemoteAnswer
	_         uint32
}

func (s RemoteStore) c() C.rkv_remote_store {
	return C.rkv_remote_store{
		user_data: s.UserData,
		has:       C.rkv_remote_call(s.Has),
		get:       C.rkv_remote_call(s.Get),
		put:       C.rkv_remote_call(s.Put),
		remove:    C.rkv_remote_call(s.Remove),
	}
}

// C writes and reads these in place: an index other than zero does not compile.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(RemoteItem{})-C.sizeof_rkv_remote_item]
	_ = [1]struct{}{}[unsafe.Offsetof(RemoteItem{}.Bytes)-unsafe.Offsetof(C.rkv_remote_item{}.bytes)]
	_ = [1]struct{}{}[unsafe.Offsetof(RemoteItem{}.ByteCount)-
		unsafe.Offsetof(C.rkv_remote_item{}.byte_count)]
	_ = [1]struct{}{}[unsafe.Offsetof(RemoteItem{}.Answer)-
		unsafe.Offsetof(C.rkv_remote_item{}.answer)]
)
