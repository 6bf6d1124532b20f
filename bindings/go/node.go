package radixkv

/*
#include "call.h"

typedef struct rkvgo_node_info_made {
	rkvgo_failure *failure;
	rkv_node_info info;
} rkvgo_node_info_made;

static inline rkvgo_node_info_made rkvgo_cache_node_info(
	const rkv_cache *cache, rkv_node_id node
) {
	rkvgo_node_info_made made = {0};
	made.info.struct_size = sizeof made.info;
	made.failure = rkvgo_end(rkv_node_read_info(cache, node, &made.info));
	return made;
}

static inline rkvgo_count rkvgo_cache_node_pages(
	const rkv_cache *cache, rkv_node_id node, uint32_t *pages, size_t capacity
) {
	rkvgo_count made = {0};
	made.failure = rkvgo_end(rkv_node_read_pages(cache, node, pages, capacity, &made.count));
	return made;
}

static inline rkvgo_count rkvgo_cache_node_children(
	const rkv_cache *cache, rkv_node_id node, rkv_node_id *children, size_t capacity
) {
	rkvgo_count made = {0};
	made.failure = rkvgo_end(
		rkv_node_read_children(cache, node, children, capacity, &made.count));
	return made;
}
*/
import "C"

import "unsafe"

// NodeID names a node of one cache, that is "the prefix that ends here". Zero names none.
//
// An id is good for as long as a lock that was taken by Lock or MatchLock is on the node or below
// it. Without one it may become stale, which is detected: it never means another node. A node that
// only sequences keep locked is not evicted, but Publish may make it longer, and then it has
// another id: PublishResult.Node.
type NodeID uint64

// NodeInfo is what can be seen of a node.
type NodeInfo struct {
	// Parent is 0 for a root.
	Parent NodeID
	// LockCount counts the locks on this node, and one for each child that is protected.
	LockCount int
	// PositionCount is that of the node's own segment; 0 for a root.
	PositionCount int
	// PageCount is that of the node's own segment.
	PageCount int
	// EndPosition counts the positions from the beginning to the node's end.
	EndPosition int
	// ChildCount is the number of children.
	ChildCount int
	// LastAccess is the logical time of the last match that covered the node.
	LastAccess uint64
	// HitCount counts the matches that covered the node.
	HitCount uint64
}

// NodeInfo is what can be seen of a node.
func (c *Cache) NodeInfo(node NodeID) (NodeInfo, error) {
	raw, err := c.enter()
	if err != nil {
		return NodeInfo{}, err
	}
	defer c.mu.RUnlock()
	made := C.rkvgo_cache_node_info(raw, C.rkv_node_id(node))
	return NodeInfo{
		Parent:        NodeID(made.info.parent),
		LockCount:     int(made.info.lock_count),
		PositionCount: int(made.info.position_count),
		PageCount:     int(made.info.page_count),
		EndPosition:   int(made.info.end_position),
		ChildCount:    int(made.info.child_count),
		LastAccess:    uint64(made.info.last_access),
		HitCount:      uint64(made.info.hit_count),
	}, asError(made.failure)
}

// NodePages writes the pages of a node's own segment, in order, and says how many there are, also
// together with BufferTooSmall. With nil it only says how many.
func (c *Cache) NodePages(node NodeID, pages []uint32) (int, error) {
	raw, err := c.enter()
	if err != nil {
		return 0, err
	}
	defer c.mu.RUnlock()
	made := C.rkvgo_cache_node_pages(raw, C.rkv_node_id(node),
		u32Pointer(pages), C.size_t(len(pages)))
	return int(made.count), asError(made.failure)
}

// NodeChildren writes the children of a node, in the order of their first pages' keys, with the
// block-hash index of their digests, and says how many there are, also together with
// BufferTooSmall. With nil it only says how many.
func (c *Cache) NodeChildren(node NodeID, children []NodeID) (int, error) {
	raw, err := c.enter()
	if err != nil {
		return 0, err
	}
	defer c.mu.RUnlock()
	made := C.rkvgo_cache_node_children(raw, C.rkv_node_id(node),
		(*C.rkv_node_id)(unsafe.Pointer(unsafe.SliceData(children))), C.size_t(len(children)))
	return int(made.count), asError(made.failure)
}
