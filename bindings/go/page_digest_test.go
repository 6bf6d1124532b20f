package radixkv_test

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"testing"

	radixkv "github.com/radixkv/radixkv/bindings/go"
)

// textDigests are the digests of pages of text in the default namespace, by the standard library.
func textDigests(ids []uint32, pageSize int) []radixkv.PageDigest {
	word := binary.LittleEndian.AppendUint32
	parent := radixkv.PageDigest(sha256.Sum256(word([]byte("rkvname1"), 0)))
	var digests []radixkv.PageDigest
	for ; len(ids) >= pageSize; ids = ids[pageSize:] {
		input := word(word([]byte("rkvpage1"), uint32(pageSize)), 0)
		input = append(input, parent[:]...)
		for _, id := range ids[:pageSize] {
			input = word(input, id)
		}
		parent = sha256.Sum256(input)
		digests = append(digests, parent)
	}
	return digests
}

// H01
func TestPageDigests(t *testing.T) {
	for _, pageSize := range []uint32{1, 3, 4, 16, 256} {
		ids := run(1, 600)
		digests, err := radixkv.Text(ids).PageDigests(base, pageSize)
		must(t, err)
		equalSlices(t, "digests", digests, textDigests(ids, int(pageSize)))
	}
	none, err := radixkv.Text(run(1, 3)).PageDigests(base, 4)
	must(t, err)
	equal(t, "digests of less than a page", len(none), 0)
}

// H01
func TestPageDigestsAreTold(t *testing.T) {
	ids := []uint32{1, 2, 0, 3}
	image := func(name byte, positions uint32) radixkv.Tokens {
		item := radixkv.Image(2, radixkv.Digest{name}, positions)
		return radixkv.Tokens{IDs: ids, Items: []radixkv.Item{item}}
	}
	seen := map[radixkv.PageDigest]string{}
	add := func(name string, tokens radixkv.Tokens, namespace radixkv.Namespace) {
		digests, err := tokens.PageDigests(namespace, 4)
		must(t, err)
		for _, digest := range digests {
			if before, known := seen[digest]; known {
				t.Errorf("%s has a page of %s", name, before)
			}
			seen[digest] = name
		}
	}
	add("text", radixkv.Text(ids), base)
	add("text of an adapter", radixkv.Text(ids), base.WithLoRA(0))
	add("an image", image(1, 9), base)
	add("another image", image(2, 9), base)
	add("a longer image", image(1, 10), base)
	equal(t, "pages", len(seen), 2+3*3)
}

// H01
func TestPageDigestsGoOn(t *testing.T) {
	tokens := radixkv.Tokens{IDs: run(1, 9), Items: []radixkv.Item{
		radixkv.Image(3, radixkv.Digest{1}, 14), radixkv.Coord(5, 7), radixkv.Size(6, 1, 2),
	}}
	digests, err := tokens.PageDigests(base, 4)
	must(t, err)
	equal(t, "pages", len(digests), 5)
	for first := 1; first <= len(digests); first++ {
		rest, err := tokens.PageDigestsAfter(digests[first-1], first, 4)
		must(t, err)
		equalSlices(t, "rest", rest, digests[first:])
	}
	ids := run(1, 12)
	digests = textDigests(ids, 4)
	rest, err := radixkv.Text(ids[4:]).PageDigestsAfter(digests[0], 0, 4)
	must(t, err)
	equalSlices(t, "suffix", rest, digests[1:])
}

// M01
func TestBadPageDigests(t *testing.T) {
	tokens := radixkv.Text(run(1, 8))
	for _, pageSize := range []uint32{0, radixkv.PageSizeMax + 1, 1 << 31} {
		_, err := tokens.PageDigests(base, pageSize)
		wants(t, err, radixkv.InvalidArgument)
	}
	for _, first := range []int{-1, 3, 1 << 40} {
		_, err := tokens.PageDigestsAfter(radixkv.PageDigest{}, first, 4)
		wants(t, err, radixkv.InvalidArgument)
	}
	_, err := radixkv.Text([]uint32{radixkv.TextIDLimit}).PageDigests(base, 1)
	wants(t, err, radixkv.InvalidArgument)
	bad := radixkv.Tokens{IDs: run(1, 2), Items: []radixkv.Item{radixkv.Coord(7, 0)}}
	_, err = bad.PageDigests(base, 1)
	wants(t, err, radixkv.InvalidArgument)
}

// H02, H04, H05, H07
func TestBlockHashIndex(t *testing.T) {
	b := newBenchWith(t, 4, 16, radixkv.CacheConfig{Index: radixkv.IndexBlockHash})
	ids := run(1, 12)
	sequence, state := b.begin(ids)
	equal(t, "cached", state.CachedPositionCount, 0)
	_, err := sequence.Publish(12)
	must(t, err)
	must(t, sequence.Release())
	dump, err := b.cache.Dump(radixkv.DumpJSON)
	must(t, err)
	for _, digest := range textDigests(ids, 4) {
		if !strings.Contains(dump, digest.String()) {
			t.Errorf("the cache has no page %v", digest)
		}
	}
	stats, err := b.cache.Stats()
	must(t, err)
	equal(t, "nodes", stats.NodeCount, 3)
	equal(t, "prefixes", stats.PrefixCount, 1)
	equal(t, "probe", b.probe(base, ids), 12)
	pages := b.pages(3)
	made, err := b.cache.Insert(
		radixkv.InsertArgs{Tokens: radixkv.Text(ids), Pages: pages}, nil)
	must(t, err)
	equal(t, "claimed pages", made.ClaimedPageCount, 0)
	equal(t, "duplicates", made.DuplicatePageCount, 3)
	must(t, b.table.FreePages(pages))
	evicted, err := b.cache.Evict(16, nil)
	must(t, err)
	equal(t, "evicted", evicted, 3)
}
