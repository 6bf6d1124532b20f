// Package net is libradixkv_net for Go: it publishes KV events of radixkv over ZeroMQ, as vLLM
// does, and has stores of pages on servers that engines share.
//
// It takes bytes, those that radixkv.EventEncoder makes for example, and needs no libradixkv. That
// is why it is a module of its own: who has other sockets links neither.
package net

/*
#include "failure.h"

typedef struct rkvnetgo_created {
	rkvnetgo_failure *failure;
	rkv_net_publisher *publisher;
} rkvnetgo_created;

typedef struct rkvnetgo_published {
	rkvnetgo_failure *failure;
	uint64_t number;
} rkvnetgo_published;

typedef struct rkvnetgo_counted {
	rkvnetgo_failure *failure;
	rkv_net_publisher_stats stats;
} rkvnetgo_counted;

static inline rkvnetgo_created rkvnetgo_create(rkv_net_publisher_config config) {
	rkvnetgo_created made = {0};
	config.struct_size = sizeof config;
	made.failure = rkvnetgo_end(rkv_net_publisher_create(&config, &made.publisher));
	return made;
}

static inline rkvnetgo_published rkvnetgo_publish(
	rkv_net_publisher *publisher, const uint8_t *payload, size_t bytes
) {
	rkvnetgo_published made = {0};
	made.failure = rkvnetgo_end(rkv_net_publisher_publish(publisher, payload, bytes, &made.number));
	return made;
}

static inline rkvnetgo_counted rkvnetgo_read_stats(const rkv_net_publisher *publisher) {
	rkvnetgo_counted made = {0};
	made.stats.struct_size = sizeof made.stats;
	made.failure = rkvnetgo_end(rkv_net_publisher_read_stats(publisher, &made.stats));
	return made;
}
*/
import "C"

import (
	"errors"
	"runtime"
	"strings"
	"sync"
	"unsafe"
)

// ABIVersion is that of the header which this package was built with.
const ABIVersion = C.RKV_NET_ABI_VERSION

// LibraryABIVersion is that of the library which is loaded.
func LibraryABIVersion() uint32 {
	return uint32(C.rkv_net_abi_version())
}

// Status says how a call ended. It is an error: errors.Is(err, net.InvalidArgument).
type Status int32

const (
	// InvalidArgument: an argument is out of range or inconsistent; the message names it.
	InvalidArgument Status = C.RKV_NET_STATUS_INVALID_ARGUMENT
	// InvalidState: the handle is from before fork().
	InvalidState Status = C.RKV_NET_STATUS_INVALID_STATE
	// Network: the system refused a socket or a thread. The message says what it said.
	Network Status = C.RKV_NET_STATUS_NETWORK
	// Internal: a bug of the library; please report it.
	Internal Status = C.RKV_NET_STATUS_INTERNAL
)

func (s Status) Error() string {
	switch s {
	case InvalidArgument:
		return "invalid argument"
	case InvalidState:
		return "invalid state"
	case Network:
		return "network"
	case Internal:
		return "internal error"
	}
	return "unknown status"
}

// Error is a call that failed. It unwraps to its Status.
type Error struct {
	Status  Status
	Message string
}

func (e *Error) Error() string { return e.Message }

// Unwrap is the status.
func (e *Error) Unwrap() error { return e.Status }

// ErrClosed: the publisher or the store was closed.
var ErrClosed = errors.New("radixkv/net: closed")

func asError(failure *C.rkvnetgo_failure) error {
	if failure == nil {
		return nil
	}
	defer C.rkvnetgo_failure_free(failure)
	return &Error{Status(failure.status), C.GoString(failure.message)}
}

// whole refuses a text with a zero byte: C would take what is before it.
func whole(name, text string) error {
	if strings.IndexByte(text, 0) >= 0 {
		return &Error{InvalidArgument, name + " has a zero byte"}
	}
	return nil
}

// PublisherConfig says where to publish. Zero but for Endpoint is what vLLM does.
type PublisherConfig struct {
	// Endpoint is where to publish: "tcp://HOST:PORT", with * as the host for every interface and
	// port 0 for any that is free, or "ipc://PATH".
	Endpoint string
	// ReplayEndpoint is where subscribers ask for batches that they missed, likewise; "" for nowhere.
	ReplayEndpoint string
	// Topic is the first frame of each message, by which subscribers choose.
	Topic string
	// DataParallelRank is added to both ports, unless they are 0; behind a path it is "_dp" and the
	// rank.
	DataParallelRank uint32
	// ReplayBatchLimit is how many batches are kept in memory for replays; 0 for 10,000. Without
	// ReplayEndpoint none are.
	ReplayBatchLimit uint32
	// QueueBatchLimit is how many batches wait for the thread at most; 0 for 100,000.
	QueueBatchLimit uint32
	// Connect: connect to the endpoint, where a subscriber is bound or will be, instead of binding
	// it.
	Connect bool
}

