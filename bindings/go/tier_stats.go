package radixkv

/*
#include "call.h"

typedef struct rkvgo_tier_stats_made {
	rkvgo_failure *failure;
	rkv_tier_stats stats;
} rkvgo_tier_stats_made;

static inline rkvgo_tier_stats_made rkvgo_cache_tier_stats(const rkv_cache *cache) {
	rkvgo_tier_stats_made made = {0};
	made.stats.struct_size = sizeof made.stats;
	made.failure = rkvgo_end(rkv_cache_read_tier_stats(cache, &made.stats));
	return made;
}
*/
import "C"

// TierTotals are the counters of one tier.
type TierTotals struct {
	PageCount        uint64
	UsedBytes        uint64
	ByteLimit        uint64
	StoredPageCount  uint64
	FetchedPageCount uint64
	EvictedPageCount uint64
	DamagedPageCount uint64
	FailedCount      uint64
}

// RemoteTotals are the counters of the remote store; rkv_remote_totals says what each one counts.
type RemoteTotals struct {
	AskedPageCount   uint64
	FoundPageCount   uint64
	ReadPageCount    uint64
	ReadBytes        uint64
	FetchedPageCount uint64
	WrittenPageCount uint64
	WrittenBytes     uint64
	KnownPageCount   uint64
	DamagedPageCount uint64
	GonePageCount    uint64
	FailedPageCount  uint64
	LatePageCount    uint64
	SkippedPageCount uint64
	DroppedPageCount uint64
	WaitingPageCount uint64
	LateFetchCount   uint64
	CallCount        uint64
	SlowCallCount    uint64
	CallNS           uint64
	LongestCallNS    uint64
	PauseCount       uint64
	IsPaused         bool
}

// TierStats are the counters of what lies below the pages of a cache; rkv_tier_stats says what each
// one counts.
type TierStats struct {
	IsReadOnly         bool
	Host               TierTotals
	Disk               TierTotals
	OpenFetchCount     uint64
	OpenJobCount       uint64
	CopiedPageCount    uint64
	IndexBytes         uint64
	FollowedNumber     uint64
	FetchCount         uint64
	JoinedCount        uint64
	CompleteCount      uint64
	ShortenedCount     uint64
	LateCount          uint64
	AbandonedCount     uint64
	FetchNS            uint64
	LongestFetchNS     uint64
	LostPageCount      uint64
	ThrottledPageCount uint64
	LostRecordCount    uint64
	ClearedPageCount   uint64
	WaitingWriteCount  uint64
	UnusablePageCount  uint64
	LongestCommitNS    uint64
	Remote             RemoteTotals

	OpenPrefetchCount         uint64
	PrefetchCount             uint64
	RefusedPrefetchCount      uint64
	PrefetchedDiskPageCount   uint64
	PrefetchedRemotePageCount uint64

	// IsRing: the directory is written by io_uring.
	IsRing bool
}

func tierTotals(t *C.rkv_tier_totals) TierTotals {
	return TierTotals{
		uint64(t.page_count), uint64(t.used_bytes), uint64(t.byte_limit),
		uint64(t.stored_page_count), uint64(t.fetched_page_count), uint64(t.evicted_page_count),
		uint64(t.damaged_page_count), uint64(t.failed_count),
	}
}

func remoteTotals(t *C.rkv_remote_totals) RemoteTotals {
	return RemoteTotals{
		uint64(t.asked_page_count), uint64(t.found_page_count), uint64(t.read_page_count),
		uint64(t.read_bytes), uint64(t.fetched_page_count), uint64(t.written_page_count),
		uint64(t.written_bytes), uint64(t.known_page_count), uint64(t.damaged_page_count),
		uint64(t.gone_page_count), uint64(t.failed_page_count), uint64(t.late_page_count),
		uint64(t.skipped_page_count), uint64(t.dropped_page_count), uint64(t.waiting_page_count),
		uint64(t.late_fetch_count), uint64(t.call_count), uint64(t.slow_call_count),
		uint64(t.call_ns), uint64(t.longest_call_ns), uint64(t.pause_count), t.is_paused != 0,
	}
}

// TierStats reads the counters of what lies below the pages; all zero when nothing does.
func (c *Cache) TierStats() (TierStats, error) {
	raw, err := c.enter()
	if err != nil {
		return TierStats{}, err
	}
	defer c.mu.RUnlock()
	made := C.rkvgo_cache_tier_stats(raw)
	s := &made.stats
	return TierStats{
		s.is_read_only != 0, tierTotals(&s.host), tierTotals(&s.disk),
		uint64(s.open_fetch_count), uint64(s.open_job_count), uint64(s.copied_page_count),
		uint64(s.index_bytes), uint64(s.followed_number), uint64(s.fetch_count),
		uint64(s.joined_count), uint64(s.complete_count), uint64(s.shortened_count),
		uint64(s.late_count), uint64(s.abandoned_count), uint64(s.fetch_ns),
		uint64(s.longest_fetch_ns), uint64(s.lost_page_count), uint64(s.throttled_page_count),
		uint64(s.lost_record_count), uint64(s.cleared_page_count), uint64(s.waiting_write_count),
		uint64(s.unusable_page_count), uint64(s.longest_commit_ns), remoteTotals(&s.remote),
		uint64(s.open_prefetch_count), uint64(s.prefetch_count), uint64(s.refused_prefetch_count),
		uint64(s.prefetched_disk_page_count), uint64(s.prefetched_remote_page_count),
		s.is_ring != 0,
	}, asError(made.failure)
}
