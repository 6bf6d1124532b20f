package radixkv_test

import (
	"sync"
	"testing"

	radixkv "github.com/radixkv/radixkv/bindings/go"
)

func (b *bench) request(namespace radixkv.Namespace, tokens radixkv.Tokens) {
	b.Helper()
	sequence, state, err := b.cache.Begin(radixkv.BeginArgs{Namespace: namespace, Tokens: tokens})
	must(b, err)
	if state.CopyCount > 0 {
		must(b, sequence.ConfirmCopies())
	}
	_, err = sequence.Publish(state.PositionCount)
	must(b, err)
	must(b, sequence.Release())
}

// follower knows the first token of each page that a cache holds, by its journal.
type follower struct {
	held    map[uint32]uint32
	buffers radixkv.JournalBuffers
	number  uint64
	starts  int
}

func (f *follower) start(cache *radixkv.Cache) error {
	f.starts++
	f.held = map[uint32]uint32{}
	for next, first := uint32(0), true; first || next != 0; first = false {
		told, err := cache.ReadContents(next, &f.buffers)
		if err != nil {
			return err
		}
		f.apply()
		if first {
			f.number = told.Number
		}
		next = told.NextPage
	}
	return nil
}

func (f *follower) follow(cache *radixkv.Cache) error {
	for {
		read, err := cache.ReadJournal(f.number, &f.buffers)
		if err != nil {
			return err
		}
		if read.LostCount > 0 {
			if err := f.start(cache); err != nil {
				return err
			}
			continue
		}
		f.apply()
		f.number = read.LastNumber
		if f.number == read.NewestNumber {
			return nil
		}
	}
}

func (f *follower) apply() {
	for _, record := range f.buffers.Records {
		for i, page := range record.Pages {
			if record.Kind == radixkv.JournalStored {
				f.held[page] = record.Tokens[i*len(record.Tokens)/len(record.Pages)]
			} else {
				delete(f.held, page)
			}
		}
	}
}

// J01
func TestJournalRecords(t *testing.T) {
	b := newBenchWith(t, 4, 33, radixkv.CacheConfig{JournalBytes: 1 << 16})
	space := radixkv.Namespace{Epoch: 2, Salt: [32]byte{9}}.WithLoRA(3)
	ids := run(100, 7)
	tokens := radixkv.Tokens{IDs: ids, Items: []radixkv.Item{
		radixkv.Image(1, radixkv.Digest{5}, 6), radixkv.Size(2, 7, 8),
	}}
	b.request(space, tokens) // 12 positions
	_, err := b.cache.Evict(2, nil)
	must(t, err)
	var buffers radixkv.JournalBuffers
	read, err := b.cache.ReadJournal(0, &buffers)
	must(t, err)
	equal(t, "read", read, radixkv.JournalRead{LastNumber: 2, NewestNumber: 2, OldestNumber: 1})
	equal(t, "records", len(buffers.Records), 2)
	stored, removed := buffers.Records[0], buffers.Records[1]
	for _, record := range buffers.Records {
		equal(t, "room behind the pages", cap(record.Pages), len(record.Pages))
		equal(t, "room behind those of group 0", cap(record.Group0Pages), len(record.Group0Pages))
		equal(t, "room behind the tokens", cap(record.Tokens), len(record.Tokens))
		equal(t, "room behind the items", cap(record.Items), len(record.Items))
	}
	equal(t, "kind", stored.Kind, radixkv.JournalStored)
	equal(t, "namespace", stored.Namespace, space)
	equal(t, "pages", len(stored.Pages), 3)
	none := uint32(radixkv.TextIDLimit)
	equalSlices(t, "tokens", stored.Tokens, []uint32{
		100, none, none, none, none, none, none, none, 103, 104, 105, 106,
	})
	equalSlices(t, "items", stored.Items, []radixkv.JournalItem{
		{
			Kind: radixkv.TokenImage, Position: 1, PositionCount: 6, ImagePositionCount: 6,
			Digest: radixkv.Digest{5},
		},
		{Kind: radixkv.TokenSize, Position: 7, PositionCount: 1, Bin: 7, HeightBin: 8},
	})
	equal(t, "kind", removed.Kind, radixkv.JournalRemoved)
	equal(t, "reason", removed.Reason, radixkv.ReasonCaller)
	equalSlices(t, "pages", removed.Pages, []uint32{stored.Pages[2], stored.Pages[1]})

	first := stored.Pages[0]
	must(t, b.cache.Close())
	_, err = b.table.ReadJournal(2, &buffers)
	must(t, err)
	equal(t, "reason", buffers.Records[0].Reason, radixkv.ReasonDestroyed)
	equalSlices(t, "pages", buffers.Records[0].Pages, []uint32{first})
	b.cache, err = radixkv.NewCache(b.table, radixkv.CacheConfig{})
	must(t, err)
	_, err = b.cache.ReadJournal(0, &buffers)
	names(t, err, radixkv.InvalidState, "journal_bytes")
	_, err = b.cache.ReadContents(0, &buffers)
	names(t, err, radixkv.InvalidState, "journal_bytes")
}

// J01: which one, so that a router need not drop what others have.
func TestJournalCleared(t *testing.T) {
	b := newBenchWith(t, 4, 33, radixkv.CacheConfig{JournalBytes: 1 << 16})
	space := radixkv.Namespace{Epoch: 2, Salt: [32]byte{9}}.WithLoRA(3)
	b.request(space, radixkv.Text(run(100, 8)))
	b.request(base, radixkv.Text(run(100, 8)))
	var buffers radixkv.JournalBuffers
	read, err := b.cache.ReadJournal(0, &buffers)
	must(t, err)
	cleared, err := b.cache.Clear(space, radixkv.ClearNamespace)
	must(t, err)
	equal(t, "namespaces", cleared.NamespaceCount, 1)
	_, err = b.cache.ReadJournal(read.LastNumber, &buffers)
	must(t, err)
	record := buffers.Records[0]
	equal(t, "kind", record.Kind, radixkv.JournalCleared)
	equal(t, "reason", record.Reason, radixkv.ReasonInvalidated)
	equal(t, "namespace", record.Namespace, space)
	equal(t, "pages", len(record.Pages), 0)
}

// J02: a goroutine follows while another one works.
func TestJournalFollower(t *testing.T) {
	for _, journalBytes := range []uint64{1024 + 4*256, 1 << 20} {
		b := newBenchWith(t, 4, 65, radixkv.CacheConfig{JournalBytes: journalBytes})
		f := follower{}
		must(t, f.start(b.cache))
		done := make(chan struct{})
		var working sync.WaitGroup
		working.Add(1)
		go func() {
			defer working.Done()
			for {
				select {
				case <-done:
					return
				default:
					if err := f.follow(b.cache); err != nil {
						t.Error(err)
						return
					}
				}
			}
		}()
		for round := 0; round < 2000; round++ {
			b.request(base, radixkv.Text(run(round%13*100, 4+round%29)))
			if round%7 == 0 {
				_, err := b.cache.Evict(round%11, nil)
				must(t, err)
			}
		}
		close(done)
		working.Wait()
		must(t, f.follow(b.cache))
		stats, err := b.cache.Stats()
		must(t, err)
		equal(t, "pages held", uint64(len(f.held)), stats.CachedPageCount)
		for page := range f.held {
			cached, err := b.cache.ContainsPage(page)
			must(t, err)
			equal(t, "cached", cached, true)
		}
		if journalBytes > 1<<16 {
			equal(t, "starts", f.starts, 1)
		}
	}
}
