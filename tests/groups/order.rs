//! Which pages go first and which stay: small stories, page by page.
use super::library::{Library, Rows, World, must, sized};
use super::model::Kind;
use super::worlds::{drafting, group, world};
use radixkv::capi::*;

const PAGE: usize = 4;

/// A prompt of so many pages that begins with `first`.
pub fn prompt(first: &[u32], pages: usize) -> Vec<u32> {
    let rest = (first.len() as u32..).map(|id| 1000 + id);
    first.iter().copied().chain(rest).take(pages * PAGE).collect()
}

/// Inserts a prompt with pages of all groups at all places, but those that `leave` says.
fn insert(library: &Library, world: &World, ids: &[u32], leave: impl Fn(usize, usize) -> bool) {
    let places = ids.len() / PAGE;
    let mut rows: Rows = Vec::new();
    for (group, of) in world.groups.iter().enumerate() {
        let kept = (0..places).map(|place| group > 0 && leave(group, place));
        let kept: Vec<bool> = kept.collect();
        let count = kept.iter().filter(|left| !**left).count();
        let mut pages = library.allocate(of.pool, count).unwrap().into_iter();
        rows.push(kept.iter().map(|left| if *left { 0 } else { pages.next().unwrap() }).collect());
    }
    let (published, ..) = library.insert(0, ids, &rows, false).unwrap();
    for (group, of) in world.groups.iter().enumerate() {
        for (given, now) in rows[group].iter().zip(&published[group]) {
            if *given != 0 && given != now {
                library.free(of.pool, &[*given]);
            }
        }
    }
}

fn nothing(_: usize, _: usize) -> bool {
    false
}

/// The places of a prompt at which a group has a page.
pub fn places(library: &Library, ids: &[u32], group: usize, groups: usize) -> Vec<usize> {
    // An insert of nothing says what there is.
    let count = ids.len() / PAGE;
    let spine = library.lookup(0, ids, false);
    let mut rows: Rows = vec![vec![0; count]; groups];
    rows[0].copy_from_slice(&spine_of(library, ids, &spine.pages, count));
    let (published, ..) = library.insert(0, ids, &rows, false).unwrap();
    (0..count).filter(|&place| published[group][place] != 0).collect()
}

/// Pages of group 0; those beyond what can be reused are any that are not the cache's to claim.
fn spine_of(library: &Library, ids: &[u32], found: &[u32], count: usize) -> Vec<u32> {
    let known = library.probe(0, ids).known / PAGE;
    assert!(known >= count, "the prompt is known");
    let mut pages = found.to_vec();
    pages.resize(count, 1);
    pages
}

/// G08: pages that no end of what is cached needs go first. A fork makes a new end, and so does a
/// checkpoint.
#[test]
fn g08_inner_pages_go_before_tails() {
    let world = world(4, &[group(Kind::Window(9, 0), 1)], &[60, 40]);
    let library = Library::new(&world);
    // A prefix of 40 needs the pages 8 and 9.
    let long = prompt(&[], 10);
    insert(&library, &world, &long, nothing);
    assert_eq!(library.counts(1).reclaimable, 10);
    // It ends in the middle of the other one, which gets an end there: it needs pages 4 and 5.
    let other =
        prompt(&long[..24], 8).into_iter().enumerate().map(|(at, id)| id + u32::from(at >= 24));
    let other: Vec<u32> = other.collect();
    insert(&library, &world, &other, nothing);
    assert_eq!(library.counts(1).cached, 12, "pages 6 and 7 of the other one came");
    let (gone, freed) = library.evict(1, 6);
    assert_eq!((gone.len(), freed), (6, 6));
    assert_eq!(places(&library, &long, 1, 2), [4, 5, 8, 9]);
    assert_eq!(places(&library, &other, 1, 2), [4, 5, 6, 7]);
    // Of the tails those go first that were not used for the longest time: those of the fork, since
    // both prompts were looked up whole.
    library.evict(1, 2);
    assert_eq!(places(&library, &long, 1, 2), [8, 9]);
    assert_eq!(library.probe(0, &long).positions, 40);
    assert_eq!(library.probe(0, &other).positions, 32);
    let third = long[..24].to_vec();
    assert_eq!((library.probe(0, &third).positions, library.probe(0, &third).known), (0, 24));
    assert_eq!(library.probe(0, &third).lost, [0, 24]);
}

