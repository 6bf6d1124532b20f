//! The calls: those that can be long, and what somebody else does meanwhile.
use super::clear::clear;
use super::follow::follow;
use super::fork::{fork, other_drafts};
use super::rows::insert_rows;
use crate::{PAGE_SIZE, PAGES, SLOTS, World, tokens};
use radixkv::error::Error;
use radixkv::index::Namespace;
use radixkv::sequence::{Continuation, Room};
use radixkv::store::{InsertRequest, Shared};
use radixkv::token::{Item, TokenKind, TokenList};

/// A call that can be long, and the slot whose row it may change, if there is one.
pub struct Long {
    pub name: &'static str,
    pub call: fn(&World) -> Result<(), Error>,
    pub slot: fn(&World) -> Option<u32>,
}

/// Maps pages behind those of the caller's row, unless they have become the cache's meanwhile:
/// those he would have to lock.
fn map(world: &World, pages: &[u32]) -> Result<(), Error> {
    let mut turn = world.shared.turn();
    if pages.iter().any(|&page| turn.contains_page(page)) {
        return Ok(());
    }
    let len = turn.row_from(world.row, 0).map_or(0, <[u32]>::len);
    turn.map(world.row, len, pages)
}

pub const LONG: [Long; 32] = [
    Long {
        name: "append again and again",
        call: |world| {
            let mut last = Ok(());
            world.shared.each(4, |turn, _| {
                last = turn.append(world.fresh, TokenList::text(&tokens(5, 5)));
            });
            last
        },
        slot: |world| Some(world.fresh.slot()),
    },
    Long {
        name: "append",
        call: |world| world.shared.append(world.fresh, TokenList::text(&tokens(5, 20))),
        slot: |world| Some(world.fresh.slot()),
    },
    Long {
        name: "append that evicts",
        call: |world| world.shared.append(world.fresh, TokenList::text(&tokens(5, 40))),
        slot: |world| Some(world.fresh.slot()),
    },
    Long {
        name: "append images",
        call: |world| {
            let image = |at: usize| Item {
                token_index: at,
                kind: TokenKind::Image { digest: [at as u8; 16], positions: 9 },
            };
            let (ids, images) = (tokens(5, 6), [image(1), image(4)]);
            world.shared.append(world.fresh, TokenList { ids: &ids, items: &images })
        },
        slot: |world| Some(world.fresh.slot()),
    },
    Long {
        name: "append a coordinate",
        call: |world| {
            let items = [Item { token_index: 0, kind: TokenKind::Coord { bin: 5 } }];
            world.shared.append(world.fresh, TokenList { ids: &[0], items: &items })
        },
        slot: |world| Some(world.fresh.slot()),
    },
    Long {
        name: "slide",
        call: |world| {
            world.shared.allocate(world.short, 36)?;
            world.shared.turn().slide(world.short, 30)
        },
        slot: |world| Some(world.short.slot()),
    },
    Long {
        name: "reserve a long row again and again",
        call: |world| (18..24).try_for_each(|pages| world.shared.reserve_row(world.row, 2 * pages)),
        slot: |world| Some(world.row),
    },
    Long {
        name: "map into a long row",
        call: |world| {
            world.shared.reserve_row(world.row, 40)?;
            (0..3).try_for_each(|at| map(world, &world.to_map[at..=at]))
        },
        slot: |world| Some(world.row),
    },
    Long {
        name: "allocate for a prompt",
        call: |world| world.shared.allocate(world.short, 36),
        slot: |world| Some(world.short.slot()),
    },
    Long {
        name: "append behind a long row",
        call: |world| {
            // Not at a yield: the row is as long as there is room for in all groups.
            let held = crate::NEXT.take();
            drop(world.shared.allocate(world.short, 36));
            crate::NEXT.set(held);
            world.shared.append(world.short, TokenList::text(&tokens(5, 4)))
        },
        slot: |world| Some(world.short.slot()),
    },
    Long {
        name: "reserve",
        call: |world| world.shared.reserve_row(world.row, 30),
        slot: |world| Some(world.row),
    },
    Long { name: "map", call: |world| map(world, &world.to_map), slot: |world| Some(world.row) },
    Long {
        name: "erase",
        call: |world| world.shared.turn().erase(world.row),
        slot: |world| Some(world.row),
    },
    Long { name: "insert", call: |world| insert(&world.shared, 13, 18), slot: |_| None },
    Long {
        name: "insert where some are",
        call: |world| {
            let held = crate::NEXT.take();
            drop(insert(&world.shared, 13, 5));
            crate::NEXT.set(held);
            insert(&world.shared, 13, 24)
        },
        slot: |_| None,
    },
    Long { name: "insert rows", call: |world| insert_rows(world, 18, true), slot: |_| None },
    Long {
        name: "insert rows where some are",
        call: |world| {
            // Not at a yield, so that the first one is as if it had come before.
            let held = crate::NEXT.take();
            drop(insert_rows(world, 5, false));
            crate::NEXT.set(held);
            insert_rows(world, 12, true)
        },
        slot: |_| None,
    },
    Long { name: "begin", call: |world| begin(&world.shared, 6, 36), slot: |_| None },
    Long { name: "begin with a hit", call: |world| begin(&world.shared, 2, 30), slot: |_| None },
    Long {
        name: "begin, and share less",
        call: |world| {
            let ids = tokens(20, 9);
            let list = TokenList::text(&ids);
            let made = world.shared.begin(&Namespace::default(), list, 0)?;
            let shared = world.shared.turn().share_less(made.id, 2)?;
            assert!(shared <= 2);
            Ok(())
        },
        slot: |_| None,
    },
    Long { name: "fork", call: fork, slot: |_| None },
    Long {
        name: "fork what nobody published",
        call: |world| {
            let children = world.shared.fork(world.short, 2, 0)?;
            let infos = [&children[0], &children[1]].map(|child| (child.positions, child.pages));
            assert_eq!(infos[0], infos[1]);
            Ok(())
        },
        slot: |_| None,
    },
    Long {
        name: "continue",
        call: |world| {
            let suffix = tokens(7, 24);
            let how = Continuation {
                parent: world.retained,
                namespace: &Namespace::default(),
                suffix: TokenList::text(&suffix),
                all: None,
                room: Room::default(),
                running: true,
            };
            world.shared.continue_from(&how).map(drop)
        },
        slot: |_| None,
    },
    Long {
        name: "continue with all tokens",
        call: |world| {
            let (suffix, all) = (tokens(7, 24), tokens(7, 40));
            let how = Continuation {
                parent: world.retained,
                namespace: &Namespace::default(),
                suffix: TokenList::text(&suffix),
                all: Some(TokenList::text(&all)),
                room: Room::default(),
                running: true,
            };
            let begun = world.shared.continue_from(&how);
            // Whoever goes meanwhile, but for the cache.
            let is_stale = matches!(begun, Err(Error::StaleSequence(_)));
            assert!(!is_stale || !world.shared.read().has_cache(), "it was said how to begin");
            begun.map(drop)
        },
        slot: |_| None,
    },
    Long {
        name: "allocate",
        call: |world| {
            let pages = world.shared.allocate_pages(20)?;
            assert_eq!(pages.len(), 20);
            world.shared.turn().free_pages(0, &pages)
        },
        slot: |_| None,
    },
    Long {
        name: "publish",
        call: |world| {
            world.shared.allocate(world.short, 36)?;
            world.shared.turn().publish(world.short, 36).map(drop)
        },
        slot: |world| Some(world.short.slot()),
    },
    Long {
        name: "release",
        call: |world| world.shared.turn().release(world.short),
        slot: |world| Some(world.short.slot()),
    },
    Long {
        name: "evict",
        call: |world| world.shared.evict(10, |_, _| {}).map(drop),
        slot: |_| None,
    },
    Long {
        name: "allocate in another pool",
        call: |world| {
            let has_one = world.shared.read().pool_stats(1).is_ok();
            let pages = world.shared.allocate_pool_pages(u32::from(has_one), 8)?;
            world.shared.turn().free_pages(u32::from(has_one), &pages)
        },
        slot: |_| None,
    },
    Long {
        name: "evict in another pool",
        call: |world| {
            let has_one = world.shared.read().pool_stats(1).is_ok();
            world.shared.evict_from_pool(u32::from(has_one), 10, 100, |_| {}).map(drop)
        },
        slot: |_| None,
    },
    Long { name: "clear", call: clear, slot: |_| None },
    Long { name: "follow the journal", call: |world| follow(&world.shared), slot: |_| None },
];

