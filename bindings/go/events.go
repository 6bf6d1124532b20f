package radixkv

/*
#include "call.h"

#include <stdlib.h>

typedef struct rkvgo_event_encoder_made {
	rkvgo_failure *failure;
	rkv_event_encoder *encoder;
} rkvgo_event_encoder_made;

// A payload that had no room is no failure here: the caller makes room.
typedef struct rkvgo_event_batch_made {
	rkvgo_failure *failure;
	bool too_small;
	rkv_event_batch batch;
} rkvgo_event_batch_made;

static inline rkvgo_event_encoder_made rkvgo_event_encoder_create(
	const rkv_cache *cache, rkv_event_encoder_config config
) {
	rkvgo_event_encoder_made made = {0};
	config.struct_size = sizeof config;
	made.failure = rkvgo_end(rkv_event_encoder_create(cache, &config, &made.encoder));
	return made;
}

static inline rkvgo_failure *rkvgo_event_encoder_name_namespace(
	rkv_event_encoder *encoder, rkv_namespace space, const char *lora_name, const char *cache_salt
) {
	return rkvgo_end(rkv_event_encoder_name_namespace(encoder, &space, lora_name, cache_salt));
}

static inline rkvgo_event_batch_made rkvgo_event_encoder_encode(
	rkv_event_encoder *encoder, double timestamp, uint8_t *buffer, size_t capacity
) {
	rkvgo_event_batch_made made = {0};
	made.batch.struct_size = sizeof made.batch;
	rkv_status status =
		rkv_event_encoder_encode(encoder, timestamp, buffer, capacity, &made.batch);
	made.too_small = status == RKV_STATUS_BUFFER_TOO_SMALL;
	made.failure = made.too_small ? NULL : rkvgo_end(status);
	return made;
}

static inline rkvgo_failure *rkvgo_event_encoder_repeat(rkv_event_encoder *encoder) {
	return rkvgo_end(rkv_event_encoder_repeat(encoder));
}
*/
import "C"

import (
	"runtime"
	"sync"
	"unsafe"
)

// EventFlags say how events are written.
type EventFlags uint32

const (
	// EventsWideHashes: block hashes are whole digests of 32 bytes instead of 64-bit numbers.
	EventsWideHashes EventFlags = C.RKV_EVENTS_WIDE_HASHES
	// EventsDataParallel: DataParallelRank is set.
	EventsDataParallel EventFlags = C.RKV_EVENTS_DATA_PARALLEL
)

// EventBatchFlags say something of a batch.
type EventBatchFlags uint32

// EventsMore: there is more to tell right now.
const EventsMore EventBatchFlags = C.RKV_EVENTS_MORE

// EventsNameLimit is the bytes of a name at most: of a LoRA adapter, a salt, a medium.
const EventsNameLimit = C.RKV_EVENTS_NAME_LIMIT

// EventEncoderConfig says how events are written. Zero is what most routers expect.
type EventEncoderConfig struct {
	// Flags are Events flags.
	Flags EventFlags
	// DataParallelRank stands in each batch, with EventsDataParallel.
	DataParallelRank uint32
	// PlaceholderTokenID stands among the tokens for positions that are not text.
	PlaceholderTokenID uint32
	// Medium is where the pages are; "" for "GPU".
	Medium string
}

// EventBatch is a payload, and what it has.
type EventBatch struct {
	// Payload is MessagePack, docs/events.md says what of. Empty when there is nothing to tell yet;
	// good until the encoder makes the next one.
	Payload []byte
	// Flags are EventsMore or 0.
	Flags EventBatchFlags
	// EventCount counts the events.
	EventCount uint64
	// StoredBlockCount counts the blocks that came in.
	StoredBlockCount uint64
	// RemovedBlockCount counts the blocks that left.
	RemovedBlockCount uint64
	// LastNumber is the last record of the journal that was read.
	LastNumber uint64
	// LostRecordCount counts records of the journal that were overwritten before they were read.
	// More than 0: everything is told anew.
	LostRecordCount uint64
}

// EventEncoder turns the journal of a cache into batches of KV events, as vLLM publishes them.
type EventEncoder struct {
	mu   sync.Mutex
	raw  *C.rkv_event_encoder // nil after Close
	room []byte
}

