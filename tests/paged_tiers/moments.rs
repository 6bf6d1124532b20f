//! What the engine's calls wait for: nothing.
use crate::over_disk::{LONG, attach_host, attach_simulated, copy_some, go_on};
use crate::sim::{Fault, SimDisk, Stop, When};
use crate::world::{PAGE_BYTES, PAGE_SIZE, Setup, World};
use crate::{PLAIN, prompt};
use radixkv::ids::SequenceId;
use radixkv::store::Scope;
use radixkv::tier::paged::Deadline;
use radixkv::tier::{Contents, DiskConfig};
use radixkv::token::TokenList;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Pages of a prompt, and host memory for all of the test.
const PAGES: usize = 8;
const HOST_PAGES: usize = 5 * PAGES;

/// Tiers with a thread and a disk.
fn on(disk: &SimDisk) -> World {
    on_with(disk, Duration::from_millis(1))
}

/// The same, with so long from a write to its commit.
fn on_with(disk: &SimDisk, commit_interval: Duration) -> World {
    let mut world = World::new(Setup::new(64, 1, None));
    let config = DiskConfig { commit_interval, ..DiskConfig::new("", 1 << 20, [7; 32]) };
    attach_simulated(&mut world, HOST_PAGES, disk, config).unwrap();
    world
}

/// Computes a prompt; its pages are stored in host memory.
fn keep(world: &mut World, family: u32) {
    let stored = world.tiers.stats().counters.stored + PAGES as u64;
    let tokens = prompt(family, 4 * PAGES as u32 + 1);
    let info = world.begin(&PLAIN, &tokens).unwrap();
    assert_eq!(info.cached_positions, 0);
    world.compute(info.id, tokens.len());
    world.release(info.id);
    go_on(world, "stored", |world| world.tiers.stats().counters.stored == stored);
}

/// The same until they are copied, and no longer. How many.
fn copy(world: &mut World, family: u32) -> usize {
    let tokens = prompt(family, 4 * PAGES as u32 + 1);
    let info = world.begin(&PLAIN, &tokens).unwrap();
    world.compute(info.id, tokens.len());
    world.release(info.id);
    let (start, mut copied) = (Instant::now(), 0);
    while copied < PAGES {
        assert!(start.elapsed() < LONG, "copied: {:?}", world.tiers.stats());
        copied += copy_some(world);
    }
    copied
}

/// Begins to fetch a prompt of which the device has nothing: what host memory has of it.
fn fetch(world: &mut World, family: u32, deadline: Deadline) -> (SequenceId, usize) {
    let info = world.begin(&PLAIN, &prompt(family, 4 * PAGES as u32 + 1)).unwrap();
    assert_eq!(info.cached_positions, 0);
    let found = world.fetch(info.id, deadline);
    assert_eq!((found.positions, found.is_begun), (4 * PAGES, true));
    (info.id, found.host_positions / 4)
}

fn has_ended(id: SequenceId) -> impl Fn(&World) -> bool {
    move |world| world.fetched.iter().any(|done| done.sequence == id)
}