pub fn begin(shared: &Shared, family: u32, count: u32) -> Result<(), Error> {
    let ids = tokens(family, count);
    shared.begin(&Namespace::default(), TokenList::text(&ids), 0).map(drop)
}

/// Publishes so many pages of the caller's in one call, and frees those that were there.
pub fn insert(shared: &Shared, family: u32, count: u32) -> Result<(), Error> {
    let pages = shared.allocate_pages(count as usize)?;
    let ids = tokens(family, count * PAGE_SIZE);
    let request = InsertRequest {
        groups: &[],
        namespace: &Namespace::default(),
        tokens: TokenList::text(&ids),
        pages: &pages,
        from: None,
        from_token: 0,
        from_page: 0,
        lock: true,
        moved: None,
    };
    let mut turn = shared.turn();
    let inserted = turn.insert(request, |state, done, _| {
        let mut published = vec![0; pages.len()];
        let into = |start: usize, part: &[u32]| {
            published[start..start + part.len()].copy_from_slice(part);
        };
        state.visit_path(done.node, 0, into).unwrap();
        assert_eq!(done.pages, pages.len());
        let claimed = published.iter().zip(&pages).filter(|(theirs, ours)| theirs == ours);
        assert_eq!((claimed.count(), pages.len()), (done.claimed, done.claimed + done.duplicates));
        (published, done.lock.expect("it was asked for"))
    });
    let ours = |published: &[u32]| {
        let ours = pages.iter().zip(published).filter(|(ours, theirs)| ours != theirs);
        ours.map(|(&ours, _)| ours).collect::<Vec<_>>()
    };
    match inserted {
        Ok(((published, lock), known)) => {
            assert_eq!(known, published[..known.len()]);
            turn.free_pages(0, &ours(&published))?;
            // Nobody else knows it; without its cache it is gone.
            let ended = turn.unlock(lock);
            assert!(ended.is_ok() || turn.cache_stats().is_err(), "{ended:?}");
            Ok(())
        }
        Err(error) if turn.cache_stats().is_err() => {
            // What it had taken went with the cache.
            pages.iter().for_each(|page| drop(turn.free_pages(0, &[*page])));
            Err(error)
        }
        Err(error) => {
            turn.free_pages(0, &pages)?;
            Err(error)
        }
    }
}