// PublisherStats is what a publisher counted.
type PublisherStats struct {
	// Port is the port that is bound, ReplayPort that of replays; 0 for none.
	Port, ReplayPort uint16
	// PublishedBatchCount counts the batches: the number of the next one.
	PublishedBatchCount uint64
	// PublishedByteCount counts their bytes.
	PublishedByteCount uint64
	// DroppedBatchCount counts those that found the queue full. They can be replayed like all others.
	// What a subscriber has no room for, or what was on its way when it went, is not counted.
	DroppedBatchCount uint64
	// QueuedBatchCount counts the batches in the queue.
	QueuedBatchCount uint64
	// ReplayBatchCount counts the batches that can be replayed.
	ReplayBatchCount uint64
	// ReplayRequestCount counts the requests for a replay.
	ReplayRequestCount uint64
}

// Publisher publishes batches of KV events. All methods may be called by several goroutines at
// once.
type Publisher struct {
	mu  sync.RWMutex
	raw *C.rkv_net_publisher // nil after Close
}

// NewPublisher binds the sockets and starts the library's thread.
func NewPublisher(config PublisherConfig) (*Publisher, error) {
	given := C.rkv_net_publisher_config{
		data_parallel_rank: C.uint32_t(config.DataParallelRank),
		replay_batch_limit: C.uint32_t(config.ReplayBatchLimit),
		queue_batch_limit:  C.uint32_t(config.QueueBatchLimit),
	}
	if config.Connect {
		given.flags = C.RKV_NET_PUBLISHER_CONNECT
	}
	for _, text := range []struct {
		name string
		from string
		to   **C.char
	}{
		{"config.Endpoint", config.Endpoint, &given.endpoint},
		{"config.ReplayEndpoint", config.ReplayEndpoint, &given.replay_endpoint},
		{"config.Topic", config.Topic, &given.topic},
	} {
		if err := whole(text.name, text.from); err != nil {
			return nil, err
		}
		if text.from != "" {
			*text.to = C.CString(text.from)
			defer C.free(unsafe.Pointer(*text.to))
		}
	}
	made := C.rkvnetgo_create(given)
	if err := asError(made.failure); err != nil {
		return nil, err
	}
	p := &Publisher{raw: made.publisher}
	runtime.SetFinalizer(p, (*Publisher).Close) // for those that nobody closed
	return p, nil
}

// Close gives what waits in the queue to the sockets, and ends: a subscriber that reads gets it
// within 100 milliseconds, or not. More than one Close is fine. It waits for calls that are
// running.
func (p *Publisher) Close() error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.raw != nil {
		C.rkv_net_publisher_destroy(p.raw)
		p.raw = nil
		runtime.SetFinalizer(p, nil)
	}
	return nil
}

// enter keeps the publisher open: p.mu.RUnlock ends it.
func (p *Publisher) enter() (*C.rkv_net_publisher, error) {
	if p == nil {
		return nil, ErrClosed
	}
	p.mu.RLock()
	if p.raw == nil {
		p.mu.RUnlock()
		return nil, ErrClosed
	}
	return p.raw, nil
}

// Publish copies a payload and hands it over: it waits for no subscriber. The number of the batch
// comes back, one more than that of the batch before.
func (p *Publisher) Publish(payload []byte) (uint64, error) {
	raw, err := p.enter()
	if err != nil {
		return 0, err
	}
	defer p.mu.RUnlock()
	from := (*C.uint8_t)(unsafe.SliceData(payload))
	made := C.rkvnetgo_publish(raw, from, C.size_t(len(payload)))
	return uint64(made.number), asError(made.failure)
}

// Stats reads what was counted.
func (p *Publisher) Stats() (PublisherStats, error) {
	raw, err := p.enter()
	if err != nil {
		return PublisherStats{}, err
	}
	defer p.mu.RUnlock()
	made := C.rkvnetgo_read_stats(raw)
	if err := asError(made.failure); err != nil {
		return PublisherStats{}, err
	}
	return PublisherStats{
		Port:                uint16(made.stats.port),
		ReplayPort:          uint16(made.stats.replay_port),
		PublishedBatchCount: uint64(made.stats.published_batch_count),
		PublishedByteCount:  uint64(made.stats.published_byte_count),
		DroppedBatchCount:   uint64(made.stats.dropped_batch_count),
		QueuedBatchCount:    uint64(made.stats.queued_batch_count),
		ReplayBatchCount:    uint64(made.stats.replay_batch_count),
		ReplayRequestCount:  uint64(made.stats.replay_request_count),
	}, nil
}
