//! Which states a path keeps, and what becomes of those of a sequence: small stories.
use super::failing::{Failure, failing};
use super::library::{Library, World, must, sized};
use super::model::Kind;
use super::order::{places, prompt};
use super::worlds::{drafting, group, world};
use radixkv::capi::*;
use std::ptr::{null, null_mut};

const PAGE: usize = 4;

fn limited(checkpoint_limit: u64, world: World) -> World {
    World { checkpoint_limit, ..world }
}

/// A request that computes a prompt from where it is known, and saves its states at the end of each
/// of these pages.
fn serve(library: &Library, ids: &[u32], pages: &[usize]) -> rkv_sequence_id {
    let begun = library.begin(0, ids, 0).unwrap();
    if begun.copy_count > 0 {
        library.confirm(begun.sequence);
    }
    for &end in pages.iter().filter(|&&end| end * PAGE > begun.cached_position_count as usize) {
        library.publish(begun.sequence, end * PAGE);
        if library.checkpoint(begun.sequence).unwrap() > 0 {
            library.confirm(begun.sequence);
        }
    }
    library.publish(begun.sequence, ids.len());
    begun.sequence
}

/// G08: a chat keeps the states of its last turns. They are free at once, which no eviction counts.
#[test]
fn g08_a_path_keeps_its_last_states() {
    let library = Library::new(&limited(2, world(4, &[group(Kind::State, 1)], &[60, 20])));
    for turn in 1..=6 {
        let ids = prompt(&[], 2 * turn + 1);
        library.release(serve(&library, &ids, &[2 * turn]));
    }
    assert_eq!(places(&library, &prompt(&[], 12), 1, 2), [9, 11]);
    let stats = library.stats();
    assert_eq!((stats.dropped_checkpoint_count, stats.evicted_page_count), (4, 0));
    let counts = library.counts(1);
    assert_eq!((counts.cached, counts.free, counts.reclaimable), (2, 18, 2));
    library.check();
}

/// G08: where prompts leave each other a state stays, and where somebody copies one.
#[test]
fn g08_a_limit_spares_forks_and_what_is_in_use() {
    let library = Library::new(&limited(1, world(4, &[group(Kind::State, 1)], &[90, 20])));
    let long = prompt(&[], 9);
    let with = |at: usize| -> Vec<u32> {
        let change = |(place, id): (usize, &u32)| if place < at * PAGE { *id } else { id + 7 };
        long.iter().enumerate().map(change).collect()
    };
    library.release(serve(&library, &long, &[3]));
    // It leaves the other one where that has its state.
    library.release(serve(&library, &with(3), &[3, 8]));
    library.release(serve(&library, &long, &[5]));
    let copying = library.begin(0, &long, 0).unwrap();
    assert_eq!(copying.cached_position_count as usize, 5 * PAGE);
    library.release(serve(&library, &long, &[6]));
    assert_eq!(places(&library, &long[..32], 1, 2), [2, 4, 5]);
    library.confirm(copying.sequence);
    library.release(copying.sequence);
    library.release(serve(&library, &long, &[7]));
    assert_eq!(places(&library, &long[..32], 1, 2), [2, 6]);
    assert_eq!(places(&library, &with(3)[..32], 1, 2), [2, 7]);
    // Without the other one there is no fork any more.
    library.lookup(0, &long, false);
    library.lookup(0, &with(3)[..36], true);
    assert_eq!(library.stats().dropped_checkpoint_count, 2);
    library.check();
}

/// G08: what lies far back is found without a walk over all that lies between.
#[test]
fn g08_states_that_are_far_apart() {
    let far = limited(1, world(1, &[group(Kind::State, 1)], &[40_000, 9]));
    let library = Library::new(&far);
    let ids = prompt(&[], 10_000)[..30_000].to_vec();
    let id = library.begin(0, &ids, 0).unwrap().sequence;
    for end in [1, 9_000, 29_000] {
        library.publish(id, end);
        assert_eq!(library.checkpoint(id), Ok(1));
        library.confirm(id);
    }
    library.release(id);
    assert_eq!((library.counts(1).cached, library.probe(0, &ids).positions), (1, 29_000));
    assert_eq!(library.stats().dropped_checkpoint_count, 2);
}