/// G08: a chunk that is added behind the last one makes its end the middle.
#[test]
fn g08_the_end_of_a_chunk_is_no_end_for_long() {
    let world = world(4, &[group(Kind::Window(5, 0), 1)], &[60, 40]);
    let library = Library::new(&world);
    let long = prompt(&[], 8);
    for pages in [2, 4, 6, 8] {
        insert(&library, &world, &long[..pages * PAGE], |_, place| place + 2 < pages);
    }
    assert_eq!(places(&library, &long, 1, 2), (0..8).collect::<Vec<_>>());
    library.evict(1, 7);
    assert_eq!(places(&library, &long, 1, 2), [7]);
    assert_eq!(library.lookup(0, &long, false).positions, 32);
}

/// G08: what a checkpoint needs of a window stays with it.
#[test]
fn g08_a_checkpoint_is_an_end() {
    let groups = [group(Kind::Window(5, 0), 1), group(Kind::State, 2)];
    let world = world(4, &groups, &[60, 40, 9]);
    let library = Library::new(&world);
    let long = prompt(&[], 8);
    insert(&library, &world, &long, |group, place| group == 2 && place != 3);
    let found = library.lookup(0, &long, false);
    assert_eq!((found.positions, found.known, found.limiting_group), (16, 32, 2));
    library.evict(1, 6);
    assert_eq!(places(&library, &long, 1, 3), [3, 7]);
    assert_eq!(library.lookup(0, &long, false).positions, 16);
    // Without the checkpoint there is nothing to go on from.
    assert_eq!(library.evict(2, 1).0.len(), 1);
    let found = library.lookup(0, &long, false);
    assert_eq!((found.positions, found.known, found.limiting_group), (0, 32, 2));
}

/// G08: in a pool that several groups draw from, the pages of all go by their last use; a page of
/// group 0 takes what hangs on it.
#[test]
fn g08_groups_of_one_pool_go_by_last_use() {
    let world = world(4, &[group(Kind::State, 0)], &[60]);
    let library = Library::new(&world);
    let (first, second) = (prompt(&[1], 2), prompt(&[2], 2));
    for ids in [&first, &second] {
        insert(&library, &world, ids, |_, place| place != 1);
    }
    // Used again, so the other one goes first, from its end, with what hangs there.
    assert_eq!(library.lookup(0, &first, false).positions, 8);
    let (gone, freed) = library.evict(0, 1);
    assert_eq!((gone.iter().map(|(group, _)| *group).collect::<Vec<_>>(), freed), (vec![1, 0], 2));
    assert_eq!((library.probe(0, &second).known, library.probe(0, &second).positions), (4, 0));
    assert_eq!(library.evict(0, 1).0.len(), 1);
    assert_eq!(library.probe(0, &second).known, 0);
    assert_eq!(library.probe(0, &first).positions, 8);
}

/// G06: what a lock protects stays when all else goes, also what was behind it on the same node.
#[test]
fn g06_a_lock_keeps_what_a_match_needs() {
    let groups = [group(Kind::Window(6, 2), 1), group(Kind::State, 2)];
    let world = world(4, &groups, &[60, 40, 9]);
    let library = Library::new(&world);
    let long = prompt(&[], 8);
    insert(&library, &world, &long, |group, place| group == 2 && place != 4);
    let found = library.lookup(0, &long, true);
    assert_eq!(found.positions, 20);
    let pages = |group| library.locked(found.lock, group);
    let window: Vec<usize> = pages(1).iter().map(|(place, _)| *place).collect();
    assert_eq!((window, pages(2)[0].0), (vec![0, 3, 4], 4));
    for pool in 0..3 {
        library.evict(pool, 100);
    }
    assert_eq!([0, 1, 2].map(|pool| library.counts(pool).cached), [5, 3, 1]);
    assert_eq!(library.lookup(0, &long, false).positions, 20);
    library.unlock(found.lock);
    for pool in [2, 1, 0] {
        library.evict(pool, 100);
    }
    assert_eq!([0, 1, 2].map(|pool| library.counts(pool).cached), [0; 3]);
}