// NewEventEncoder creates an encoder of a cache that has a journal: CacheConfig.JournalBytes. Its
// first batches say that nothing is held, and then all that the cache holds.
func NewEventEncoder(cache *Cache, config EventEncoderConfig) (*EventEncoder, error) {
	raw, err := cache.enter()
	if err != nil {
		return nil, err
	}
	defer cache.mu.RUnlock()
	given := C.rkv_event_encoder_config{
		flags:                C.uint32_t(config.Flags),
		data_parallel_rank:   C.uint32_t(config.DataParallelRank),
		placeholder_token_id: C.uint32_t(config.PlaceholderTokenID),
	}
	if given.medium, err = text("config.Medium", config.Medium); err != nil {
		return nil, err
	}
	defer C.free(unsafe.Pointer(given.medium))
	made := C.rkvgo_event_encoder_create(raw, given)
	if err := asError(made.failure); err != nil {
		return nil, err
	}
	e := &EventEncoder{raw: made.encoder, room: make([]byte, 1<<16)}
	runtime.SetFinalizer(e, (*EventEncoder).Close) // for those that nobody closed
	return e, nil
}

// Close gives the encoder up. More than one Close is fine. It waits for calls that are running.
func (e *EventEncoder) Close() error {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.raw != nil {
		C.rkv_event_encoder_destroy(e.raw)
		e.raw = nil
		runtime.SetFinalizer(e, nil)
	}
	return nil
}

// enter takes the encoder alone: e.mu.Unlock ends it.
func (e *EventEncoder) enter() (*C.rkv_event_encoder, error) {
	if e == nil {
		return nil, ErrClosed
	}
	e.mu.Lock()
	if e.raw == nil {
		e.mu.Unlock()
		return nil, ErrClosed
	}
	return e.raw, nil
}

// NameNamespace says what a namespace is called in events from the next one on. A nil loraName is
// the adapter's id; a nil cacheSalt is the namespace's digest where something beside the adapter
// sets it apart, and an empty one is none.
func (e *EventEncoder) NameNamespace(space Namespace, loraName, cacheSalt *string) error {
	raw, err := e.enter()
	if err != nil {
		return err
	}
	defer e.mu.Unlock()
	var texts [2]*C.char
	for i, text := range []*string{loraName, cacheSalt} {
		if text != nil {
			if err := whole([]string{"loraName", "cacheSalt"}[i], *text); err != nil {
				return err
			}
			texts[i] = C.CString(*text)
			defer C.free(unsafe.Pointer(texts[i]))
		}
	}
	return asError(C.rkvgo_event_encoder_name_namespace(raw, space.c(), texts[0], texts[1]))
}

// Encode makes one batch, of sizeLimit bytes at most unless one event has more; 0 is 64 KiB. The
// timestamp is in seconds.
func (e *EventEncoder) Encode(timestamp float64, sizeLimit int) (EventBatch, error) {
	raw, err := e.enter()
	if err != nil {
		return EventBatch{}, err
	}
	defer e.mu.Unlock()
	if sizeLimit < 0 {
		return EventBatch{}, invalid("sizeLimit is negative")
	}
	if sizeLimit == 0 {
		sizeLimit = 1 << 16
	}
	for {
		if len(e.room) < sizeLimit {
			e.room = make([]byte, sizeLimit)
		}
		into := (*C.uint8_t)(unsafe.Pointer(&e.room[0]))
		made := C.rkvgo_event_encoder_encode(
			raw, C.double(timestamp), into, C.size_t(sizeLimit))
		if err := asError(made.failure); err != nil {
			return EventBatch{}, err
		}
		if made.too_small {
			sizeLimit = int(made.batch.byte_count)
			continue
		}
		return EventBatch{
			Payload:           e.room[:made.batch.byte_count],
			Flags:             EventBatchFlags(made.batch.flags),
			EventCount:        uint64(made.batch.event_count),
			StoredBlockCount:  uint64(made.batch.stored_block_count),
			RemovedBlockCount: uint64(made.batch.removed_block_count),
			LastNumber:        uint64(made.batch.last_number),
			LostRecordCount:   uint64(made.batch.lost_record_count),
		}, nil
	}
}

// Repeat has all that is held told once more, for a subscriber who comes late. Before that an
// AllBlocksCleared comes, or with a rank BlockRemoved of what was told.
func (e *EventEncoder) Repeat() error {
	raw, err := e.enter()
	if err != nil {
		return err
	}
	defer e.mu.Unlock()
	return asError(C.rkvgo_event_encoder_repeat(raw))
}
