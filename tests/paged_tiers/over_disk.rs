//! Tiers with a thread of their own, over a store that writes to a disk.
use crate::sim::SimDisk;
use crate::world::{PAGE_BYTES, World};
use radixkv::tier::paged::{DiskWake, HostMemory, PagePolicy, PageTiers, TierConfig, TierPool};
use radixkv::tier::{DiskConfig, DiskStore, FoundRecords, OpenError, Wake};
use std::time::{Duration, Instant};

/// What nothing may take.
pub const LONG: Duration = Duration::from_secs(60);

/// Puts tiers with so many pages of host memory below a world's cache, in the place of those that
/// it has; or leaves it as it is, when the store is not opened.
pub fn attach(
    world: &mut World,
    host_pages: usize,
    open: impl FnOnce(Wake) -> Result<(DiskStore, FoundRecords), OpenError>,
) -> Result<(), OpenError> {
    let (disk_wake, wake) = PageTiers::disk_wake();
    let opened = open(wake)?;
    attach_opened(world, host_pages, Some(opened), disk_wake);
    Ok(())
}

/// The same with nothing below host memory.
pub fn attach_host(world: &mut World, host_pages: usize) {
    attach_opened(world, host_pages, None, PageTiers::disk_wake().0);
}

fn attach_opened(
    world: &mut World,
    host_pages: usize,
    disk: Option<(DiskStore, FoundRecords)>,
    disk_wake: DiskWake,
) {
    world.shared.detach_lower();
    let host = HostMemory::Own((host_pages * PAGE_BYTES) as u64);
    let config = TierConfig {
        pools: vec![TierPool { page_bytes: PAGE_BYTES, host }],
        disk: disk.map(|(store, records)| (Box::new(store) as _, records)),
        remote: None,
        policy: PagePolicy::Through,
        agrees: false,
        wake: None,
    };
    world.tiers = PageTiers::attach(&world.shared, config, disk_wake).unwrap();
}

/// The same over a simulated disk, with so long from a write to its commit.
pub fn attach_simulated(
    world: &mut World,
    host_pages: usize,
    disk: &SimDisk,
    config: DiskConfig,
) -> Result<(), OpenError> {
    attach(world, host_pages, |wake| {
        let config = DiskConfig { wake: Some(wake), workers: 2, ..config };
        DiskStore::open_on(Box::new(disk.clone()), config)
    })
}

/// Takes copies and carries them out; how many.
pub fn copy_some(world: &mut World) -> usize {
    let given = world.poll(64);
    while !world.copies.is_empty() {
        world.step_copy(0, true);
    }
    given
}

/// Carries out copies until something has come true.
pub fn go_on(world: &mut World, what: &str, is_true: impl Fn(&World) -> bool) {
    let start = Instant::now();
    while !is_true(world) {
        assert!(start.elapsed() < LONG, "{what}: {:?}", world.tiers.stats());
        copy_some(world);
        std::thread::sleep(Duration::from_micros(200));
    }
}