/// What somebody else does meanwhile. It may be refused.
pub type Second = (&'static str, fn(&World));

pub const SECOND: [Second; 38] = [
    ("release", |world| drop(world.shared.turn().release(world.fresh))),
    ("release, and another takes the slot", |world| {
        drop(world.shared.turn().release(world.fresh));
        drop(begin(&world.shared, 8, 4));
    }),
    ("release, and others take all slots", |world| {
        drop(world.shared.turn().release(world.fresh));
        (0..SLOTS).for_each(|family| drop(begin(&world.shared, 30 + family, 3)));
    }),
    ("retain", |world| drop(world.shared.turn().retain(world.fresh))),
    ("append to the same", |world| {
        drop(world.shared.append(world.fresh, TokenList::text(&tokens(9, 3))));
    }),
    ("append much to the same", |world| {
        drop(world.shared.append(world.fresh, TokenList::text(&tokens(9, 24))));
    }),
    ("release the prompt", |world| drop(world.shared.turn().release(world.short))),
    ("release the prompt, and another takes the slot", |world| {
        drop(world.shared.turn().release(world.short));
        drop(begin(&world.shared, 8, 4));
    }),
    ("allocate for the same", |world| drop(world.shared.allocate(world.short, 9))),
    ("allocate all for the same", |world| drop(world.shared.allocate(world.short, 36))),
    ("append to the prompt", |world| {
        drop(world.shared.append(world.short, TokenList::text(&tokens(9, 3))));
    }),
    ("publish the same", |world| drop(world.shared.write().publish(world.fresh, 4))),
    ("fork the same", |world| drop(world.shared.fork(world.fresh, 1, 4))),
    ("truncate", |world| drop(world.shared.write().truncate(world.published, 7))),
    ("other draft tokens for the parent", other_drafts),
    ("append to the parent", |world| {
        drop(world.shared.append(world.published, TokenList::text(&tokens(9, 3))));
    }),
    ("release the parent", |world| drop(world.shared.turn().release(world.published))),
    ("retain the parent", |world| drop(world.shared.turn().retain(world.published))),
    ("confirm a copy", |world| drop(world.shared.write().confirm_copies(world.child))),
    ("release the child", |world| drop(world.shared.turn().release(world.child))),
    ("drop the retained", |world| drop(world.shared.turn().drop_retained(world.retained))),
    ("drop any retained", |world| drop(world.shared.drop_retained(0, PAGES as usize))),
    ("erase", |world| drop(world.shared.turn().erase(world.row))),
    ("erase, and another takes the slot", |world| {
        drop(world.shared.turn().erase(world.row));
        let slot = world.shared.write().allocate_slot();
        drop(slot.and_then(|slot| world.shared.reserve_row(slot, 3)));
    }),
    ("erase, and a sequence takes the slot", |world| {
        drop(world.shared.turn().erase(world.row));
        drop(begin(&world.shared, 8, 4));
    }),
    ("map into the row", |world| {
        drop(map(world, &world.loose[..1]));
    }),
    ("reserve the row", |world| drop(world.shared.reserve_row(world.row, 16))),
    ("allocate", |world| drop(world.shared.allocate_pages(4))),
    ("take all pages", |world| {
        let stats = world.shared.read().page_table_stats();
        drop(world.shared.allocate_pages(stats.free + stats.reclaimable));
    }),
    ("evict all", |world| drop(world.shared.evict(PAGES as usize, |_, _| {}))),
    ("take all pages of another pool", |world| {
        let Ok(stats) = world.shared.read().pool_stats(1) else { return };
        drop(world.shared.allocate_pool_pages(1, stats.free + stats.reclaimable));
    }),
    ("evict all of another pool", |world| {
        drop(world.shared.evict_from_pool(1, 100, 1000, |_| {}));
    }),
    ("publish the same, and save its states", |world| {
        drop(world.shared.write().publish(world.fresh, 4));
        drop(world.shared.turn().checkpoint(world.fresh));
    }),
    ("insert the same", |world| drop(insert(&world.shared, 13, 3))),
    ("insert the same rows", |world| drop(insert_rows(world, 9, false))),
    ("insert a longer one", |world| drop(insert(&world.shared, 13, 20))),
    ("clear", |world| drop(clear(world))),
    // Not the page that is mapped into a row: who maps what the cache owns has to lock it.
    ("insert and unlock", |world| {
        let ids = tokens(11, 4);
        let mut turn = world.shared.turn();
        // They may have been evicted since, and be in the row by now.
        let row = turn.row_from(world.row, 0).map_or(&[][..], |row| row);
        if world.loose[1..].iter().any(|page| row.contains(page)) {
            return;
        }
        let request = InsertRequest {
            groups: &[],
            namespace: &Namespace::default(),
            tokens: TokenList::text(&ids),
            pages: &world.loose[1..],
            from: None,
            from_token: 0,
            from_page: 0,
            lock: false,
            moved: None,
        };
        drop(turn.insert(request, |_, done, _| done));
        drop(turn.unlock(world.locked));
    }),
];
