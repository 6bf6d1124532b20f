//! Inserts of pages of several groups, which come in portions of one place.
use crate::{PAGE_SIZE, World, tokens};
use radixkv::error::Error;
use radixkv::group::{GroupConfig, GroupKind};
use radixkv::ids::LockId;
use radixkv::index::Namespace;
use radixkv::store::{GroupRow, InsertRequest, InsertResult, Shared, State, Turn};
use radixkv::token::TokenList;
use std::cell::RefCell;

/// The prompt.
const FAMILY: u32 = 14;

/// The pool of each group, and the places at which pages of it are given.
fn given(shared: &Shared, count: usize) -> Vec<(u32, Vec<usize>)> {
    let groups = shared.read().groups();
    let given = |config: &GroupConfig| match config.kind {
        GroupKind::Full => (config.pool, (0..count).collect()),
        GroupKind::State => (config.pool, vec![count / 2, count - 1]),
        _ => (config.pool, (count.saturating_sub(7)..count).collect()),
    };
    groups.list().iter().map(given).collect()
}

/// Frees the pages of rows that are still the caller's.
fn free(turn: &mut Turn<'_>, given: &[(u32, Vec<usize>)], rows: &[Vec<u32>]) {
    for ((pool, _), row) in given.iter().zip(rows) {
        for &page in row.iter().filter(|&&page| page != 0) {
            let freed = turn.free_pages(*pool, &[page]);
            assert!(freed.is_ok() || turn.cache_stats().is_err(), "{page} of {pool}: {freed:?}");
        }
    }
}

/// Pages for the rows.
fn allocate(shared: &Shared, given: &[(u32, Vec<usize>)]) -> Result<Vec<Vec<u32>>, Error> {
    let (count, mut rows) = (given[0].1.len(), Vec::new());
    for (pool, places) in given {
        let pages = match shared.allocate_pool_pages(*pool, places.len()) {
            Ok(pages) => pages,
            Err(error) => {
                free(&mut shared.turn(), given, &rows);
                return Err(error);
            }
        };
        let mut row = vec![0; count];
        places.iter().zip(pages).for_each(|(&place, page)| row[place] = page);
        rows.push(row);
    }
    Ok(rows)
}

/// Publishes so many pages of group 0 and some of others in one call, and frees those of which
/// others were there.
pub fn insert_rows(world: &World, count: usize, lock: bool) -> Result<(), Error> {
    let (shared, ids) = (&world.shared, tokens(FAMILY, count as u32 * PAGE_SIZE));
    let given = given(shared, count);
    let mut rows = allocate(shared, &given)?;
    let groups = rows.iter().enumerate().skip(1);
    let groups: Vec<_> = groups.map(|(group, pages)| GroupRow { group, pages }).collect();
    let request = InsertRequest {
        groups: &groups,
        namespace: &Namespace::default(),
        tokens: TokenList::text(&ids),
        pages: &rows[0],
        from: None,
        from_token: 0,
        from_page: 0,
        lock,
        moved: None,
    };
    let published = RefCell::new(vec![vec![0; count]; rows.len()]);
    let mut tell = |row: usize, place: usize, page| published.borrow_mut()[row + 1][place] = page;
    let then = |state: &mut State, done: InsertResult, _| {
        let published = &mut *published.borrow_mut();
        state.visit_path(done.node, 0, |start, part| {
            published[0][start..start + part.len()].copy_from_slice(part);
        })?;
        for row in &groups {
            let told = published[row.group].clone();
            state.write_group_row(done.node, row.group, |place, page| {
                published[row.group][place] = page;
            })?;
            // What others put where nothing was is not told.
            let is_other = |(&told, &now): (&u32, &u32)| told != 0 && told != now;
            let others = told.iter().zip(&published[row.group]).filter(|at| is_other(*at)).count();
            assert!(!done.hung.told || others == 0, "{told:?} is there: {published:?} {done:?}");
            if let Some(lock) = done.lock {
                check_locked(state, (lock, row.group), &published[row.group], row.pages);
            }
        }
        Ok::<_, Error>(done)
    };
    let mut turn = shared.turn();
    let done = turn.insert_telling(request, Some(&mut tell), then).and_then(|(done, _)| done);
    let done = match done {
        Ok(done) => done,
        Err(error) => {
            free(&mut turn, &given, &rows);
            return Err(error);
        }
    };
    assert_eq!(done.pages, count);
    let published = published.into_inner();
    let mut claimed = vec![0; rows.len()];
    for (group, row) in rows.iter_mut().enumerate() {
        for (page, &published) in row.iter_mut().zip(&published[group]) {
            if *page == published && *page != 0 {
                claimed[group] += 1;
                *page = 0;
            }
        }
    }
    assert_eq!(claimed[0], done.claimed);
    assert_eq!(claimed[1..].iter().sum::<usize>(), done.hung.claimed);
    free(&mut turn, &given, &rows);
    if let Some(lock) = done.lock {
        let ended = turn.unlock(lock);
        assert!(ended.is_ok() || turn.cache_stats().is_err(), "{ended:?}");
    }
    Ok(())
}

/// A lock protects the pages that the end needs, as they were told.
fn check_locked(state: &State, (lock, group): (LockId, usize), published: &[u32], given: &[u32]) {
    let locked = state.locked_pages(lock, group).unwrap();
    for (place, page) in locked.iter() {
        assert_eq!(published[place as usize], page, "group {group}, place {place}");
    }
    // Each group's last page was given, and is needed.
    let last = given.len() - 1;
    assert!(locked.iter().any(|(place, _)| place as usize == last), "group {group}: {locked:?}");
}
