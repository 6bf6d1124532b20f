//! A cache that changes at random, and what its events must leave at a subscriber.
use super::subscriber::{Held, Known, Subscriber};
use radixkv::events::{Batch, EventConfig, EventEncoder};
use radixkv::index::{IndexKind, Namespace};
use radixkv::journal::What;
use radixkv::memory::Arc;
use radixkv::paging::PageTableConfig;
use radixkv::store::{CacheConfig, Scope, Shared};
use radixkv::token::{Item, PageDigest, TokenKind, TokenList, page_digests};
use std::collections::BTreeMap;
use std::mem::MaybeUninit;

pub const PAGE_SIZE: usize = 4;

/// A page table whose cache has a journal.
pub fn cache(index: IndexKind, table: PageTableConfig, journal_bytes: u64) -> Arc<Shared> {
    let shared = Shared::new(table).unwrap();
    shared.attach_cache(CacheConfig { index, journal_bytes, ..CacheConfig::default() }).unwrap();
    shared
}

/// Pages of one group.
pub fn pages(page_count: u32) -> PageTableConfig {
    PageTableConfig {
        page_size: PAGE_SIZE as u32,
        page_count,
        slot_count: 8,
        ..PageTableConfig::default()
    }
}

pub fn encoder(shared: &Arc<Shared>) -> EventEncoder {
    encoder_of_rank(shared, None)
}

pub fn encoder_of_rank(shared: &Arc<Shared>, data_parallel_rank: Option<u32>) -> EventEncoder {
    let config = EventConfig { data_parallel_rank, ..EventConfig::default() };
    EventEncoder::new(shared.clone(), config).unwrap()
}

/// One batch, of so many bytes at most.
pub fn encode(encoder: &EventEncoder, room: usize) -> (Batch, Vec<u8>) {
    let mut bytes = vec![MaybeUninit::new(0); room];
    let batch = encoder.encode(1.5, &mut bytes).unwrap();
    let written = |byte: MaybeUninit<u8>| {
        // SAFETY: all were written in the beginning.
        unsafe { byte.assume_init() }
    };
    (batch, bytes.into_iter().take(batch.bytes).map(written).collect())
}

/// All that is to be told, in batches of random size. Returns how many records were lost.
pub fn drain(encoder: &EventEncoder, to: &mut Subscriber, random: &mut fastrand::Rng) -> u64 {
    let mut lost = 0;
    loop {
        let mut room = random.usize(..3000);
        let (mut batch, mut payload) = encode(encoder, room);
        while batch.needed_bytes > 0 {
            assert_eq!((batch.bytes, batch.event_count), (0, 0));
            assert!(batch.needed_bytes > room && batch.has_more, "{batch:?} of {room}");
            let before = batch.lost_count;
            room = batch.needed_bytes;
            (batch, payload) = encode(encoder, room);
            assert!(batch.lost_count >= before, "a refused call takes nothing");
        }
        lost += batch.lost_count;
        if batch.bytes > 0 {
            to.apply(&payload, PAGE_SIZE);
        }
        if !batch.has_more {
            return lost;
        }
    }
}

/// The number that stands for a digest.
pub fn hash_of(digest: PageDigest) -> u64 {
    u64::from_be_bytes(digest.0[24..].try_into().unwrap())
}