/// T03: while the disk stands still, calls return, and what does not need it goes on.
#[test]
fn t03_nothing_waits_for_a_disk_that_stands_still() {
    let disk = SimDisk::new();
    let mut world = on(&disk);
    keep(&mut world, 1);
    keep(&mut world, 2);
    assert!(world.tiers.flush(LONG));
    // Those are on the disk alone then.
    world.tiers.shrink_to(0, u64::MAX);
    keep(&mut world, 3);
    assert!(world.tiers.flush(LONG));
    world.shared.evict(64, |_, _| {}).unwrap();
    let written = world.tiers.stats().store.writes;
    assert_eq!(written, 3 * PAGES as u64);

    let (done, is_done) = channel();
    let waits = std::thread::scope(|scope| {
        disk.stop(Stop::Everything);
        // Dropped with the first failure.
        let (done, disk) = (done, &disk);
        // Ends what hangs, which the test then sees.
        let watch = scope.spawn(move || {
            let result = is_done.recv_timeout(LONG);
            disk.stop(Stop::Nothing);
            result
        });
        let (waits, in_host) = fetch(&mut world, 1, Deadline::Never);
        assert_eq!(in_host, 0);
        // With a deadline it ends without the disk.
        let (late, _) = fetch(&mut world, 2, Deadline::After(Duration::from_millis(1)));
        go_on(&mut world, "late", has_ended(late));
        assert_eq!(world.requests[&late].computed % 4, 0);
        assert!(world.fetched.iter().all(|done| done.is_late));
        world.release(late);
        // What host memory has comes from there.
        let (comes, in_host) = fetch(&mut world, 3, Deadline::Never);
        assert_eq!(in_host, PAGES);
        go_on(&mut world, "from host memory", has_ended(comes));
        assert_eq!(world.requests[&comes].computed, 4 * PAGES);
        world.release(comes);
        // New pages are published, and stored there.
        keep(&mut world, 4);
        assert!(!world.tiers.flush(Duration::from_millis(5)), "the disk does not move");
        // Sequences end that wait for the disk, pages are evicted, tiers shrink.
        let (gone, _) = fetch(&mut world, 2, Deadline::Never);
        world.poll(64);
        world.release(gone);
        world.shared.evict(64, |_, _| {}).unwrap();
        world.tiers.shrink_to(PAGE_BYTES as u64, u64::MAX);
        let stats = world.tiers.stats();
        assert_eq!(stats.store.writes, written, "it was written by a disk that does not move");
        assert!(world.tiers.is_busy() && world.requests[&waits].is_open);
        done.send(()).unwrap();
        watch.join().unwrap().expect("a call waits for the disk");
        waits
    });
    go_on(&mut world, "from the disk", has_ended(waits));
    assert_eq!(world.requests[&waits].computed, 4 * PAGES);
    world.release(waits);
    assert!(world.tiers.flush(LONG));
    assert_eq!(world.tiers.stats().store.writes, written + PAGES as u64);
    world.end();
}

/// T05, T07: a clear does not wait for the next commit: after a crash nothing of it comes back.
#[test]
fn t05_what_was_cleared_is_gone_after_a_crash() {
    let disk = SimDisk::new();
    // Nothing else commits within the test.
    let mut world = on_with(&disk, 100 * LONG);
    keep(&mut world, 1);
    keep(&mut world, 2);
    assert!(world.tiers.flush(LONG));
    let commits = world.tiers.stats().store.commits;
    world.shared.clear(Scope::exactly(PLAIN)).unwrap();
    go_on(&mut world, "committed", |world| world.tiers.stats().store.commits > commits);
    let after = disk.after_crash(&mut fastrand::Rng::with_seed(1));
    let world = on(&after);
    assert_eq!(world.tiers.stats().disk.pages, 0);
}

/// T05, T07: what was cleared just before the tiers are detached is gone from the directory as
/// well, whether or not their thread had come to it, and a flush promises that to who must be sure.
#[test]
fn t05_what_was_cleared_last_is_gone_when_the_tiers_are() {
    for _ in 0..20 {
        let disk = SimDisk::new();
        let mut world = on_with(&disk, 100 * LONG);
        keep(&mut world, 1);
        assert!(world.tiers.flush(LONG));
        world.shared.clear(Scope::exactly(PLAIN)).unwrap();
        drop(world);
        assert_eq!(on(&disk).tiers.stats().disk.pages, 0);
    }
    let disk = SimDisk::new();
    let mut world = on_with(&disk, 100 * LONG);
    keep(&mut world, 1);
    assert!(world.tiers.flush(LONG));
    world.shared.clear(Scope::exactly(PLAIN)).unwrap();
    assert!(world.tiers.flush(LONG));
    let after = disk.after_crash(&mut fastrand::Rng::with_seed(1));
    assert_eq!(on(&after).tiers.stats().disk.pages, 0);
    // A disk that removes nothing any more: the promise is not given.
    keep(&mut world, 2);
    assert!(world.tiers.flush(LONG));
    disk.fail(Some((When::From(0), Fault::ReadOnly)));
    world.shared.clear(Scope::exactly(PLAIN)).unwrap();
    assert!(!world.tiers.flush(LONG), "it is on the disk still");
}

