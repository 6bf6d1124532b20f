//! Faults put into the kernels are found: a test that could not fail would show nothing.
use super::emulator::{Conduct, is_real};
use super::world::{Setup, World};
use radixkv::attention::Dtype;

/// Names in the order of `Fault` in kernels/device.cuh, from 1 on.
const FAULTS: [&str; 13] = [
    "no barrier before a tile is used",
    "no barrier after a tile was used",
    "no wait for a tile",
    "waits for one copy too few",
    "no barrier after the queries were read",
    "causal mask off by one",
    "window off by one",
    "unused positions are not zeroed",
    "sums are not rescaled",
    "no barrier before key warps are combined",
    "sinks count in every part",
    "wrong offset in the last place of a page",
    "rows beyond the tile",
];

/// Steps in which each fault has a place to show.
fn steps(fault: usize) -> Result<(), String> {
    let mut setup = Setup::new(64, 16);
    setup.sinks = true;
    setup.params.window = (fault == 7).then_some(30);
    let mut world = World::new(setup, 2);
    world.fill(0, 1100);
    world.fill(1, 45);
    world.driver.conduct(Conduct { fault: fault as i32, ..Conduct::default() });
    world.try_step(&[(0, 1), (1, 1)])?;
    world.try_step(&[(0, 35), (1, 35)])?;
    Ok(())
}

#[test]
fn every_fault_is_found() {
    if is_real() {
        return;
    }
    steps(0).expect("without a fault nothing is found");
    let found: Vec<_> = (1..=FAULTS.len()).map(steps).collect();
    for (name, found) in FAULTS.iter().zip(&found) {
        println!("{name}: {}", found.as_ref().err().map_or("NOT FOUND", |text| text));
    }
    assert!(found.iter().all(Result::is_err), "some fault was not found");
}

/// The comparison is sharp: a thousandth of a value more is seen.
#[test]
fn a_wrong_scale_is_found() {
    let mut world = World::new(Setup::new(64, 16).dtypes(Dtype::F16, Dtype::F16), 1);
    world.fill(0, 100);
    let outcome = world.run(&[(0, 3)]).unwrap();
    world.setup.params.scale *= 1.001;
    let other = world.run(&[(0, 3)]).unwrap();
    let differ = outcome.lse.iter().zip(&other.lse).any(|(a, b)| (a - b).abs() > 1e-5);
    assert!(differ);
}