/// G08: an eviction between two turns leaves no gap: what lies before is known still.
#[test]
fn g08_a_state_that_was_evicted_leaves_no_gap() {
    let library = Library::new(&limited(2, world(4, &[group(Kind::State, 1)], &[60, 20])));
    let ids = prompt(&[], 9);
    library.release(serve(&library, &ids, &[2, 4]));
    // Used again, so the other one goes.
    assert_eq!(library.lookup(0, &ids[..9], false).positions, 8);
    assert_eq!(library.evict(1, 1).1, 1);
    assert_eq!(places(&library, &ids[..32], 1, 2), [1]);
    library.release(serve(&library, &ids, &[6]));
    assert_eq!(places(&library, &ids[..32], 1, 2), [1, 5]);
    library.release(serve(&library, &ids, &[8]));
    assert_eq!(places(&library, &ids[..32], 1, 2), [5, 7]);
}

/// G08: a state that was evicted and is saved once more at its place knows what lies before it.
#[test]
fn g08_a_state_that_is_saved_again_leaves_no_gap() {
    let library = Library::new(&limited(2, world(4, &[group(Kind::State, 1)], &[60, 20])));
    let ids = prompt(&[], 9);
    let id = library.begin(0, &ids, 0).unwrap().sequence;
    let save = |end: usize| {
        library.publish(id, end * PAGE);
        assert_eq!(library.checkpoint(id), Ok(1));
        library.confirm(id);
    };
    save(2);
    save(4);
    // Used again, so the other one goes.
    assert_eq!(library.lookup(0, &ids[..9], false).positions, 8);
    assert_eq!(library.evict(1, 1).1, 1);
    assert_eq!(places(&library, &ids[..16], 1, 2), [1]);
    save(4);
    save(6);
    assert_eq!(places(&library, &ids[..24], 1, 2), [3, 5]);
    library.release(id);
    library.check();
}

/// G08: pages of an external pool leave by eviction alone: what is too much goes first.
#[test]
fn g08_in_an_external_pool_they_are_the_next_to_go() {
    let inside = limited(1, world(4, &[group(Kind::State, 1)], &[60, 20]));
    let library = Library::new(&World { external: true, ..inside });
    let ids = prompt(&[], 6);
    let spine: Vec<u32> = (1..=6).collect();
    for (place, page) in [(1, 11), (3, 12), (5, 13)] {
        let mut states = vec![0; 6];
        states[place] = page;
        library.insert(0, &ids, &vec![spine.clone(), states], false).unwrap();
    }
    assert_eq!(library.counts(1).cached, 3);
    assert_eq!(library.stats().dropped_checkpoint_count, 0);
    // The first of them was used last, and goes first.
    assert_eq!(library.evict(1, 2).0, [(1, 11), (1, 12)]);
    assert_eq!(library.lookup(0, &ids, false).positions, 24);
}

/// J07: what was cleared goes before all that can still be found, in every pool.
#[test]
fn j07_what_was_cleared_goes_first_in_every_pool() {
    let inside = world(4, &[group(Kind::State, 1)], &[60, 20]);
    let library = Library::new(&World { external: true, ..inside });
    let (old, new) = (prompt(&[7], 2), prompt(&[8], 2));
    let rows = vec![vec![1, 2], vec![0, 11]];
    let (_, _, lock) = library.insert(0, &old, &rows, true).unwrap();
    library.clear();
    library.insert(0, &new, &vec![vec![3, 4], vec![0, 12]], false).unwrap();
    // Who had what was cleared ends later than the new one came.
    library.unlock(lock);
    let (gone, freed) = library.evict(1, 1);
    assert_eq!((&gone[..], freed), (&[(1, 11), (0, 2)][..], 1));
    assert_eq!(library.lookup(0, &new, false).positions, 8);
    // A page without a state is cleared, too, and goes before the live state.
    let (gone, freed) = library.evict(1, 1);
    assert_eq!((&gone[..], freed), (&[(0, 1), (1, 12)][..], 1));
    library.check();
}

