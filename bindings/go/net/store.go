package net

/*
#include "failure.h"
#include <stddef.h>

// rkv_remote_store of radixkv.h, which need not be installed where only this library is.
typedef struct rkvnetgo_remote {
	uint32_t struct_size, reserved;
	void *user_data;
	void (*has)(void), (*get)(void), (*put)(void), (*remove)(void);
} rkvnetgo_remote;

#ifdef RKVNETGO_TREE
#include <radixkv.h>
_Static_assert(offsetof(rkvnetgo_remote, user_data) == offsetof(rkv_remote_store, user_data), "");
_Static_assert(offsetof(rkvnetgo_remote, has) == offsetof(rkv_remote_store, has), "");
_Static_assert(offsetof(rkvnetgo_remote, get) == offsetof(rkv_remote_store, get), "");
_Static_assert(offsetof(rkvnetgo_remote, put) == offsetof(rkv_remote_store, put), "");
_Static_assert(offsetof(rkvnetgo_remote, remove) == offsetof(rkv_remote_store, remove), "");
#endif

typedef struct rkvnetgo_store_created {
	rkvnetgo_failure *failure;
	rkv_net_store *store;
} rkvnetgo_store_created;

typedef struct rkvnetgo_described {
	rkvnetgo_failure *failure;
	void *user_data, *has, *get, *put, *remove;
} rkvnetgo_described;

static inline rkvnetgo_store_created rkvnetgo_create_store(rkv_net_store_config config) {
	rkvnetgo_store_created made = {0};
	config.struct_size = sizeof config;
	made.failure = rkvnetgo_end(rkv_net_store_create(&config, &made.store));
	return made;
}

static inline rkvnetgo_described rkvnetgo_describe(const rkv_net_store *store) {
	rkvnetgo_remote remote = {.struct_size = sizeof remote};
	rkvnetgo_described made = {0};
	made.failure = rkvnetgo_end(rkv_net_store_describe(store, (struct rkv_remote_store *)&remote));
	made.user_data = remote.user_data;
	made.has = (void *)remote.has;
	made.get = (void *)remote.get;
	made.put = (void *)remote.put;
	made.remove = (void *)remote.remove;
	return made;
}
*/
import "C"

import (
	"runtime"
	"sync"
	"unsafe"
)

// StoreConfig says where a store is. Zero but for URL is a good beginning.
type StoreConfig struct {
	// URL is "redis://HOST:PORT", with USER:PASSWORD@ and /DATABASE as they are needed, the same with
	// valkey://, "rediss://" or "valkeys://" over TLS, or "unix://PATH" for its socket;
	// "s3://BUCKET" or "s3://BUCKET/FOLDER".
	URL string
	// Prefix is what each key begins with; "" for "radixkv/".
	Prefix string
	// Endpoint is, for S3, where it is if not at Amazon, as "http://HOST:PORT"; "" for what the
	// environment says.
	Endpoint string
	// TTLSeconds is, for Redis, after how many seconds a page goes that was written; 0 for never.
	TTLSeconds uint64
	// ConnectionCount is, for Redis, how many connections read, and as many write; 0 for 4.
	ConnectionCount uint32
	// CAFile is, for Redis over TLS, a file of certificates, in PEM, of whom the server's may be; ""
	// for those of the system.
	CAFile string
}

// Store is a store of pages that caches share, on a server of Redis or Valkey, or in a bucket of
// S3. All methods may be called by several goroutines at once.
type Store struct {
	mu  sync.RWMutex
	raw *C.rkv_net_store // nil after Close
}

// StoreFunctions are what a cache calls: the fields of radixkv.RemoteStore.
type StoreFunctions struct {
	UserData, Has, Get, Put, Remove unsafe.Pointer
}

// NewStore makes a store. It is not tried whether there is a server: one that comes later is found.
func NewStore(config StoreConfig) (*Store, error) {
	given := C.rkv_net_store_config{
		ttl_s:            C.uint64_t(config.TTLSeconds),
		connection_count: C.uint32_t(config.ConnectionCount),
	}
	for _, text := range []struct {
		name string
		from string
		to   **C.char
	}{
		{"config.URL", config.URL, &given.url},
		{"config.Prefix", config.Prefix, &given.prefix},
		{"config.Endpoint", config.Endpoint, &given.endpoint},
		{"config.CAFile", config.CAFile, &given.ca_file},
	} {
		if err := whole(text.name, text.from); err != nil {
			return nil, err
		}
		if text.from != "" {
			*text.to = C.CString(text.from)
			defer C.free(unsafe.Pointer(*text.to))
		}
	}
	made := C.rkvnetgo_create_store(given)
	if err := asError(made.failure); err != nil {
		return nil, err
	}
	return &Store{raw: made.store}, nil
}

// Close ends the store. The tiers of all caches that have it must be detached before: there is no
// finalizer that could come too early.
func (s *Store) Close() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.raw != nil {
		C.rkv_net_store_destroy(s.raw)
		s.raw = nil
	}
	return nil
}

// Functions are what a cache calls. They are good until Close.
func (s *Store) Functions() (StoreFunctions, error) {
	if s == nil {
		return StoreFunctions{}, ErrClosed
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.raw == nil {
		return StoreFunctions{}, ErrClosed
	}
	made := C.rkvnetgo_describe(s.raw)
	if err := asError(made.failure); err != nil {
		return StoreFunctions{}, err
	}
	return StoreFunctions{made.user_data, made.has, made.get, made.put, made.remove}, nil
}

// LastFailure says why a call to the server failed last; "" when none has, and after Close.
func (s *Store) LastFailure() string {
	if s == nil {
		return ""
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.raw == nil {
		return ""
	}
	text := make([]byte, 1024)
	needed := C.rkv_net_store_last_failure(s.raw, (*C.char)(unsafe.Pointer(&text[0])),
		C.size_t(len(text)))
	runtime.KeepAlive(text)
	return string(text[:max(min(int(needed), len(text)), 1)-1])
}