/// T05: a flush waits for what was copied before it, whatever comes meanwhile, and does not say so
/// when the disk refuses.
#[test]
fn t05_what_was_flushed_is_there_after_a_crash() {
    for round in 0..20 {
        let disk = SimDisk::new();
        // Nothing else commits within the test.
        let mut world = on_with(&disk, 100 * LONG);
        let pages = copy(&mut world, 1);
        assert!(world.tiers.flush_all(LONG));
        let after = disk.after_crash(&mut fastrand::Rng::with_seed(round));
        assert_eq!(on(&after).tiers.stats().disk.pages, pages, "round {round}");
        assert!(world.tiers.flush_all(Duration::ZERO), "there is nothing to wait for");
    }
    let disk = SimDisk::new();
    let mut world = on_with(&disk, 100 * LONG);
    disk.fail(Some((When::From(0), Fault::ReadOnly)));
    copy(&mut world, 1);
    assert!(!world.tiers.flush_all(LONG), "the disk has none of it");
}

/// T03: a prompt of more pages than are looked up at a time for as often as a number can double.
#[test]
fn t03_a_prompt_of_thousands_of_pages_is_fetched_whole() {
    const PAGES: usize = 4300;
    for (agrees, part) in [(false, PAGES), (true, PAGES), (true, 1000), (true, 70)] {
        let setup = Setup { agrees, ..Setup::new(PAGES as u32 + 1, PAGES, None) };
        let world = World::new(setup);
        let tokens: Vec<u32> = (0..(PAGES * PAGE_SIZE) as u32 + 1).collect();
        let list = TokenList::text(&tokens);
        // Nobody looks at what is in the pages.
        let copy_all = || {
            let mut ended = Vec::new();
            loop {
                world.work();
                let mut jobs = Vec::new();
                let mut note = |done| ended.push(done);
                world.tiers.poll((64, 8), &mut |job| jobs.push(job.id), &mut note).unwrap();
                if jobs.is_empty() {
                    return ended;
                }
                world.tiers.complete(&jobs, true).unwrap();
            }
        };
        let made = world.shared.begin(&PLAIN, list, 0).unwrap();
        world.shared.turn().publish(made.id, PAGES * PAGE_SIZE).unwrap();
        world.shared.turn().release(made.id).unwrap();
        copy_all();
        assert_eq!(world.shared.evict(PAGES, |_, _| {}).unwrap(), PAGES);
        let begun = world.shared.begin(&PLAIN, list, 0).unwrap();
        assert_eq!(begun.cached_positions, 0);
        let found = world.tiers.fetch(begun.id, Deadline::Never, false).unwrap();
        assert!(found.is_begun);
        let ended = copy_all();
        let positions = ended.iter().map(|done| done.positions).collect::<Vec<_>>();
        assert_eq!(positions, [PAGES * PAGE_SIZE]);
        if agrees {
            let agreed = world.tiers.agree(begun.id, part * PAGE_SIZE).unwrap();
            assert_eq!((agreed.positions, agreed.brought), (part * PAGE_SIZE, part));
        }
        let info = world.shared.read().sequence_info(begun.id).unwrap();
        assert_eq!((info.cached_positions, info.shared_pages), (part * PAGE_SIZE, part));
        world.shared.read().audit().unwrap();
        world.shared.turn().release(begun.id).unwrap();
    }
}