/// J07: the same where what no end needs would go first.
#[test]
fn j07_what_was_cleared_goes_before_inner_pages() {
    let inside = world(4, &[group(Kind::Window(5, 0), 0)], &[60]);
    let library = Library::new(&World { external: true, ..inside });
    let (old, new) = (prompt(&[7], 2), prompt(&[8], 6));
    library.insert(0, &old, &vec![vec![1, 2], vec![21, 22]], false).unwrap();
    library.clear();
    let spine: Vec<u32> = (3..9).collect();
    let windows: Vec<u32> = (31..37).collect();
    library.insert(0, &new, &vec![spine, windows], false).unwrap();
    let (gone, _) = library.evict(0, 4);
    assert!(gone.iter().all(|(_, page)| [1, 2, 21, 22].contains(page)), "{gone:?}");
    assert_eq!(gone.len(), 4);
}

/// G08: what the states that went needed of a window is not kept for them.
#[test]
fn g08_a_window_is_not_kept_for_states_that_went() {
    let groups = [group(Kind::State, 1), group(Kind::Window(5, 0), 2)];
    let library = Library::new(&limited(1, world(4, &groups, &[60, 20, 40])));
    let ids = prompt(&[], 9);
    library.release(serve(&library, &ids, &[2, 4, 8]));
    assert_eq!(library.evict(2, 7).1, 7);
    assert_eq!(places(&library, &ids[..32], 2, 3), [7]);
    assert_eq!(library.probe(0, &ids).positions, 32);
}

/// M01: a limit that is too large, or of states that there are not, is refused.
#[test]
fn g08_a_limit_that_makes_no_sense_is_refused() {
    let refused = |limit: u64, groups: &[_]| {
        let mut status = rkv_status::Ok;
        let config = rkv_cache_config { checkpoint_limit: limit, ..sized() };
        let between = &mut |library: &Library| status = library.create_cache(&config);
        Library::new(&world(4, groups, &[20])).restart_cache(between);
        status
    };
    let state = [group(Kind::State, 0)];
    assert_eq!(refused(513, &state), rkv_status::InvalidArgument);
    assert_eq!(refused(1, &[]), rkv_status::Unsupported);
    assert_eq!(refused(1, &[group(Kind::Window(4, 0), 0)]), rkv_status::Unsupported);
    let most = limited(512, world(4, &state, &[20]));
    assert_eq!(Library::new(&most).create_cache(&sized()), rkv_status::Busy, "it has one");
}

/// G07: at its end a sequence leaves its states to the cache as they are, without a copy.
#[test]
fn g07_a_sequence_donates_its_states() {
    let library = Library::new(&world(4, &[drafting(1, 1)], &[60, 4]));
    let ids = prompt(&[], 4);
    let id = library.begin(0, &ids, 0).unwrap().sequence;
    library.publish(id, 16);
    let state = library.group_row(id, 1)[0];
    // A child that is still to copy it does so from the checkpoint.
    let child = library.fork(id, (1, 0)).unwrap()[0];
    assert_eq!(library.donate(id), 1);
    assert_eq!((library.counts(1).cached, library.counts(1).reclaimable), (1, 0));
    assert_eq!(library.copies(child)[0].source_page, state);
    library.confirm(child);
    assert_eq!(library.counts(1).reclaimable, 1);
    let mut longer = ids.clone();
    longer.push(1);
    assert_eq!(library.probe(0, &longer).positions, 16);
    // It is there already.
    library.publish(child, 16);
    assert_eq!(library.donate(child), 0);
    // None after positions that end inside a page.
    let id = library.begin(0, &longer, 0).unwrap().sequence;
    library.confirm(id);
    library.publish(id, 17);
    assert_eq!(library.donate(id), 0);
    assert_eq!((library.counts(1).free, library.counts(1).cached), (3, 1));
    let one = Library::new(&world(4, &[], &[60]));
    let id = one.begin(0, &ids, 0).unwrap().sequence;
    // SAFETY: the handle lives as long as the library.
    let status = unsafe { rkv_sequence_donate(one.cache(), id, null_mut()) };
    assert_eq!(status, rkv_status::Unsupported);
    one.release(id);
}