/// What a subscriber must hold, made of what the cache says it holds and of whole prefixes.
pub fn expected(shared: &Shared) -> Held {
    struct Page {
        namespace: Namespace,
        before: u32,
        keys: Vec<(u32, Option<(TokenKind, u32)>)>,
    }
    let (mut spine, mut hung) = (BTreeMap::new(), Vec::new());
    let told = shared.read_contents(0, &mut |record| {
        let What::Stored { namespace, parent, spine: on, tokens, parts, .. } = record.what else {
            panic!("contents are stored pages")
        };
        if record.group > 0 {
            let pairs = record.pages.iter().zip(on);
            hung.extend(pairs.map(|(_, &spine)| (record.group as u64, spine)));
            return true;
        }
        let mut keys: Vec<_> = tokens.iter().map(|&id| (id, None)).collect();
        for part in parts.iter() {
            for at in 0..part.positions {
                keys[part.start + at].1 = Some((part.kind, part.offset + at as u32));
            }
        }
        let mut before = parent;
        for (&page, keys) in record.pages.iter().zip(keys.chunks(PAGE_SIZE)) {
            spine.insert(page, Page { namespace, before, keys: keys.to_vec() });
            before = page;
        }
        true
    });
    assert_eq!(told.unwrap().next_page, 0);
    let known = |page: u32| {
        let (mut path, mut at) = (Vec::new(), page);
        while at != 0 {
            path.push(at);
            at = spine[&at].before;
        }
        path.reverse();
        let all = || path.iter().flat_map(|page| &spine[page].keys);
        let (mut ids, mut items) = (Vec::new(), Vec::new());
        for &(id, item) in all() {
            match item {
                Some((_, offset)) if offset > 0 => continue,
                Some((kind, _)) => items.push(Item { token_index: ids.len(), kind }),
                None => {}
            }
            ids.push(if item.is_some() { 0 } else { id });
        }
        let (tokens, namespace) = (TokenList { ids: &ids, items: &items }, spine[&page].namespace);
        let mut digests = vec![];
        page_digests(tokens, PAGE_SIZE, 0, namespace.digest(), |d| digests.push(hash_of(d)))
            .unwrap();
        let place = path.len() - 1;
        // An image that goes on behind the page is longer than what is held of it.
        let hash = digests[place];
        let tokens = spine[&page].keys.iter();
        let known = Known {
            parent: (place > 0).then(|| digests[place - 1]),
            tokens: tokens.map(|&(id, item)| if item.is_some() { 0 } else { id }).collect(),
            lora_name: namespace.lora.map(|id| id.to_string()),
            extra_keys: None,
        };
        (hash, known)
    };
    let held = spine.keys().map(|&page| {
        let (hash, known) = known(page);
        ((0, hash), known)
    });
    let held: Held = held.collect();
    let of_groups = hung.iter().map(|&(group, page)| {
        let (hash, known) = known(page);
        ((group, hash), known)
    });
    held.clone().into_iter().chain(of_groups).collect()
}

/// What is held, but for what only bytes say.
pub fn compare(to: &Subscriber, shared: &Shared) {
    let mut held = to.held.clone();
    held.values_mut().for_each(|known| known.extra_keys = None);
    assert_eq!(held, expected(shared));
}

/// Namespaces of tenants, adapters and versions.
pub fn namespace(number: u8) -> Namespace {
    let plain = Namespace::default();
    match number {
        0 => plain,
        1 => Namespace { lora: Some(7), ..plain },
        2 => Namespace { salt: [9; 32], ..plain },
        _ => Namespace { lora: Some(0), epoch: u64::from(number), image: Some([1; 16]), ..plain },
    }
}

/// A request that shares its beginning with others, now and then with an image or a size.
pub fn request(shared: &Shared, random: &mut fastrand::Rng) {
    let family = random.u32(..5);
    let mut ids: Vec<u32> = (0..random.u32(1..30)).map(|at| family * 100 + at).collect();
    ids.extend((0..random.u32(..50)).map(|at| 1000 * random.u32(1..50) + at));
    let image = TokenKind::Image { digest: [family as u8; 16], positions: 11 };
    let size = TokenKind::Size { width_bin: 3, height_bin: family };
    let mut items = vec![Item { token_index: ids.len() / 2, kind: image }];
    if ids.len() > 2 {
        items.push(Item { token_index: ids.len() - 1, kind: size });
    }
    items.truncate(if random.u8(..3) == 0 { 2 } else { 0 });
    let tokens = TokenList { ids: &ids, items: &items };
    let Ok(begun) = shared.begin(&namespace(random.u8(..4)), tokens, 0) else { return };
    let mut state = shared.write();
    if begun.copy.is_some() {
        state.confirm_copies(begun.id).unwrap();
    }
    for positions in [random.usize(..=begun.positions), begun.positions] {
        state.publish(begun.id, positions).unwrap();
    }
    state.release(begun.id).unwrap();
}

/// Anything that changes what is held.
pub fn change(shared: &Shared, random: &mut fastrand::Rng) {
    match random.u8(..20) {
        0 => drop(shared.evict(random.usize(1..60), |_, _| {}).unwrap()),
        1 => {
            let free = shared.allocate_pages(random.usize(1..40));
            shared.turn().free_pages(0, &free.unwrap_or_default()).unwrap();
        }
        2 if random.bool() => {
            shared.clear(Scope::exactly(namespace(random.u8(..4)))).unwrap();
        }
        _ => request(shared, random),
    }
}
