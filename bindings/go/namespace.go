package radixkv

/*
#include "call.h"

static inline rkvgo_count rkvgo_cache_namespaces(
	const rkv_cache *cache, rkv_namespace *spaces, size_t capacity
) {
	rkvgo_count made = {0};
	made.failure = rkvgo_end(rkv_cache_read_namespaces(
		cache, spaces, sizeof(rkv_namespace), NULL, capacity, &made.count));
	return made;
}
*/
import "C"

import (
	"errors"
	"unsafe"
)

// NamespaceFlags says which fields of a [Namespace] are set.
type NamespaceFlags uint32

const (
	// NamespaceLoRA: LoRAID is set. Without it the namespace is the base model's.
	NamespaceLoRA NamespaceFlags = C.RKV_NAMESPACE_LORA
	// NamespaceImage: ImageDigest is set.
	NamespaceImage NamespaceFlags = C.RKV_NAMESPACE_IMAGE
)

// Namespace separates prefixes: those of different namespaces never share a page. Two are the same
// when all fields are. The zero Namespace is the default one.
type Namespace struct {
	structSize uint32 // set in the copy for C alone
	// Flags says which of LoRAID and ImageDigest are set; see WithLoRA and WithImage.
	Flags NamespaceFlags
	// LoRAID is an adapter, any number, 0 included. Zero without NamespaceLoRA.
	LoRAID uint64
	// Epoch is the version of the weights or of the adapter; raise it when they change.
	Epoch uint64
	// ImageDigest is an image on which all KV depends. Zero without NamespaceImage.
	ImageDigest Digest
	// Salt separates tenants, e.g. a digest of the tenant's name and a secret.
	Salt [32]byte
}

// WithLoRA is the namespace with an adapter.
func (n Namespace) WithLoRA(id uint64) Namespace {
	n.Flags |= NamespaceLoRA
	n.LoRAID = id
	return n
}

// WithImage is the namespace with an image on which all KV depends.
func (n Namespace) WithImage(digest Digest) Namespace {
	n.Flags |= NamespaceImage
	n.ImageDigest = digest
	return n
}

// c is the namespace as C sees it: the fields lie the same, which the lines below demand.
func (n Namespace) c() C.rkv_namespace {
	n.structSize = C.sizeof_rkv_namespace
	return *(*C.rkv_namespace)(unsafe.Pointer(&n))
}

// An index other than zero does not compile.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(Namespace{})-C.sizeof_rkv_namespace]
	_ = [1]struct{}{}[unsafe.Offsetof(Namespace{}.Flags)-unsafe.Offsetof(C.rkv_namespace{}.flags)]
	_ = [1]struct{}{}[unsafe.Offsetof(Namespace{}.LoRAID)-
		unsafe.Offsetof(C.rkv_namespace{}.lora_id)]
	_ = [1]struct{}{}[unsafe.Offsetof(Namespace{}.Epoch)-unsafe.Offsetof(C.rkv_namespace{}.epoch)]
	_ = [1]struct{}{}[unsafe.Offsetof(Namespace{}.ImageDigest)-
		unsafe.Offsetof(C.rkv_namespace{}.image_digest)]
	_ = [1]struct{}{}[unsafe.Offsetof(Namespace{}.Salt)-unsafe.Offsetof(C.rkv_namespace{}.salt)]
)

// Namespaces are those that the cache has pages of, or locks in.
func (c *Cache) Namespaces() ([]Namespace, error) {
	raw, err := c.enter()
	if err != nil {
		return nil, err
	}
	defer c.mu.RUnlock()
	// There may be more between the question for the count and the answer, hence a loop.
	var spaces []Namespace
	for {
		made := C.rkvgo_cache_namespaces(raw,
			(*C.rkv_namespace)(unsafe.Pointer(unsafe.SliceData(spaces))), C.size_t(len(spaces)))
		err := asError(made.failure)
		if err == nil && int(made.count) <= len(spaces) {
			spaces = spaces[:made.count]
			for i := range spaces {
				spaces[i].structSize = 0 // Namespaces compare
			}
			return spaces, nil
		}
		if err != nil && !errors.Is(err, BufferTooSmall) {
			return nil, err
		}
		spaces = make([]Namespace, made.count)
	}
}