/// G04: a caller that saves states where it is told reuses all it can at the third request.
#[test]
fn g04_checkpoints_where_it_is_told() {
    let world = world(4, &[group(Kind::State, 1)], &[90, 20]);
    let library = Library::new(&world);
    // A system prompt of five pages and a bit, then a question of its own for each request.
    let request = |user: u32| {
        let mut ids = prompt(&[], 6);
        ids.truncate(22);
        ids.extend((0..15).map(|at| user * 100 + at));
        ids
    };
    let mut found = Vec::new();
    for user in [1, 2, 3, 3] {
        let ids = request(user);
        let lookup = library.lookup(0, &ids, false);
        found.push((lookup.positions, lookup.checkpoint_at));
        let saved: Vec<usize> = lookup.checkpoint_at.iter().map(|at| at / PAGE).collect();
        insert(&library, &world, &ids, |_, place| !saved.contains(&(place + 1)));
    }
    // Of 37 tokens the last boundary is at 36; the system prompt's at 20.
    assert_eq!(found, [(0, [36, 0]), (0, [20, 36]), (20, [36, 0]), (36, [0, 0])]);
}

/// G09: pages of each pool come by eviction when they are short, and the shortage names the pool.
#[test]
fn g09_allocation_evicts_in_its_pool() {
    let world = world(4, &[group(Kind::Window(9, 0), 1)], &[20, 10]);
    let library = Library::new(&world);
    insert(&library, &world, &prompt(&[], 8), nothing);
    let pages = library.allocate(1, 9).unwrap();
    assert_eq!((library.counts(1).cached, library.counts(0).cached), (1, 8));
    assert_eq!(library.allocate(1, 2), Err(rkv_status::OutOfPages));
    let shortage = library.shortage();
    let numbers = (shortage.pool, shortage.needed_page_count, shortage.reclaimable_page_count);
    assert_eq!((numbers, shortage.private_page_count), ((1, 2, 1), 9));
    assert_eq!(library.counts(1).cached, 1, "a refused call evicts nothing");
    library.free(1, &pages);
    assert_eq!(library.allocate(0, 20).unwrap().len(), 20);
    assert_eq!([0, 1].map(|pool| library.counts(pool).cached), [0, 0]);
}

/// Positions of a window group that a sequence has pages for.
fn held(library: &Library, id: rkv_sequence_id) -> usize {
    library.group_row(id, 1).iter().filter(|&&page| page != 0).count()
}

/// G05: a running sequence that gets its pages chunk by chunk holds a window and a chunk of a
/// WINDOW group, rounded up, and one page more; what leaves goes to the cache, reclaimable at once.
#[test]
fn g05_a_window_slides_with_each_chunk() {
    let (window, chunk, pages) = (10, 6, 40);
    let world = world(4, &[group(Kind::Window(window, 0), 1)], &[60, 60]);
    let library = Library::new(&world);
    let ids = prompt(&[], pages);
    let id = library.begin(0, &ids, chunk).unwrap().sequence;
    let most = (window - 1 + chunk).div_ceil(PAGE) + 1;
    let mut computed = 0;
    while computed < ids.len() {
        let end = (computed + chunk).min(ids.len());
        library.allocate_positions(id, end).unwrap();
        assert!(held(&library, id) <= most, "{} pages at {end}", held(&library, id));
        library.publish(id, end);
        let needed = Kind::Window(window, 0).needs(end, PAGE).unwrap().len();
        assert!((needed..=needed + 1).contains(&held(&library, id)));
        let counts = library.counts(1);
        let own = held(&library, id) as u64;
        assert_eq!(counts.reclaimable + own, counts.cached + counts.private);
        computed = end;
    }
    assert_eq!(library.counts(1).cached, pages as u64);
    // Decoding, with nothing published: what leaves is free.
    for _ in 0..20 {
        library.append(id, &[1]).unwrap();
        computed += 1;
        library.slide(id, computed);
        assert!(held(&library, id) <= most);
    }
    assert_eq!(library.counts(1).cached, pages as u64);
    library.release(id);
    assert_eq!(library.counts(1).private, 0);
}

