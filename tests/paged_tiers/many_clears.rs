//! More clears than a list of some dozen would remember.
use crate::failing::{Failure, failing};
use crate::memory_store::MemoryStore;
use crate::remote_store::MemoryRemote;
use crate::world::{PAGE_BYTES, Setup, World};
use crate::{PLAIN, prompt, stored};
use radixkv::index::Namespace;
use radixkv::store::Scope;

fn clear_tenants(world: &World, each: impl Fn(&World)) {
    for tenant in 0..40 {
        let tenant = Namespace { lora: Some(100 + tenant), ..PLAIN };
        world.shared.clear(Scope::exactly(tenant)).unwrap();
        each(world);
    }
}

/// T17: many tenants are cleared at once: what others have in the tiers stays.
#[test]
fn t17_many_clears_at_once_leave_other_namespaces() {
    let tokens = prompt(1, 41);
    let mut world = stored(Setup::new(20, 64, None), &tokens);
    clear_tenants(&world, |_| {});
    world.work();
    assert_eq!(world.tiers.stats().counters.cleared, 0, "pages of a namespace nobody cleared");
    assert_eq!(world.run(&PLAIN, &tokens), (0, 40));
    world.end();
}

/// T13, T17: however many namespaces were cleared since the tiers were attached, the remote store
/// is asked for the others, and given those.
#[test]
fn t13_many_clears_leave_the_remote_store_to_others() {
    let tokens = prompt(1, 41);
    let remote = MemoryRemote::new();
    let setup = || Setup { remote: Some(remote.clone()), ..Setup::new(30, 32, None) };
    let mut first = World::new(setup());
    first.run(&PLAIN, &tokens);
    first.settle();
    first.end();
    drop(first);
    let mut other = World::new(setup());
    clear_tenants(&other, World::work);
    assert_eq!(other.run(&PLAIN, &tokens), (0, 40));
    other.end();
}

/// M05, T17: what was cleared right before the tiers are closed leaves the disk, also when there is
/// no memory then: nobody comes to it later, and a restart would find it.
#[test]
fn m05_t17_tiers_that_are_closed_without_memory_leave_nothing_that_was_cleared() {
    let tokens = prompt(1, 41);
    let store = MemoryStore::new(64 * PAGE_BYTES as u64, usize::MAX);
    let world = stored(Setup::new(20, 64, Some(store.clone())), &tokens);
    assert_eq!(store.records().len(), 10);
    // The thread does not come to it.
    world.shared.clear(Scope::exactly(PLAIN)).unwrap();
    let ((), failed) = failing(Failure::Once(0), || world.shared.detach_lower());
    store.commit();
    assert_eq!((store.records().len(), failed), (0, 1), "a restart finds what was cleared");
}
