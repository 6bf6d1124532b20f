//! More clears than a list of some dozen would remember.
use crate::remote_store::MemoryRemote;
use crate::world::{Setup, World};
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