/// G10: with a first chunk, admission asks for all of a prompt in FULL groups, a window and a chunk
/// and one page more in WINDOW ones, and the states; a page fewer in any pool is a shortage of that
/// pool, and what is admitted comes to its end.
#[test]
fn g10_admission_asks_each_pool_for_what_a_request_needs() {
    let (window, chunk, pages, drafts) = (10, 6, 40, 2);
    let groups = [group(Kind::Window(window, 0), 1), drafting(drafts, 2)];
    let needed =
        [pages as u32, ((window - 1 + chunk).div_ceil(PAGE) + 1) as u32, 1 + drafts as u32];
    let ids = prompt(&[], pages);
    let library = Library::new(&world(4, &groups, &needed));
    for short in 0..needed.len() {
        let held = library.allocate(short, 1).unwrap();
        assert_eq!(library.begin(0, &ids, chunk).err(), Some(rkv_status::OutOfPages));
        assert_eq!(library.shortage().pool, short as u32);
        library.free(short, &held);
        for (pool, &total) in needed.iter().enumerate() {
            assert_eq!(library.counts(pool).free, u64::from(total));
        }
    }
    let id = library.begin(0, &ids, chunk).unwrap().sequence;
    for end in (chunk..ids.len() + chunk).step_by(chunk).map(|end| end.min(ids.len())) {
        library.allocate_positions(id, end).unwrap();
        library.publish(id, end);
    }
    library.release(id);
    // Others are admitted by evicting what it left.
    let second = library.begin(0, &prompt(&[7], pages), chunk).unwrap();
    library.release(second.sequence);
    library.check();
}

/// G10, J08: so does the admission of one that goes on from another.
#[test]
fn g10_a_continuation_by_chunks_is_asked_for_a_window_and_a_chunk() {
    let (window, chunk) = (10_usize, 6);
    let held_by_one = (window - 1 + chunk).div_ceil(PAGE) + 1;
    // What is retained keeps a window of 9 before position 24.
    let pools = [60, held_by_one as u32 + 3];
    let library = Library::new(&world(4, &[group(Kind::Window(window, 0), 1)], &pools));
    let parent = library.begin(0, &prompt(&[], 6), 0).unwrap().sequence;
    library.publish(parent, 24);
    library.retain(parent);
    let suffix: Vec<u32> = (5000..5060).collect();
    let (space, list) = (Library::namespace(0), Library::tokens(&suffix));
    let args = rkv_sequence_continue_args {
        parent,
        space: &space,
        tokens: &list,
        allocate_position_count: chunk as u64,
        ..sized()
    };
    let mut child: rkv_sequence_info = sized();
    // SAFETY: all pointers come from references; the handle lives as long as the library.
    must(unsafe { rkv_sequence_continue(library.cache(), &args, &mut child) });
    assert_eq!(child.cached_position_count, 24);
    let mut computed = 24;
    while computed < 84 {
        computed = (computed + chunk).min(84);
        library.allocate_positions(child.sequence, computed).unwrap();
        library.publish(child.sequence, computed);
    }
    library.release(child.sequence);
    library.drop_sequence(parent);
    library.check();
}

/// G10: where the checkpoint that was found is the only page of its pool, and the sequence needs
/// that page for its own state, less is reused rather than the request refused.
#[test]
fn g10_less_is_reused_before_a_request_is_refused() {
    let world = world(4, &[group(Kind::State, 1)], &[60, 2]);
    let library = Library::new(&world);
    let ids = prompt(&[], 6);
    let first = library.begin(0, &ids, 0).unwrap().sequence;
    library.publish(first, 16);
    assert_eq!(library.checkpoint(first), Ok(1));
    library.confirm(first);
    // Its own state and the checkpoint take both pages.
    assert_eq!((library.counts(1).free, library.counts(1).cached), (0, 1));
    assert_eq!(library.probe(0, &ids).positions, 16);
    let second = library.begin(0, &ids, 0).unwrap();
    assert_eq!((second.cached_position_count, second.copy_count), (0, 0));
    assert_eq!(library.counts(1).cached, 0, "it took the page of the checkpoint");
    assert_eq!(library.begin(0, &ids, 0).err(), Some(rkv_status::OutOfPages));
    assert_eq!(library.shortage().pool, 1);
    library.release(first);
    library.release(second.sequence);
}

