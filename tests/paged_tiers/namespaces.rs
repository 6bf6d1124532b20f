//! Namespaces come and go, one for each tenant.
use crate::memory_store::MemoryStore;
use crate::world::{Setup, World};
use crate::{PLAIN, prompt};
use radixkv::index::Namespace;

fn of_tenant(tenant: u32) -> Namespace {
    let mut space = PLAIN;
    space.salt[..4].copy_from_slice(&tenant.to_le_bytes());
    space
}

/// T10: a namespace takes memory for as long as a page of it is somewhere: thousands that come and
/// go leave nothing behind, and what is left of one of them is still there.
#[test]
fn t10_namespaces_that_went_take_no_memory() {
    let store = MemoryStore::new(1 << 10, 1 << 10);
    let mut world = World::new(Setup::new(12, 16, Some(store)));
    let tokens = prompt(1, 17);
    let come = |world: &mut World, tenants: std::ops::Range<u32>| {
        for tenant in tenants {
            world.run(&of_tenant(tenant), &tokens);
            world.settle();
        }
        world.tiers.stats().index_bytes
    };
    let before = come(&mut world, 1..200);
    let after = come(&mut world, 200..3000);
    assert_eq!(before, after, "bytes of the index with 200 and with 3000 namespaces behind");
    let (had, brought) = world.run(&of_tenant(2999), &tokens);
    assert_eq!(had + brought, 16, "the last one is still there");
    assert_eq!(world.run(&of_tenant(1), &tokens), (0, 0), "the first one is not");
    world.end();
}
