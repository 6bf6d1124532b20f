//! What the engine's calls wait for: nothing.
use crate::world::{Setup, World};
use crate::{PLAIN, prompt};
use radixkv::tier::paged::{Deadline, Direction, HostMemory, PagePolicy, PageTiers, TierConfig};
use radixkv::tier::{DiskConfig, DiskStore};
use radixkv::token::TokenList;
use std::time::Duration;

/// T03: the engine's calls take moments, whatever the disk and the tiers' thread are at.
#[test]
fn t03_calls_return_at_once() {
    let directory = std::env::temp_dir().join(format!("radixkv-t03-{}", std::process::id()));
    let page_bytes = 1 << 20;
    let setup = Setup::new(64, 1, None);
    let mut world = World::new(setup);
    world.shared.detach_lower();
    let (disk_wake, wake) = PageTiers::disk_wake();
    let config = DiskConfig {
        wake: Some(wake),
        waiting_bytes: 64 << 20,
        ..DiskConfig::new(&directory, 256 << 20, [7; 32])
    };
    let (disk, records) = DiskStore::open(config).unwrap();
    let config = TierConfig {
        remote: None,
        page_bytes,
        host: HostMemory::Own(24 << 20),
        disk: Some((Box::new(disk), records)),
        policy: PagePolicy::Through,
        agrees: false,
        wake: None,
    };
    world.tiers = PageTiers::attach(&world.shared, config, disk_wake).unwrap();
    let (mut copied, mut fetched) = (0, 0);
    let mut times = Vec::new();
    let mut timed = |call: &mut dyn FnMut()| {
        let start = std::time::Instant::now();
        call();
        times.push(start.elapsed());
    };
    let mut page = vec![3_u8; page_bytes];
    for round in 0..200 {
        let tokens = prompt(1 + round % 7, 33);
        let info = world.shared.begin(&PLAIN, TokenList::text(&tokens), 0).unwrap();
        let mut begun = false;
        timed(&mut || {
            begun = world.tiers.fetch(info.id, Deadline::Never, false).unwrap().is_begun;
        });
        loop {
            let (mut jobs, mut ended) = (Vec::new(), false);
            timed(&mut || {
                let (job, done) = (&mut |job| jobs.push(job), &mut |_| ended = true);
                world.tiers.poll((8, 8), job, done).unwrap();
            });
            for job in &jobs {
                // SAFETY: the slot is the copy's until it is complete.
                let slot = unsafe { std::slice::from_raw_parts_mut(job.host.as_ptr(), page_bytes) };
                match job.direction {
                    Direction::Load => page.copy_from_slice(slot),
                    Direction::Store => slot.copy_from_slice(&page),
                }
                timed(&mut || world.tiers.complete(&[job.id], true).unwrap());
                copied += 1;
            }
            fetched += ended as usize;
            if !begun || ended {
                break;
            }
        }
        if world.shared.read().open_copies(info.id).unwrap().0.is_some() {
            world.shared.ending(|state| state.confirm_copies(info.id)).unwrap();
        }
        world.shared.write().publish(info.id, 33).unwrap();
        world.shared.turn().release(info.id).unwrap();
        world.shared.evict(6, |_, _| {}).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    times.sort();
    let (middle, longest) = (times[times.len() / 2], times[times.len() - 1]);
    eprintln!("{} calls: {middle:?} at the middle, {longest:?} at most", times.len());
    assert!(copied > 50 && fetched > 10, "{copied} {fetched}");
    // A page of 1 MiB takes longer to check, and a disk longer to answer.
    assert!(middle < Duration::from_millis(1), "{middle:?}");
    drop(world);
    std::fs::remove_dir_all(directory).unwrap();
}