/// G13: pages as large as a state, and the largest that there are, in groups of all kinds.
#[test]
fn g13_large_pages_in_all_kinds_of_groups() {
    for size in [528, 1056, 65_536] {
        let kinds = [Kind::Window(size + 2, 0), Kind::Chunk(2 * size), Kind::State];
        let groups: Vec<_> = kinds.into_iter().zip(1..).map(|(kind, at)| group(kind, at)).collect();
        let library = Library::new(&world(size as u32, &groups, &[9, 9, 9, 9]));
        let ids: Vec<u32> = (1..=4 * size as u32).collect();
        let first = library.begin(0, &ids, 0).unwrap();
        assert_eq!(first.checkpoint_at.map(|at| at as usize), [3 * size, 0]);
        library.publish(first.sequence, 3 * size);
        assert_eq!(library.checkpoint(first.sequence), Ok(1));
        library.confirm(first.sequence);
        library.publish(first.sequence, 4 * size);
        library.release(first.sequence);
        // A window passes position 3 * size + 1 two pages back; the chunk began one page back.
        let second = library.begin(0, &ids, 0).unwrap();
        assert_eq!(second.cached_position_count as usize, 3 * size);
        for (group, mapped) in [(1, [false, true, true]), (2, [false, false, true])] {
            let row = library.group_row(second.sequence, group);
            assert_eq!([0, 1, 2].map(|place| row[place] != 0), mapped);
        }
        library.release(second.sequence);
        library.check();
    }
}

/// G07: a checkpoint is found when it is confirmed, not before; each sequence has a state of its
/// own.
#[test]
fn g07_a_checkpoint_is_found_once_it_is_confirmed() {
    let world = world(4, &[group(Kind::State, 1)], &[60, 9]);
    let library = Library::new(&world);
    let ids = prompt(&[], 6);
    let first = library.begin(0, &ids, 0).unwrap().sequence;
    library.publish(first, 13);
    let refused = Err(rkv_status::InvalidState);
    assert_eq!(library.checkpoint(first), refused, "no page ends at 13");
    library.publish(first, 16);
    assert_eq!(library.checkpoint(first), Ok(1));
    assert_eq!(library.probe(0, &ids).positions, 0);
    assert_eq!(library.checkpoint(first), refused, "a copy is open");
    library.confirm(first);
    assert_eq!(library.probe(0, &ids).positions, 16);
    assert_eq!(library.checkpoint(first), Ok(0), "it is saved");
    let begin = || library.begin(0, &ids, 0).unwrap().sequence;
    let (second, third) = (begin(), begin());
    let state = |id| library.group_row(id, 1);
    let (copies, others) = (library.copies(second), library.copies(third));
    assert_eq!(copies[0].source_page, others[0].source_page);
    assert_eq!(vec![copies[0].target_page], state(second));
    assert!(state(first) != state(second) && state(second) != state(third));
    // Until the copies are made, nothing takes the checkpoint.
    assert_eq!(library.evict(1, 9).1, 0);
    library.confirm(second);
    library.confirm(third);
    assert_eq!(library.evict(1, 9).1, 1);
    [first, second, third].into_iter().for_each(|id| library.release(id));
}

/// G07: two that save the same state: the first that is confirmed stays, the page of the other one
/// is free again.
#[test]
fn g07_of_two_equal_checkpoints_one_stays() {
    let world = world(4, &[group(Kind::State, 1)], &[60, 9]);
    let library = Library::new(&world);
    let ids = prompt(&[], 6);
    let both = [(); 2].map(|()| library.begin(0, &ids, 0).unwrap().sequence);
    for id in both {
        library.publish(id, 16);
        assert_eq!(library.checkpoint(id), Ok(1));
    }
    assert_eq!(library.counts(1).free, 5);
    both.into_iter().for_each(|id| library.confirm(id));
    assert_eq!((library.counts(1).free, library.counts(1).cached), (6, 1));
    assert_eq!(library.probe(0, &ids).positions, 16);
    both.into_iter().for_each(|id| library.release(id));
}

