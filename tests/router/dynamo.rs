//! E01, E02: Dynamo's own decoder reads each batch, and its radix tree, fed by our events alone,
//! says of every prompt what the cache says.
#![cfg(test)]
use dynamo_kv_router::RadixTree;
use dynamo_kv_router::protocols::{
    BlockHashOptions, ExternalSequenceBlockHash, KvCacheEventData, WorkerWithDpRank,
    compute_block_hash_for_seq,
};
use dynamo_kv_router::zmq_wire::{
    BlockHashValue, DYNAMO_CACHE_SALT_PREFIX, RawKvEvent, ZmqEventNormalizer, decode_event_batch,
};
use radixkv::events::{EventConfig, EventEncoder};
use radixkv::group::{GroupConfig, GroupKind, Groups};
use radixkv::index::{IndexKind, Namespace};
use radixkv::memory::Arc;
use radixkv::paging::PageTableConfig;
use radixkv::store::{CacheConfig, Scope, Shared};
use radixkv::token::{PageDigest, TokenList, page_digests};
use std::collections::HashMap;
use std::mem::MaybeUninit;

const PAGE_SIZE: u32 = 4;
const WORKER: WorkerWithDpRank = WorkerWithDpRank { worker_id: 3, dp_rank: 0 };

/// A namespace and what Dynamo knows it by.
struct Space {
    namespace: Namespace,
    lora_name: Option<&'static str>,
    tenant: Option<&'static str>,
}

fn spaces() -> [Space; 4] {
    let plain = Namespace::default();
    let with = |namespace, lora_name, tenant| Space { namespace, lora_name, tenant };
    [
        with(plain, None, None),
        with(Namespace { lora: Some(7), ..plain }, Some("sql"), None),
        with(Namespace { salt: [1; 32], ..plain }, None, Some("tenant-a")),
        with(Namespace { lora: Some(7), salt: [2; 32], epoch: 5, ..plain }, Some("sql"), Some("b")),
    ]
}

/// What Dynamo's publisher has between events and router, in a crate that is not published: a block
/// is removed when it was removed as often as it was stored.
#[derive(Default)]
struct Counted(HashMap<ExternalSequenceBlockHash, usize>);

impl Counted {
    /// Whether an event goes on to the router; changes it to what does.
    fn passes(&mut self, event: &mut KvCacheEventData) -> bool {
        match event {
            KvCacheEventData::Cleared => self.0.clear(),
            KvCacheEventData::Stored(stored) => {
                stored.blocks.iter().for_each(|block| {
                    *self.0.entry(block.block_hash).or_default() += 1;
                });
            }
            KvCacheEventData::Removed(removed) => {
                removed.block_hashes.retain(|hash| {
                    let left = self.0.remove(hash).unwrap_or(1) - 1;
                    if left > 0 {
                        self.0.insert(*hash, left);
                    }
                    left == 0
                });
                return !removed.block_hashes.is_empty();
            }
        }
        true
    }
}

struct Router {
    counted: Counted,
    tree: RadixTree,
    normalizer: ZmqEventNormalizer,
    event_id: u64,
}

impl Router {
    fn new() -> Self {
        let normalizer = ZmqEventNormalizer::new(PAGE_SIZE);
        Self { counted: Counted::default(), tree: RadixTree::new(), normalizer, event_id: 0 }
    }

    fn apply(&mut self, payload: &[u8]) {
        for raw in decode_event_batch(payload).unwrap().events {
            let normal = self.normalizer.normalize(raw, self.event_id, WORKER);
            self.event_id += 1;
            // Pages of groups beside the first are filtered.
            let Some(mut event) = normal.and_then(|placed| placed.into_router_event()) else {
                continue;
            };
            if self.counted.passes(&mut event.event.data) {
                self.tree.apply_event(event).expect("the parent is known, and what is removed");
            }
        }
    }

