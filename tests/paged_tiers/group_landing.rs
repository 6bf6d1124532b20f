//! Memory ends while what a fetch of groups brought is published: then it is the sequence's alone.
//! A child must not map those pages, and a retained sequence must not say that it has them.
use super::failing::{Failure, failing};
use super::group_world::GroupWorld;
use super::groups::{FULL, hybrid, prompt};
use super::world::PAGE_SIZE;
use radixkv::group::GroupKind;
use radixkv::tier::paged::{Deadline, Direction};

#[test]
fn m05_t16_what_a_fetch_could_not_publish_has_no_second_owner() {
    let mut kept = 0;
    for at in 0..200 {
        for retains in [false, true] {
            let mut setup = hybrid(None);
            setup.groups = vec![FULL, GroupKind::State.in_pool(1)];
            setup.pages = vec![40, 8];
            setup.host_pages = vec![100, 20];
            let mut world = GroupWorld::new(setup);
            let tokens = prompt(1, 41);
            world.run(&tokens, &[4, 10]);
            world.evict_all();
            let info = world.begin(&Default::default(), &tokens).unwrap();
            assert!(world.fetch(info.id, Deadline::Never).is_begun);
            while world.shared.read().is_loading(info.id) {
                while world.tiers.work() {}
                world.poll(64);
                while let Some(job) = world.copies.pop() {
                    assert_eq!(job.direction, Direction::Load);
                    let pool = world.pool(job.group);
                    for (at, word) in world.device[pool][job.page as usize].iter_mut().enumerate() {
                        // SAFETY: the slot is the copy's until it is complete.
                        *word = unsafe { job.host.cast::<u32>().add(at).read_unaligned() };
                    }
                    // The last of them ends the fetch.
                    let (done, _) =
                        failing(Failure::Once(at), || world.tiers.complete(&[job.id], true));
                    done.unwrap();
                }
            }
            let now = world.shared.read().sequence_info(info.id).unwrap();
            kept += usize::from(now.cached_positions > now.shared_pages * PAGE_SIZE);
            if world.shared.read().has_open_copies(info.id) {
                world.shared.ending(|state| state.confirm_copies(info.id)).unwrap();
            }
            if retains {
                // Panics in `extend_from_end`, or in the child: the path has fewer pages.
                world.requests.remove(&info.id);
                if world.shared.turn().retain(info.id).unwrap() {
                    let child = world.shared.fork(info.id, 1, 0).unwrap()[0].id;
                    world.shared.turn().release(child).unwrap();
                }
            } else if let Ok(children) = world.shared.fork(info.id, 1, 0) {
                // A private page in two rows.
                world.shared.read().audit().unwrap();
                world.shared.turn().release(children[0].id).unwrap();
            }
            world.shared.read().audit().unwrap();
        }
    }
    assert!(kept > 0, "no request for memory was one of publishing");
}

/// A state that came and found no page to be shared with is not the cache's: of what was saved on
/// the same page of group 0 before, nothing is followed from there.
#[test]
fn t16_g08_a_state_that_could_not_be_shared_leads_nowhere() {
    let mut setup = hybrid(None);
    setup.groups = vec![FULL, GroupKind::State.in_pool(1), GroupKind::State.in_pool(2)];
    setup.pages = vec![40, 8, 8];
    setup.host_pages = vec![100, 20, 20];
    setup.checkpoint_limit = 2;
    let mut world = GroupWorld::new(setup);
    let (tokens, long) = (prompt(1, 21), prompt(2, 41));
    world.run(&tokens, &[2]);
    // The state after the 10th page knows that there is one after the 9th.
    let id = world.begin(&Default::default(), &long).unwrap().id;
    for pages in [9, 10] {
        world.compute(id, pages * PAGE_SIZE);
        world.settle();
        assert!(world.save(id));
    }
    let far = world.shared.read().group_row(id, 0, 0).unwrap()[9];
    world.settle();
    world.release(id);
    world.evict_all();
    // The page there is the second of the next row.
    let mut pages = world.shared.allocate_pages(40).unwrap();
    let at = pages.iter().position(|&page| page == far).unwrap();
    pages.swap(1, at);
    world.shared.turn().free_pages(0, &pages).unwrap();
    let id = world.begin(&Default::default(), &tokens).unwrap().id;
    assert_eq!(world.shared.read().group_row(id, 0, 0).unwrap()[1], far);
    let taken = world.shared.allocate_pool_pages(2, 7).unwrap();
    while world.tiers.work() {}
    assert!(world.fetch(id, Deadline::Never).is_begun);
    world.settle();
    assert_eq!(world.requests[&id].computed, 2 * PAGE_SIZE);
    world.shared.turn().free_pages(2, &taken).unwrap();
    world.compute(id, 5 * PAGE_SIZE);
    world.settle();
    // Panicked: the place after which the state before was saved is behind the path's end.
    assert!(world.save(id));
    world.compute(id, tokens.len());
    world.end();
}