/// G07, K11: what was cleared while somebody is still to copy it goes when the copy is done, with
/// all that hangs on it.
#[test]
fn g07_a_page_that_was_cleared_stays_until_it_is_copied() {
    let world = world(4, &[group(Kind::Window(9, 0), 1)], &[60, 40]);
    let library = Library::new(&world);
    let long = prompt(&[], 6);
    insert(&library, &world, &long, nothing);
    // It leaves the known prompt inside page 4.
    let other: Vec<u32> = long[..18].iter().copied().chain([1, 2, 3, 4]).collect();
    let begun = library.begin(0, &other, 0).unwrap();
    assert_eq!((begun.cached_position_count, begun.copy_count), (18, 2));
    library.clear();
    library.check();
    // What it shares, the page to copy from, and what hangs on all these.
    assert_eq!([0, 1].map(|pool| library.counts(pool).cached), [5, 5]);
    library.confirm(begun.sequence);
    library.check();
    assert_eq!([0, 1].map(|pool| library.counts(pool).cached), [4, 4]);
    library.release(begun.sequence);
    assert_eq!([0, 1].map(|pool| library.counts(pool).cached), [0, 0]);
}

/// G07, G09: room for a checkpoint is not made of the states that are saved beside it.
#[test]
fn g07_a_checkpoint_keeps_the_states_beside_it() {
    let world = world(4, &[group(Kind::State, 1), group(Kind::State, 1)], &[60, 4]);
    let library = Library::new(&world);
    let ids = prompt(&[], 6);
    let id = library.begin(0, &ids, 0).unwrap().sequence;
    library.publish(id, 16);
    insert(&library, &world, &ids[..16], |group, place| (group, place) != (1, 3));
    insert(&library, &world, &prompt(&[7], 1), |group, _| group == 2);
    assert_eq!((library.counts(1).free, library.counts(1).reclaimable), (0, 2));
    assert_eq!(library.checkpoint(id), Ok(1));
    library.confirm(id);
    assert_eq!(library.probe(0, &ids).positions, 16);
    // Again: the state of the earlier place goes, not the one beside it.
    library.publish(id, 20);
    insert(&library, &world, &ids[..20], |group, place| (group, place) != (1, 4));
    assert_eq!(library.counts(1).reclaimable, 2);
    assert_eq!(library.checkpoint(id), Ok(1));
    library.release(id);
}

/// G01: the tree as text has the pages of each group, and its holes.
#[test]
fn g01_a_dump_has_the_pages_of_each_group() {
    let groups = [group(Kind::Window(9, 0), 1), group(Kind::State, 2)];
    let world = world(4, &groups, &[60, 9, 9]);
    let library = Library::new(&world);
    insert(&library, &world, &prompt(&[], 3), |group, place| group == 2 && place < 2);
    let pages = library.lookup(0, &prompt(&[], 3), true);
    let window: Vec<u32> = library.locked(pages.lock, 1).iter().map(|(_, page)| *page).collect();
    let state = library.locked(pages.lock, 2)[0].1;
    assert_eq!((window.len(), pages.pages.len()), (2, 3), "the window attends to two pages");
    let text = library.dump(RKV_DUMP_JSON);
    let end = format!("{}, {}], \"2\": [0, 0, {state}]}}}}", window[0], window[1]);
    assert!(text.contains(&format!("\"pages\": {:?}, ", pages.pages)), "{text}");
    assert!(text.contains("\"group_pages\": {\"1\": [") && text.contains(&end), "{text}");
    let label = library.dump(RKV_DUMP_DOT);
    assert!(label.contains("\\ngroup 1: 3 pages\\ngroup 2: 1 pages\""), "{label}");
    library.unlock(pages.lock);
}
