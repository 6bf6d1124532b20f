package radixkv

// #include "call.h"
import "C"

// GroupLimit is the most groups, and the most pools.
const GroupLimit = C.RKV_GROUP_LIMIT

// GroupKind says which pages of a group let a prefix be reused.
type GroupKind uint32

const (
	// GroupFull: all. Full attention.
	GroupFull GroupKind = C.RKV_GROUP_FULL
	// GroupWindow: those of the last Window - 1 positions, and of the first Sinks.
	GroupWindow GroupKind = C.RKV_GROUP_WINDOW
	// GroupChunk: those from the beginning of the next position's chunk.
	GroupChunk GroupKind = C.RKV_GROUP_CHUNK
	// GroupState: a checkpoint at exactly its end, which lies between two pages. Recurrent layers.
	GroupState GroupKind = C.RKV_GROUP_STATE
)

// GroupConfig is a group: the layers that share one row of pages. Unused fields are zero.
type GroupConfig struct {
	// Kind is one of the kinds above.
	Kind GroupKind
	// Pool is the pool that its pages come from. Groups whose pages have equal bytes may share one.
	Pool uint32
	// Window is, for GroupWindow, the positions that a query attends to, its own included.
	Window uint32
	// Sinks are, for GroupWindow, the positions at the beginning that are always attended to.
	Sinks uint32
	// Chunk is, for GroupChunk, the positions of a chunk.
	Chunk uint32
	// DraftStateCount is, for GroupState, how many states a row has for tokens that may be taken
	// back: see Sequence.Truncate.
	DraftStateCount uint32
}

// FullGroup is a group of full attention. The first of a list draws from pool 0.
func FullGroup(pool uint32) GroupConfig {
	return GroupConfig{Kind: GroupFull, Pool: pool}
}

// WindowGroup is a group of sliding windows of so many positions, a query's own included.
func WindowGroup(pool, window uint32) GroupConfig {
	return GroupConfig{Kind: GroupWindow, Pool: pool, Window: window}
}

// ChunkGroup is a group of attention in chunks of so many positions.
func ChunkGroup(pool, chunk uint32) GroupConfig {
	return GroupConfig{Kind: GroupChunk, Pool: pool, Chunk: chunk}
}

// StateGroup is a group of recurrent layers.
func StateGroup(pool uint32) GroupConfig {
	return GroupConfig{Kind: GroupState, Pool: pool}
}

func groupConfigs(groups []GroupConfig) []C.rkv_group_config {
	var made []C.rkv_group_config
	for _, group := range groups {
		made = append(made, C.rkv_group_config{
			kind: C.uint32_t(group.Kind), pool: C.uint32_t(group.Pool),
			window: C.uint32_t(group.Window), sinks: C.uint32_t(group.Sinks),
			chunk: C.uint32_t(group.Chunk), draft_state_count: C.uint32_t(group.DraftStateCount),
		})
	}
	return made
}

func poolConfigs(pageCounts []uint32) []C.rkv_pool_config {
	var made []C.rkv_pool_config
	for _, count := range pageCounts {
		made = append(made, C.rkv_pool_config{page_count: C.uint32_t(count)})
	}
	return made
}
