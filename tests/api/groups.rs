//! Groups of layers, pools and external pages as a Rust engine has them.
use super::*;
use radixkv::group::{GroupConfig, GroupKind, Groups};
use radixkv::paging::MorePools;
use radixkv::store::GroupRow;

/// A hybrid model's page table: full attention, a window of 9 and states, a pool for each.
fn hybrid() -> (PageTable, Cache) {
    let window = GroupKind::Window { window: 9, sinks: 0 };
    let groups = [GroupKind::Full.in_pool(0), window.in_pool(1), GroupKind::State.in_pool(2)];
    let config = PageTableConfig {
        page_size: 4,
        page_count: 41,
        groups: Groups::new(&groups).unwrap(),
        more_pools: MorePools::new(&[21, 6]).unwrap(),
        ..PageTableConfig::default()
    };
    let table = PageTable::new(config).unwrap();
    let cache = cache(&table, IndexKind::Radix);
    (table, cache)
}

/// G02, G03, G06: a lookup ends where every group can, says what each costs, and keeps what it
/// needs.
#[test]
fn g06_a_match_keeps_the_pages_of_all_groups() {
    let (table, cache) = hybrid();
    let prompt = ids(1, 40);
    let tokens = TokenList::text(&prompt);
    let spine = table.allocate_pages(10).unwrap();
    let window = table.allocate_pool_pages(1, 10).unwrap();
    let mut states = vec![0; 10];
    states[4] = table.allocate_pool_pages(2, 1).unwrap()[0];
    let rows = [GroupRow { group: 1, pages: &window }, GroupRow { group: 2, pages: &states }];
    let done = cache.insert_groups(&SPACE(), tokens, &spine, &rows).unwrap();
    assert_eq!((done.inserted.claimed, done.claimed, done.duplicates), (10, 11, 0));
    assert_eq!(done.pages, [window.clone(), states]);
    drop(done);

    let found = cache.find(&SPACE(), tokens).unwrap();
    assert_eq!((found.positions, found.known, found.limiting_group), (20, 40, 2));
    assert_eq!(found.checkpoint_at, [36, 40]);
    let probe = cache.probe_groups(&SPACE(), tokens).unwrap();
    assert_eq!((probe.positions, probe.known, probe.lost), (20, 40, vec![0, 0, 20]));
    assert_eq!(probe.checkpoint_at, [36, 40]);
    let lock = found.lock.as_ref().unwrap();
    let held: Vec<_> = lock.group_pages(1).unwrap().iter().map(|at| (at.place, at.page)).collect();
    assert_eq!(held, [(3, window[3]), (4, window[4])]);
    assert_eq!(lock.group_pages(2).unwrap().len(), 1);
    assert!(matches!(lock.group_pages(0), Err(Error::Argument(_))));
    let gone = cache.evict_from_pool(1, 100).unwrap();
    assert_eq!((gone.freed, gone.pages.len()), (8, 8));
    assert_eq!(cache.evict_from_pool(2, 1).unwrap().pages, []);
    drop(found);
    assert_eq!(cache.evict_from_pool(2, 1).unwrap().freed, 1);
    // With a page of the first group go those that hang on it.
    let prompt_end = cache.evict_from_pool(0, 6).unwrap();
    let stats = cache.group_stats().unwrap();
    assert_eq!([0, 1, 2].map(|group| stats[group].evicted), [6, 9, 1]);
    assert_eq!((stats[0].cached, stats[2].limited, stats[2].lost), (4, 1, 20));
    assert_eq!((prompt_end.freed, prompt_end.pages.len()), (6, 7));
    check(&table, &cache);
}

/// G07, G11: one call carries out copies of all groups, and confirms them if there are any.
#[test]
fn g07_copies_are_carried_out_and_confirmed() {
    let (table, cache) = hybrid();
    let prompt = ids(1, 24);
    let mut first = cache.begin(&SPACE(), TokenList::text(&prompt), 0).unwrap();
    assert_eq!(first.carry_out_copies(|_, _| panic!("it waits for none")).unwrap(), 0);
    first.publish(20).unwrap();
    assert_eq!(first.checkpoint().unwrap(), 1);
    let mut saved = Vec::new();
    assert_eq!(first.carry_out_copies(|group, copy| saved.push((group, copy))).unwrap(), 1);
    assert_eq!((saved[0].0, saved[0].1.source), (2, first.group_row(2).unwrap()[0]));
    assert_eq!(first.checkpoint().unwrap(), 0, "it can be found");
    let mut second = cache.begin(&SPACE(), TokenList::text(&prompt), 0).unwrap();
    let mut reused = Vec::new();
    assert_eq!(second.carry_out_copies(|group, copy| reused.push((group, copy))).unwrap(), 1);
    let own = second.group_row(2).unwrap()[0];
    assert_eq!((reused[0].1.source, reused[0].1.target), (saved[0].1.target, own));
    second.publish(24).unwrap();
    drop((first, second));
    check(&table, &cache);

    // Of one group: a page that two prompts share the beginning of.
    let table = self::table();
    let cache = self::cache(&table, IndexKind::Radix);
    cache.begin(&SPACE(), TokenList::text(&ids(1, 8)), 0).unwrap().publish(8).unwrap();
    let other = [ids(1, 6), ids(50, 4)].concat();
    let mut sequence = cache.begin(&SPACE(), TokenList::text(&other), 0).unwrap();
    let mut copies = Vec::new();
    assert_eq!(sequence.carry_out_copies(|group, copy| copies.push((group, copy))).unwrap(), 1);
    assert_eq!((copies[0].0, copies[0].1.positions), (0, 2));
    assert!(sequence.copy().unwrap().is_none());
    drop(sequence);
    check(&table, &cache);
}

