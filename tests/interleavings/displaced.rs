//! Retained sequences that give way while others do.
use crate::{NEXT, SHARED, at_yield};
use radixkv::ids::SequenceId;
use radixkv::index::Namespace;
use radixkv::paging::PageTableConfig;
use radixkv::store::{CacheConfig, Shared};
use radixkv::token::TokenList;
use std::sync::Arc;

/// A cache over so many pages, of which retained sequences keep so many.
fn cache(page_count: u32, retained_pages: u32) -> Arc<Shared> {
    NEXT.set(None);
    let config =
        PageTableConfig { page_size: 2, page_count, slot_count: 6, ..PageTableConfig::default() };
    let shared = Arc::new(Shared::with_slices(config, 1, Some(Box::new(at_yield))).unwrap());
    shared.attach_cache(CacheConfig { retained_pages, ..CacheConfig::default() }).unwrap();
    SHARED.set(Some(shared.clone()));
    shared
}

/// Publishes all but the last token.
fn published(shared: &Shared, ids: &[u32]) -> SequenceId {
    let id = shared.begin(&Namespace::default(), TokenList::text(ids), 0).unwrap().id;
    shared.turn().publish(id, ids.len() - 1).unwrap();
    id
}

/// C05, M06: what one call is letting go of is no reason for another one to drop more.
#[test]
fn m06_what_gives_way_already_counts_no_more() {
    for at in 0.. {
        let shared = cache(40, 9);
        let fork: Vec<u32> = (0..4).collect();
        let other = published(&shared, &[&fork[..], &[900, 901, 902, 903, 904]].concat());
        shared.turn().release(other).unwrap();
        // Two nodes of two pages; the others have one node.
        let oldest = published(&shared, &[&fork[..], &[100, 101, 102, 103, 104]].concat());
        assert!(shared.turn().retain(oldest).unwrap());
        let fits = published(&shared, &(200..209).collect::<Vec<u32>>());
        assert!(shared.turn().retain(fits).unwrap());
        let last = published(&shared, &(300..309).collect::<Vec<u32>>());
        let small = published(&shared, &[400, 401, 402]);
        NEXT.set(Some((
            at,
            Box::new(move |shared: &Shared| assert!(shared.turn().retain(small).unwrap())),
        )));
        assert!(shared.turn().retain(last).unwrap());
        if NEXT.take().is_some() {
            assert!(at > 0, "nobody got in");
            break;
        }
        // 4 + 4 + 1 pages are not more than 9.
        let kept = shared.read().retained_ids().unwrap();
        assert!([fits, last, small].iter().all(|id| kept.contains(id)), "at {at}: {kept:?}");
        shared.read().audit().unwrap();
    }
}

/// C05, M06: nor is what is dropped: who retains meanwhile stays.
#[test]
fn m06_what_is_dropped_already_counts_no_more() {
    for at in 0.. {
        let shared = cache(40, 5);
        let fork: Vec<u32> = (0..4).collect();
        let other = published(&shared, &[&fork[..], &[900, 901, 902, 903, 904]].concat());
        shared.turn().release(other).unwrap();
        // Two nodes of two pages.
        let dropped = published(&shared, &[&fork[..], &[100, 101, 102, 103, 104]].concat());
        assert!(shared.turn().retain(dropped).unwrap());
        let fits = published(&shared, &(200..209).collect::<Vec<u32>>());
        NEXT.set(Some((
            at,
            Box::new(move |shared: &Shared| assert!(shared.turn().retain(fits).unwrap())),
        )));
        shared.turn().drop_retained(dropped).unwrap();
        if NEXT.take().is_some() {
            assert!(at > 0, "nobody got in");
            break;
        }
        assert_eq!(shared.read().retained_ids().unwrap(), [fits], "at {at}");
        assert_eq!(shared.read().cache_stats().unwrap().counters.displaced, 0, "at {at}");
        shared.read().audit().unwrap();
    }
}

/// C05, M06: a sequence that is too large to be retained displaces nobody, also while it is let go
/// of in portions.
#[test]
fn m06_what_is_not_retained_displaces_nobody() {
    for at in 0.. {
        let shared = cache(60, 9);
        // A node of ten pages, and others below it.
        let fork: Vec<u32> = (0..20).collect();
        let other = published(&shared, &[&fork[..], &[900, 901, 902, 903, 904]].concat());
        shared.turn().release(other).unwrap();
        let fits = published(&shared, &(200..209).collect::<Vec<u32>>());
        assert!(shared.turn().retain(fits).unwrap());
        let large = published(&shared, &[&fork[..], &[100, 101, 102, 103, 104]].concat());
        let small = published(&shared, &[400, 401, 402]);
        NEXT.set(Some((
            at,
            Box::new(move |shared: &Shared| assert!(shared.turn().retain(small).unwrap())),
        )));
        let is_retained = shared.turn().retain(large).unwrap();
        assert!(!is_retained, "12 pages are more than 9");
        if NEXT.take().is_some() {
            assert!(at > 0, "nobody got in");
            break;
        }
        let kept = shared.read().retained_ids().unwrap();
        assert!([fits, small].iter().all(|id| kept.contains(id)), "at {at}: {kept:?}");
        shared.read().audit().unwrap();
    }
}