    /// Whole pages of a prompt that the worker has, as far as the router knows.
    fn pages(&self, space: &Space, ids: &[u32]) -> usize {
        let options = BlockHashOptions {
            lora_name: space.lora_name,
            cache_namespace: space.tenant,
            ..BlockHashOptions::default()
        };
        let hashes = compute_block_hash_for_seq(ids, PAGE_SIZE, options);
        let scores = self.tree.find_matches(hashes, false).scores;
        scores.get(&WORKER).copied().unwrap_or(0) as usize
    }
}

fn cache(index: IndexKind, groups: &[GroupConfig], journal_bytes: u64) -> Arc<Shared> {
    let config = PageTableConfig {
        page_size: PAGE_SIZE,
        page_count: 200,
        slot_count: 8,
        groups: Groups::new(groups).unwrap(),
        ..PageTableConfig::default()
    };
    let shared = Shared::new(config).unwrap();
    shared.attach_cache(CacheConfig { index, journal_bytes, ..CacheConfig::default() }).unwrap();
    shared
}

fn named_encoder(shared: &Arc<Shared>, data_parallel_rank: Option<u32>) -> EventEncoder {
    let config = EventConfig { data_parallel_rank, ..EventConfig::default() };
    let encoder = EventEncoder::new(shared.clone(), config).unwrap();
    for Space { namespace, lora_name, tenant } in spaces() {
        let salt = tenant.map_or(String::new(), |name| format!("{DYNAMO_CACHE_SALT_PREFIX}{name}"));
        encoder.name_namespace(&namespace, lora_name, Some(&salt)).unwrap();
    }
    encoder
}

fn drain(encoder: &EventEncoder, router: &mut Router) -> u64 {
    let mut lost = 0;
    let mut room = vec![MaybeUninit::new(0_u8); 4096];
    loop {
        let batch = encoder.encode(0.0, &mut room).unwrap();
        lost += batch.lost_count;
        assert_eq!(batch.needed_bytes, 0);
        if batch.bytes > 0 {
            // SAFETY: all bytes were written in the beginning.
            let bytes = room[..batch.bytes].iter().map(|byte| unsafe { byte.assume_init() });
            router.apply(&bytes.collect::<Vec<u8>>());
        }
        if !batch.has_more {
            return lost;
        }
    }
}

fn prompt(random: &mut fastrand::Rng) -> Vec<u32> {
    let family = random.u32(..5);
    let mut ids: Vec<u32> = (0..random.u32(1..40)).map(|at| family * 100 + at).collect();
    ids.extend((0..random.u32(..40)).map(|at| 1000 * random.u32(1..4) + at));
    ids
}

fn serve(shared: &Shared, space: &Namespace, ids: &[u32]) {
    let Ok(begun) = shared.begin(space, TokenList::text(ids), 0) else { return };
    let mut state = shared.write();
    if begun.copy.is_some() {
        state.confirm_copies(begun.id).unwrap();
    }
    state.publish(begun.id, begun.positions).unwrap();
    state.release(begun.id).unwrap();
}

/// After any churn a router knows of every prompt how many whole pages are cached, also while
/// others come who are told all of it. Returns how many records were lost, and how many prompts
/// were known in part.
fn agree(shared: &Shared, encoder: &EventEncoder, seed: u64) -> (u64, u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut router, spaces) = (Router::new(), spaces());
    let (mut lost, mut known) = (0, 0);
    for _ in 0..150 {
        for _ in 0..20 {
            let space = &spaces[random.usize(..4)].namespace;
            match random.u8(..25) {
                0 => {
                    shared.evict(random.usize(1..60), |_, _| {}).unwrap();
                }
                1 if random.bool() => {
                    shared.clear(Scope::exactly(*space)).unwrap();
                }
                2 if random.bool() => encoder.repeat(),
                _ => serve(shared, space, &prompt(&mut random)),
            }
        }
        lost += drain(encoder, &mut router);
        for _ in 0..60 {
            let (space, ids) = (&spaces[random.usize(..4)], prompt(&mut random));
            let tokens = TokenList::text(&ids);
            let positions = if shared.read().groups().list().len() == 1 {
                shared.probe(&space.namespace, tokens).unwrap().1
            } else {
                // What the first group has, whatever the others lack.
                let (found, _) = shared.costs(&space.namespace, tokens).unwrap();
                found.positions().max(found.depths().known as usize)
            };
            let pages = positions / PAGE_SIZE as usize;
            assert_eq!(router.pages(space, &ids), pages, "{ids:?}");
            known += u64::from(pages > 0);
        }
    }
    (lost, known)
}