/// T17: what the last commit of a directory did not remove, since the disk refused it, is not found
/// when the directory is attached again.
#[test]
fn t17_what_the_last_commit_could_not_clear_is_gone() {
    let disk = SimDisk::new();
    let mut world = on_with(&disk, 100 * LONG);
    keep(&mut world, 1);
    assert!(world.tiers.flush(LONG));
    assert_eq!(world.tiers.stats().disk.pages, PAGES);
    // Neither the thread's commit nor the last one gets through, and two don't make a store give
    // up.
    disk.fail(Some((When::From(0), Fault::Io)));
    world.shared.clear(Scope::exactly(PLAIN)).unwrap();
    attach_host(&mut world, HOST_PAGES);
    disk.fail(None);
    let config = DiskConfig::new("", 1 << 20, [7; 32]);
    attach_simulated(&mut world, HOST_PAGES, &disk, config).unwrap();
    // The first round has dropped it.
    assert_eq!(world.tiers.stats().disk.pages, 0, "it was cleared");
    let (id, found) = {
        let info = world.begin(&PLAIN, &prompt(1, 4 * PAGES as u32 + 1)).unwrap();
        (info.id, world.fetch(info.id, Deadline::Never))
    };
    assert_eq!(found.positions, 0);
    world.release(id);
}

/// T17: a clear that was carried out is not carried out again, however busy the directory is at the
/// end: what was written since is found.
#[test]
fn t17_a_clear_that_was_carried_out_takes_nothing_that_came_later() {
    let disk = SimDisk::new();
    let mut world = on(&disk);
    keep(&mut world, 1);
    world.shared.clear(Scope::exactly(PLAIN)).unwrap();
    assert!(world.tiers.flush(LONG));
    assert_eq!(world.tiers.stats().disk.pages, 0);
    keep(&mut world, 2);
    assert!(world.tiers.flush(LONG));
    assert_eq!(world.tiers.stats().disk.pages, PAGES);
    // What comes now takes longer than the end waits.
    disk.fail(Some((When::From(0), Fault::SlowWrites)));
    keep(&mut world, 3);
    let slow = disk.clone();
    let healed = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(2));
        slow.fail(None);
    });
    attach_host(&mut world, HOST_PAGES);
    healed.join().unwrap();
    let config = DiskConfig::new("", 1 << 20, [7; 32]);
    attach_simulated(&mut world, HOST_PAGES, &disk, config).unwrap();
    // The first round has looked for what was cleared.
    let found = world.tiers.stats().disk.pages;
    assert!(found >= PAGES, "{found} pages: they came after the clear");
}

/// T10: a directory that is allowed less keeps the beginnings of prefixes: nobody can fetch what
/// stands behind a page that is not there.
#[test]
fn t10_a_smaller_directory_keeps_beginnings() {
    let disk = SimDisk::new();
    let config = |bytes| {
        let config = DiskConfig::new("", bytes, [7; 32]);
        let commit_interval = Duration::from_millis(1);
        DiskConfig { contents: Contents::Pages, commit_interval, ..config }
    };
    let mut world = World::new(Setup::new(64, 1, None));
    attach_simulated(&mut world, HOST_PAGES, &disk, config(1 << 20)).unwrap();
    keep(&mut world, 1);
    assert!(world.tiers.flush(LONG));
    assert_eq!(world.tiers.stats().disk.pages, PAGES);
    // The directory is nobody's, and the device has the pages until then.
    attach_host(&mut world, HOST_PAGES);
    world.shared.evict(64, |_, _| {}).unwrap();
    // A page takes a block and its note.
    attach_simulated(&mut world, HOST_PAGES, &disk, config(5 * 4400)).unwrap();
    assert_eq!(world.tiers.stats().disk.pages, 5);
    let info = world.begin(&PLAIN, &prompt(1, 4 * PAGES as u32 + 1)).unwrap();
    let found = world.fetch(info.id, Deadline::Never);
    assert_eq!((info.cached_positions, found.positions), (0, 5 * PAGE_SIZE));
    world.release(info.id);
}