/// G11, C08: what retained sequences keep is counted in each pool, once.
#[test]
fn g11_retained_pages_are_counted_in_each_pool() {
    let groups = [group(Kind::Window(9, 0), 1), drafting(1, 2)];
    let library = Library::new(&world(4, &groups, &[60, 40, 9]));
    let ids = prompt(&[], 6);
    let retained = || [0, 1, 2].map(|pool| library.counts(pool).retained);
    let mut kept = Vec::new();
    for _ in 0..2 {
        let id = library.begin(0, &ids, 0).unwrap().sequence;
        library.publish(id, 24);
        library.retain(id);
        kept.push(id);
        // A window of 9 before position 24 is in two pages; the draft state has gone.
        assert_eq!(retained(), [6, 2, kept.len() as u64]);
    }
    let id = library.begin(0, &ids[..22], 0).unwrap().sequence;
    library.publish(id, 22);
    library.retain(id);
    // Page 5 is its own in both groups, and page 3 is in the window.
    assert_eq!(retained(), [7, 4, 3]);
    library.drop_sequence(id);
    assert_eq!(library.allocate(2, 9), Err(rkv_status::OutOfPages));
    assert_eq!(library.shortage().retained_page_count, 2);
    kept.into_iter().for_each(|id| library.drop_sequence(id));
    assert_eq!(retained(), [0, 0, 0]);
}

/// G11: the state after the last draft token that is kept is the sequence's.
#[test]
fn g11_draft_tokens_are_taken_back_with_their_states() {
    let library = Library::new(&world(4, &[drafting(2, 1)], &[60, 9]));
    let ids = prompt(&[], 3);
    let id = library.begin(0, &ids, 0).unwrap().sequence;
    library.publish(id, 12);
    let row = library.group_row(id, 1);
    assert_eq!(row.len(), 3);
    library.append(id, &[5, 6, 7]).unwrap();
    let refused = Err(rkv_status::InvalidArgument);
    assert_eq!(library.truncate(id, 12), refused, "the state was changed in place");
    library.truncate(id, 14).unwrap();
    assert_eq!(library.group_row(id, 1), [row[1], row[0], row[2]]);
    // The state is after 14: the next step begins there.
    assert_eq!(library.checkpoint(id), Err(rkv_status::InvalidState), "it is not published");
    library.append(id, &[8, 9, 10, 11]).unwrap();
    assert_eq!(library.truncate(id, 18), refused, "there are three states after 14");
    library.truncate(id, 17).unwrap();
    assert_eq!(library.group_row(id, 1), [row[2], row[0], row[1]]);
    // Not computed: all but the first are taken back, and the state stays where it is.
    library.append(id, &[1, 2]).unwrap();
    library.truncate(id, 18).unwrap();
    assert_eq!(library.group_row(id, 1), [row[2], row[0], row[1]]);
    library.release(id);
    // Without draft states there is nothing to take back to.
    let library = Library::new(&world(4, &[drafting(2, 1), group(Kind::State, 1)], &[60, 9]));
    let id = library.begin(0, &ids, 0).unwrap().sequence;
    library.publish(id, 12);
    library.append(id, &[5, 6]).unwrap();
    assert_eq!(library.truncate(id, 13), Err(rkv_status::Unsupported));
    library.release(id);
}

