package radixkv_test

import (
	"sync"
	"testing"
	"time"
	"unsafe"

	radixkv "github.com/radixkv/radixkv/bindings/go"
	"github.com/radixkv/radixkv/bindings/go/internal/remotestore"
)

// remoteOf is a store that answers each call with one function.
func remoteOf(
	t *testing.T, answer func(*radixkv.RemoteItem) radixkv.RemoteAnswer,
) radixkv.RemoteStore {
	t.Helper()
	store := remotestore.New(func(items unsafe.Pointer, itemSize, itemCount int) {
		for i := 0; i < itemCount; i++ {
			item := (*radixkv.RemoteItem)(unsafe.Add(items, i*itemSize))
			item.Answer = answer(item)
		}
	})
	t.Cleanup(func() {
		if !t.Failed() { // else it may be in use
			store.Close()
		}
	})
	return radixkv.RemoteStore{
		UserData: store.UserData,
		Has:      store.Function, Get: store.Function, Put: store.Function, Remove: store.Function,
	}
}

// asking is a remote store whose first call waits, and then asks the cache that it belongs to.
type asking struct {
	isAsked, goesOn chan struct{}
	told            chan error
}

func newAsking(t *testing.T, ask func() error) (*asking, radixkv.RemoteStore) {
	a := &asking{make(chan struct{}), make(chan struct{}), make(chan error, 1)}
	var first sync.Once
	return a, remoteOf(t, func(*radixkv.RemoteItem) radixkv.RemoteAnswer {
		first.Do(func() {
			close(a.isAsked)
			<-a.goesOn
			a.told <- ask()
		})
		return radixkv.RemoteFailed
	})
}

// ends demands that what was begun beside the call of a remote store ends, and what that was told.
func (a *asking) ends(t *testing.T, begun ...func()) {
	t.Helper()
	var all sync.WaitGroup
	for _, call := range begun {
		all.Add(1)
		go func(call func()) {
			defer all.Done()
			call()
		}(call)
		time.Sleep(50 * time.Millisecond) // the next one comes while it waits
	}
	close(a.goesOn)
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	select {
	case <-done:
		equal(t, "told", <-a.told, radixkv.ErrClosed)
	case <-time.After(20 * time.Second):
		t.Fatal("Close and the function of the remote store wait for each other")
	}
}

// M03, T13: a function of a remote store may ask its cache for something while Close waits for it,
// and while something else waits for it too.
func TestRemoteStoreAsksBesideClose(t *testing.T) {
	for _, detaches := range []bool{false, true} {
		table, err := radixkv.NewPageTable(radixkv.PageTableConfig{PageSize: 4, PageCount: 33})
		must(t, err)
		cache, err := radixkv.NewCache(table, radixkv.CacheConfig{JournalBytes: 1 << 16})
		must(t, err)
		asks, remote := newAsking(t, func() error {
			_, err := cache.TierStats()
			return err
		})
		must(t, cache.AttachTiers(radixkv.TierConfig{
			PageBytes: tierPageBytes, HostBytes: 16 * tierPageBytes, Remote: remote,
			RemoteTimeoutMS: 1000,
		}))
		_, err = cache.Prefetch(base, radixkv.Text(run(1, 17)), radixkv.NoDeadline, 0)
		must(t, err)
		<-asks.isAsked
		begun := []func(){func() { _ = cache.Close() }}
		if detaches {
			begun = append([]func(){func() { _, _ = cache.DetachTiers(time.Minute) }}, begun...)
		}
		asks.ends(t, begun...)
		must(t, table.Close())
	}
}

// M03, T13: likewise of a snapshot cache.
func TestRemoteStoreAsksBesideCloseOfSnapshots(t *testing.T) {
	for _, detaches := range []bool{false, true} {
		cache, err := radixkv.NewSnapshotCache[int](radixkv.SnapshotCacheConfig{}, nil)
		must(t, err)
		asks, remote := newAsking(t, func() error {
			_, err := cache.TierStats()
			return err
		})
		must(t, cache.Attach(radixkv.SnapshotTierConfig{Remote: remote, RemoteTimeoutMS: 1000}))
		_, err = cache.Fetch(base, run(1, 17), 0)
		must(t, err)
		<-asks.isAsked
		begun := []func(){func() { _ = cache.Close() }}
		if detaches {
			begun = append([]func(){func() { _, _ = cache.Detach(time.Minute) }}, begun...)
		}
		asks.ends(t, begun...)
	}
}

// T13: the values of a call lie itemSize bytes apart.
func TestRemoteStoreKeepsPages(t *testing.T) {
	var kept sync.Map // by key
	remote := remoteOf(t, func(item *radixkv.RemoteItem) radixkv.RemoteAnswer {
		if item.Bytes != nil {
			kept.Store(item.Key, item.ByteCount)
			return radixkv.RemoteDone
		}
		return radixkv.RemoteMissing
	})
	b := newBenchWith(t, 4, 33, radixkv.CacheConfig{JournalBytes: 1 << 16})
	must(t, b.cache.AttachTiers(radixkv.TierConfig{
		PageBytes: tierPageBytes, HostBytes: 16 * tierPageBytes, Remote: remote,
	}))
	b.request(base, radixkv.Text(run(1, 17)))
	kv := make([]byte, 34*tierPageBytes)
	for end := time.Now().Add(20 * time.Second); ; {
		b.carry(kv)
		stats, err := b.cache.TierStats()
		must(t, err)
		if stats.Remote.WrittenPageCount == 4 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%+v", stats.Remote)
		}
	}
	count := 0
	kept.Range(func(key, byteCount any) bool {
		count++
		if byteCount.(uint64) < tierPageBytes {
			t.Error(byteCount)
		}
		return true
	})
	equal(t, "keys", count, 4)
	detached, err := b.cache.DetachTiers(time.Minute)
	must(t, err)
	equal(t, "detached", detached, true)
}