#[test]
fn e02_dynamo_agrees_with_probe() {
    for (seed, index) in [(1, IndexKind::Radix), (2, IndexKind::BlockHash)] {
        for rank in [None, Some(0)] {
            let shared = cache(index, &[], 1 << 20);
            let (lost, known) = agree(&shared, &named_encoder(&shared, rank), seed);
            assert!(lost == 0 && known > 1000, "{lost} lost, {known} known");
        }
    }
}

#[test]
fn e03_dynamo_agrees_after_a_loss() {
    for rank in [None, Some(0)] {
        let shared = cache(IndexKind::Radix, &[], 4096);
        let (lost, known) = agree(&shared, &named_encoder(&shared, rank), 3);
        assert!(lost > 100 && known > 1000, "{lost} lost, {known} known");
    }
}

#[test]
fn e04_dynamo_passes_over_other_groups() {
    let window = GroupKind::Window { window: 8, sinks: 0 };
    let groups = [GroupConfig::default(), window.in_pool(0)];
    let shared = cache(IndexKind::Radix, &groups, 1 << 20);
    let (lost, known) = agree(&shared, &named_encoder(&shared, None), 4);
    assert!(lost == 0 && known > 500, "{lost} lost, {known} known");
}

/// Field by field, as Dynamo's structs have them.
#[test]
fn e01_dynamo_reads_every_field() {
    let shared = cache(IndexKind::Radix, &[], 1 << 16);
    let (encoder, space) = (named_encoder(&shared, None), &spaces()[3]);
    let ids: Vec<u32> = (100..109).collect();
    serve(&shared, &space.namespace, &ids);
    let mut room = vec![MaybeUninit::new(0_u8); 4096];
    let batch = encoder.encode(12.5, &mut room).unwrap();
    // SAFETY: all bytes were written in the beginning.
    let bytes = room[..batch.bytes].iter().map(|byte| unsafe { byte.assume_init() });
    let read = decode_event_batch(&bytes.collect::<Vec<u8>>()).unwrap();
    assert_eq!((read.ts, read.data_parallel_rank, read.events.len()), (12.5, None, 2));
    assert!(matches!(read.events[0], RawKvEvent::AllBlocksCleared { .. }));
    let RawKvEvent::BlockStored {
        block_hashes,
        parent_block_hash,
        token_ids,
        block_size,
        medium,
        lora_name,
        cache_namespace,
        group_idx,
        ..
    } = &read.events[1]
    else {
        panic!("{:?}", read.events[1])
    };
    let mut digests = Vec::new();
    let first = space.namespace.digest();
    let visit =
        |PageDigest(bytes)| digests.push(u64::from_be_bytes(bytes[24..].try_into().unwrap()));
    page_digests(TokenList::text(&ids), PAGE_SIZE as usize, 0, first, visit).unwrap();
    let hashes: Vec<u64> = block_hashes.iter().copied().map(BlockHashValue::into_u64).collect();
    assert_eq!(hashes, digests);
    assert!(parent_block_hash.is_none());
    assert_eq!((token_ids[..].to_vec(), *block_size), (ids[..8].to_vec(), 4));
    assert_eq!((medium.as_deref(), lora_name.as_deref()), (Some("GPU"), Some("sql")));
    assert_eq!((cache_namespace.as_deref(), *group_idx), (Some("b"), Some(0)));
}