/// G02: a lookup goes past so many missing pages and no more: it ends there, and finds nothing.
#[test]
fn g02_a_long_gap_is_a_miss() {
    for (gap, found) in [(16_384, 1), (16_385, 0)] {
        let library = Library::new(&world(1, &[group(Kind::State, 1)], &[20_000, 9]));
        let ids = prompt(&[], 5_000)[..gap + 1].to_vec();
        let (spine, state) =
            (library.allocate(0, gap + 1).unwrap(), library.allocate(1, 1).unwrap());
        let mut states = vec![0; gap + 1];
        states[0] = state[0];
        library.insert(0, &ids, &vec![spine, states], false).unwrap();
        assert_eq!(library.probe(0, &ids).positions, found, "{gap} pages without a state");
    }
}

/// J07: a page that stays outside as a duplicate is one: also when two rows name it.
#[test]
fn g02_a_duplicate_is_given_once() {
    let groups = [group(Kind::Full, 0), group(Kind::Window(9, 0), 0)];
    let inside = world(4, &groups, &[20]);
    let library = Library::new(&World { external: true, ..inside });
    let ids = prompt(&[], 2);
    library.insert(0, &ids, &vec![vec![1, 2], vec![3, 4], vec![5, 6]], false).unwrap();
    let before = library.counts(0);
    let twice = [
        vec![vec![1, 2], vec![7, 4], vec![7, 6]],
        vec![vec![7, 2], vec![7, 4], vec![5, 6]],
        vec![vec![1, 2], vec![3, 7], vec![7, 6]],
    ];
    for rows in twice {
        let done = library.insert(0, &ids, &rows, false);
        assert_eq!(done.unwrap_err(), rkv_status::InvalidArgument, "{rows:?}");
        assert_eq!(library.counts(0), before);
        library.check();
    }
    let each = vec![vec![7, 8], vec![9, 10], vec![11, 12]];
    assert!(library.insert(0, &ids, &each, false).is_ok());
}

/// The pages of a plan in each group, as long as it has rows.
fn arrays(plan: *const rkv_plan, groups: u32) -> Vec<Vec<i32>> {
    let view = |group: u32, flags: u32| {
        let mut view: rkv_plan_group_arrays = sized();
        // SAFETY: the plan lives, and its arrays have the lengths that the view says.
        unsafe {
            must(rkv_plan_view_group(plan, group, flags, &mut view));
            let offsets = std::slice::from_raw_parts(view.indptr, view.row_count as usize + 1);
            let count = *offsets.last().unwrap() as usize;
            [offsets, std::slice::from_raw_parts(view.indices, count)].concat()
        }
    };
    (0..groups).flat_map(|group| [view(group, 0), view(group, RKV_PLAN_COMPACT)]).collect()
}

