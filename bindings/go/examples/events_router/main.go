// Command events_router sends requests to the engine that has most of their prefix cached. It knows
// the engines by their KV events alone: payloads that go over the network in docs/events.md, and
// here from hand to hand. The same requests are served twice, once in turn and once routed.
package main

import (
	"encoding/binary"
	"fmt"
	"math/rand"
	"os"

	radixkv "github.com/radixkv/radixkv/bindings/go"
)

const (
	pageSize = 16
	// Of an engine: too few for the conversations of all users, enough for half of them.
	pageCount = 320
	engines   = 2
	users     = 24
	turns     = 12
	// Every second user has the one system prompt, the others the other one.
	systemLength = 256
)

// engine is a cache that computes nothing.
type engine struct {
	table   *radixkv.PageTable
	cache   *radixkv.Cache
	encoder *radixkv.EventEncoder
	served  int
}

func newEngine() (*engine, error) {
	table, err := radixkv.NewPageTable(radixkv.PageTableConfig{
		PageSize: pageSize, PageCount: pageCount, SlotCount: 4,
	})
	if err != nil {
		return nil, err
	}
	cache, err := radixkv.NewCache(table, radixkv.CacheConfig{JournalBytes: 1 << 20})
	if err != nil {
		return nil, err
	}
	encoder, err := radixkv.NewEventEncoder(cache, radixkv.EventEncoderConfig{})
	return &engine{table: table, cache: cache, encoder: encoder}, err
}

func (e *engine) close() {
	e.encoder.Close()
	e.cache.Close()
	e.table.Close()
}

// serve answers a prompt; returns how many of its tokens were cached.
func (e *engine) serve(ids []uint32) (int, error) {
	tokens := radixkv.Tokens{IDs: ids}
	sequence, state, err := e.cache.Begin(radixkv.BeginArgs{Tokens: tokens})
	if err != nil {
		return 0, err
	}
	if state.CopyCount > 0 {
		if err := sequence.ConfirmCopies(); err != nil {
			return 0, err
		}
	}
	if _, err := sequence.Publish(state.PositionCount); err != nil {
		return 0, err
	}
	e.served++
	return int(state.CachedPositionCount), sequence.Release()
}

// router knows the blocks of each engine.
type router struct {
	blocks [engines]map[uint64]bool
}

// hear takes a payload of an engine over.
func (r *router) hear(from int, payload []byte) error {
	batch, _, err := unpack(payload)
	if err != nil {
		return err
	}
	for _, event := range batch.([]any)[1].([]any) {
		fields := event.(map[string]any)
		hashes, _ := fields["block_hashes"].([]any)
		switch fields["type"] {
		case "AllBlocksCleared":
			r.blocks[from] = map[uint64]bool{}
		case "BlockStored":
			for _, hash := range hashes {
				r.blocks[from][hash.(uint64)] = true
			}
		case "BlockRemoved":
			for _, hash := range hashes {
				delete(r.blocks[from], hash.(uint64))
			}
		}
	}
	return nil
}

// choose is the engine that has most of a prompt's pages; of equals the one that served least.
func (r *router) choose(all []*engine, ids []uint32) (int, error) {
	tokens := radixkv.Tokens{IDs: ids}
	digests, err := tokens.PageDigests(radixkv.Namespace{}, pageSize)
	if err != nil {
		return 0, err
	}
	best, most := 0, -1
	for i := range all {
		known := 0
		for known < len(digests) && r.blocks[i][binary.BigEndian.Uint64(digests[known][24:])] {
			known++
		}
		if known > most || known == most && all[i].served < all[best].served {
			best, most = i, known
		}
	}
	return best, nil
}

// talk serves the turns of all users in a random order. Returns the cached tokens, and all.
func talk(routed bool) (cached, asked int, err error) {
	var all []*engine
	for len(all) < engines {
		made, err := newEngine()
		if err != nil {
			return 0, 0, err
		}
		defer made.close()
		all = append(all, made)
	}
	random := rand.New(rand.NewSource(1))
	words := func(count int) (ids []uint32) {
		for len(ids) < count {
			ids = append(ids, uint32(random.Intn(32000)))
		}
		return ids
	}
	systems := [2][]uint32{words(systemLength), words(systemLength)}
	var chats [users][]uint32
	for i := range chats {
		chats[i] = append(chats[i], systems[i%2]...)
	}
	var known router
	for request := 0; request < users*turns; request++ {
		user := random.Intn(users)
		chats[user] = append(chats[user], words(20+random.Intn(20))...)
		to := request % engines
		if routed {
			if to, err = known.choose(all, chats[user]); err != nil {
				return 0, 0, err
			}
		}
		found, err := all[to].serve(chats[user])
		if err != nil {
			return 0, 0, err
		}
		cached, asked = cached+found, asked+len(chats[user])
		for more := true; more; {
			batch, err := all[to].encoder.Encode(float64(request), 0)
			if err != nil {
				return 0, 0, err
			}
			if len(batch.Payload) > 0 {
				if err := known.hear(to, batch.Payload); err != nil {
					return 0, 0, err
				}
			}
			more = batch.Flags&radixkv.EventsMore != 0
		}
	}
	return cached, asked, nil
}

func main() {
	for _, routed := range []bool{false, true} {
		cached, asked, err := talk(routed)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		name := "in turn"
		if routed {
			name = "by events"
		}
		fmt.Printf("%-10s %6d of %d tokens cached: %d%%\n",
			name, cached, asked, 100*cached/asked)
	}
}