/// G09: pages come from a pool, and the shortage names it.
#[test]
fn g09_pools_have_numbers() {
    let (table, cache) = hybrid();
    let pages = table.allocate_pool_pages(2, 5).unwrap();
    assert_eq!(table.pool_stats(2).unwrap().private, 5);
    match table.allocate_pool_pages(2, 1) {
        Err(Error::OutOfPages(shortage)) => assert_eq!(shortage.pool, 2),
        other => panic!("{other:?}"),
    }
    assert!(matches!(table.free_pool_pages(1, &pages), Err(Error::Argument(_))));
    table.free_pool_pages(2, &pages).unwrap();
    assert!(matches!(table.pool_stats(3), Err(Error::Argument(_))));
    check(&table, &cache);
}

/// G08: more pages of one pool may go than were asked for; all of them are told.
#[test]
fn g08_what_goes_together_is_told_together() {
    let chunk = GroupConfig::default();
    let groups = Groups::new(&[GroupConfig::default(), chunk]).unwrap();
    let config = PageTableConfig { page_size: 4, page_count: 11, groups, ..Default::default() };
    let table = PageTable::new(config).unwrap();
    let cache = cache(&table, IndexKind::Radix);
    let pages = table.allocate_pages(4).unwrap();
    let rows = [GroupRow { group: 1, pages: &pages[2..] }];
    cache.insert_groups(&SPACE(), TokenList::text(&ids(1, 8)), &pages[..2], &rows).unwrap();
    // The last page of the first group was used longest ago, and takes the other's.
    cache.find(&SPACE(), TokenList::text(&ids(1, 8))).unwrap();
    let gone = cache.evict(1).unwrap();
    assert_eq!(gone.len(), 2, "{gone:?}");
    assert!(gone.contains(&pages[1]) && gone.contains(&pages[3]));
    assert_eq!(table.stats().unwrap().free, 6 + gone.len());
    check(&table, &cache);
}

/// Full attention and a window, each over an external pool.
fn external(page_count: u32) -> (PageTable, Cache) {
    let window = GroupKind::Window { window: 9, sinks: 0 };
    let groups = [GroupKind::Full.in_pool(0), window.in_pool(1)];
    let config = PageTableConfig {
        page_size: 4,
        page_count,
        groups: Groups::new(&groups).unwrap(),
        more_pools: MorePools::new(&[11]).unwrap(),
        external_pool: true,
        ..PageTableConfig::default()
    };
    let table = PageTable::new(config).unwrap();
    let cache = cache(&table, IndexKind::Radix);
    (table, cache)
}

/// J07: with several groups in external pools each page that goes is told, or none goes.
#[test]
fn j07_no_page_of_an_external_pool_goes_untold() {
    let (table, cache) = external(11);
    let rows = [GroupRow { group: 1, pages: &[1, 2] }];
    cache.insert_groups(&SPACE(), TokenList::text(&ids(1, 8)), &[1, 2], &rows).unwrap();
    assert!(matches!(cache.evict(1), Err(Error::Unsupported(_))));
    assert_eq!(table.pool_stats(1).unwrap().cached, 2, "nothing went");
    let gone = cache.evict_from_pool(0, 2).unwrap();
    assert_eq!((gone.freed, gone.pages.len()), (2, 4));
    check(&table, &cache);
}

/// G08: what was cleared goes first, and then what was asked for.
#[test]
fn g08_a_pool_gets_its_pages_behind_what_was_cleared() {
    let (table, cache) = external(41);
    let old = Namespace { epoch: 1, ..SPACE() };
    cache.insert(&old, TokenList::text(&ids(1, 40)), &ids(1, 10)).unwrap();
    let rows = [GroupRow { group: 1, pages: &[1, 2] }];
    cache.insert_groups(&SPACE(), TokenList::text(&ids(1, 8)), &[11, 12], &rows).unwrap();
    cache.clear(Scope::exactly(old)).unwrap();
    assert_eq!(table.pool_stats(1).unwrap().cached, 2);
    let gone = cache.evict_from_pool(1, 2).unwrap();
    assert_eq!((gone.freed, gone.pages.len()), (2, 12));
    assert_eq!(table.pool_stats(1).unwrap().cached, 0);
    check(&table, &cache);
}