/// M05, G14: where a plan of several groups gets no memory, it is as before. Of a STATE group it
/// has the pages of draft states too.
#[test]
fn g14_a_plan_without_memory_is_as_before() {
    let groups = [group(Kind::Window(9, 3), 1), drafting(2, 2), group(Kind::Full, 0)];
    let library = Library::new(&world(4, &groups, &[200, 60, 20]));
    let (short, long) = (prompt(&[1], 2), prompt(&[2], 9));
    let [first, second] = [&short, &long].map(|ids| library.begin(0, ids, 0).unwrap().sequence);
    let row = |sequence, start, count| {
        let (slot, region_count, regions) = (0, 0, null());
        let (tree_masks, mask, reserved) = (null(), 0, 0);
        rkv_plan_row {
            sequence,
            slot,
            region_count,
            regions,
            start,
            count,
            tree_masks,
            mask,
            reserved,
        }
    };
    let size = size_of::<rkv_plan_row>();
    let mut plan = null_mut();
    // SAFETY: the pointers lead to live values, with the lengths that are stated.
    unsafe {
        let mut refused = 0;
        for request in 0.. {
            let (status, failed) =
                failing(Failure::Once(request), || rkv_plan_create(library.table(), &mut plan));
            if status == rkv_status::Ok && failed == 0 {
                break;
            }
            refused += u32::from(status == rkv_status::OutOfMemory);
            if status == rkv_status::Ok {
                rkv_plan_destroy(plan);
            }
        }
        assert!(refused > 0);
        let before = [row(first, 0, 8)];
        must(rkv_plan_set(plan, before.as_ptr(), 1, size));
        let small = arrays(plan, 4);
        let states = library.group_row(first, 2).into_iter().map(|page| page as i32);
        assert_eq!(small[5], [0, 3].into_iter().chain(states).collect::<Vec<_>>());
        let after = [row(second, 0, 36), row(first, 0, 8)];
        let mut seen = 0;
        for request in 0.. {
            let (status, failed) = failing(Failure::From(request), || {
                rkv_plan_set(plan, after.as_ptr(), after.len(), size)
            });
            if failed == 0 {
                must(status);
                break;
            }
            assert_eq!(status, rkv_status::OutOfMemory);
            assert_eq!(arrays(plan, 4), small, "request {request}");
            seen += 1;
        }
        assert!(seen > 5, "{seen} requests for memory");
        assert_ne!(arrays(plan, 4), small);
        rkv_plan_destroy(plan);
    }
    [first, second].into_iter().for_each(|id| library.release(id));
}

/// G10: where the page to copy from is one too many, the pages before it are reused, and nothing
/// goes that is asked for.
#[test]
fn g10_of_a_cut_inside_a_page_the_pages_before_it_are_reused() {
    let window = [group(Kind::Window(17, 0), 1)];
    let ids = prompt(&[], 12);
    let publish = |library: &Library| {
        let id = library.begin(0, &ids, 0).unwrap().sequence;
        library.publish(id, 48);
        library.release(id);
    };
    let library = Library::new(&world(16, &window, &[3, 40]));
    publish(&library);
    // At 47 it would copy out of the only page that it could have.
    let again = library.begin(0, &ids, 0).unwrap();
    assert_eq!((again.cached_position_count, again.copy_count), (32, 0));
    library.release(again.sequence);
    library.check();

    // Others use what is reused, and of all the rest there is the last page alone.
    let library = Library::new(&world(16, &window, &[4, 40]));
    publish(&library);
    let used = library.lookup(0, &ids[..32], true);
    let held = library.allocate(0, 1).unwrap();
    let again = library.begin(0, &ids, 0).unwrap();
    assert_eq!(again.cached_position_count, 32);
    library.release(again.sequence);
    library.unlock(used.lock);
    library.free(0, &held);
    library.check();
}

/// G04: of a prompt that is known to its end a token is to be computed. What it can't reuse for
/// that is to be saved before, so that the same prompt gets that far the next time.
#[test]
fn g04_a_prompt_that_is_known_to_its_end_is_told_where_to_save() {
    let world = world(4, &[group(Kind::State, 1)], &[60, 9]);
    let library = Library::new(&world);
    let ids = prompt(&[], 6);
    let first = library.begin(0, &ids, 0).unwrap().sequence;
    library.publish(first, 24);
    assert_eq!(library.checkpoint(first), Ok(1));
    library.confirm(first);
    library.release(first);
    // All six pages are known, and the state behind them, which leaves nothing to compute.
    assert_eq!(library.probe(0, &ids).positions, 24);
    let second = library.begin(0, &ids, 0).unwrap();
    assert_eq!(second.cached_position_count, 0);
    assert_eq!(second.checkpoint_at, [20, 24]);
    library.publish(second.sequence, 20);
    assert_eq!(library.checkpoint(second.sequence), Ok(1));
    library.confirm(second.sequence);
    library.release(second.sequence);
    let third = library.begin(0, &ids, 0).unwrap();
    assert_eq!(third.cached_position_count, 20);
    library.release(third.sequence);
}
