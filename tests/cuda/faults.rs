//! Faults put into the kernels are found: a test that could not fail would show nothing.
use super::emulator::{Conduct, has_faults};
use super::long_heads::unusual;
use super::trees::binary_tree;
use super::world::{Setup, World};
use radixkv::attention::Dtype;
use radixkv::gpu::{Heads, heads_of_sm90};

/// Names in the order of `Fault` in kernels/device.cuh, from 1 on.
pub const FAULTS: [&str; 32] = [
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
    "the parity of a barrier's phase stays the same",
    "no wait for logits",
    "no wait for sums of values",
    "no fence after rows were copied",
    "a stage is released while a product reads it",
    "no wait for room",
    "pieces of a row are not exchanged",
    "too few bytes are expected",
    "blocks behind the end of a step stay",
    "tree masks are not looked at",
    "K and V of no position are written",
    "scales of heads are not looked at",
    "no barrier before logits of other warps are read",
    "no barrier before sums of other warps are merged",
    "no wait for the launch before",
    "an item is told before the last one was heard",
    "the counter of items is not put back",
    "weights are handed over before the last ones were taken",
    "weights are taken before they were handed over",
];
/// Those that attn_mma can have.
const OF_MMA: usize = 13;
/// What only a graph can show: elsewhere there are no such blocks.
pub const OF_GRAPHS: usize = 22;
/// Of attn_mma again.
const OF_TREES: usize = 23;
const OF_CONTEXTS: usize = 24;
const OF_HEAD_SCALES: usize = 25;
/// Where warps share the sums of a row.
const OF_LOGITS: usize = 26;
/// Where results of several blocks become one.
const OF_MERGES: usize = 27;
/// Where launches may begin before others have ended.
const OF_LAUNCHES: usize = 28;
/// Where blocks take several items.
const OF_ITEMS: [usize; 2] = [29, 30];
/// Where one group makes the weights of another.
const OF_GROUPS: [usize; 2] = [31, 32];
/// What cannot happen where queries stay in shared memory.
const OF_QUERIES: usize = 5;
/// What cannot happen where every warp sees all keys.
const OF_KEY_WARPS: usize = 10;
/// Those of attn_mma's that attn_sm90 cannot have: it has no such place.
const NOT_OF_SM90: [usize; 4] = [1, 2, 4, 10];
/// Nor where it widens keys and values: there is no NaN among them, and no barrier counts bytes.
const NOT_OF_FP8: [usize; 2] = [8, 21];

/// Sums are rescaled only where logits outgrow the maximum so far by much.
fn query_size(fault: usize) -> f32 {
    if FAULTS.get(fault.wrapping_sub(1)) == Some(&"sums are not rescaled") { 16.0 } else { 1.0 }
}

/// Steps in which each fault has a place to show.
fn steps(fault: usize) -> Result<(), String> {
    let mut setup = Setup::new(64, 16);
    setup.sinks = true;
    setup.params.view.window = (fault == 7).then_some(30);
    setup.q_size = query_size(fault);
    if fault == OF_HEAD_SCALES {
        setup = setup.dtypes(Dtype::Bf16, Dtype::Fp8E4m3);
        setup.head_scales = true;
    }
    let mut world = World::new(setup, 2);
    world.fill(0, 1100);
    world.fill(1, 45);
    world.sequences[0].is_context = fault == OF_CONTEXTS;
    world.sequences[1].tree = if fault == OF_TREES { binary_tree(35) } else { Vec::new() };
    world.driver.conduct(Conduct { fault: fault as i32, ..Conduct::default() });
    if fault != OF_TREES {
        world.try_step(&[(0, 1), (1, 1)])?;
    }
    world.try_step(&[(0, 35), (1, 35)])?;
    Ok(())
}

/// The same for heads whose values lie otherwise, or are shared by several warps.
fn steps_of_long_heads(heads: Heads, fault: usize) -> Result<(), String> {
    let mut setup = Setup::of(heads, 16).heads(4, 1);
    setup.sinks = true;
    setup.params.view.window = (fault == 7).then_some(30);
    setup.q_size = query_size(fault);
    setup.pages = 90;
    let mut world = World::new(setup, 2);
    world.fill(0, 1100);
    world.fill(1, 45);
    world.driver.conduct(Conduct { fault: fault as i32, ..Conduct::default() });
    world.try_step(&[(0, 1), (1, 1)])?;
    world.try_step(&[(0, 12), (1, 12)])?;
    Ok(())
}

/// The same for attn_sm90: tiles that boxes make, and tiles that rows make, with every landing or,
/// where they are latent, one each; or tiles that are widened.
fn steps_of_sm90(heads: Heads, kv_dtype: Dtype, fault: usize) -> Result<(), String> {
    let worlds: &[(usize, i32)] = match heads.latent {
        false => &[(16, 0), (16, 1), (16, 2), (7, 0), (7, 1)],
        true => &[(16, 2), (7, 1)], // its tiles take long
    };
    for &(page_size, landing) in worlds {
        let setup = Setup::of(heads, page_size).heads(8, 2).sm90();
        let mut setup = setup.dtypes(Dtype::Bf16, kv_dtype);
        setup.head_scales = kv_dtype == Dtype::Fp8E4m3;
        setup.sinks = true;
        setup.params.view.window = (fault == 7).then_some(300);
        setup.q_size = query_size(fault);
        let mut world = World::new(setup, 2);
        world.fill(0, 1100);
        world.driver.conduct(Conduct { fault: fault as i32, landing, ..Conduct::default() });
        if heads.latent {
            // A row whose keys are divided: 20 heads of a query go to no smaller tile.
            world.try_step(&[(0, 5)])?;
        }
        world.try_step(&[(0, 35), (1, 35)])?;
        // More items than there are multiprocessors, and a second launch of them.
        world.layers = 2;
        world.try_step(&[(0, 100), (1, 80)])?;
    }
    Ok(())
}

fn check_all_are_found(
    faults: impl Iterator<Item = usize>,
    steps: impl Fn(usize) -> Result<(), String>,
) {
    if !has_faults() {
        return;
    }
    steps(0).expect("without a fault nothing is found");
    let mut missed = 0;
    for fault in faults {
        let found = steps(fault).err();
        missed += usize::from(found.is_none());
        println!("{}: {}", FAULTS[fault - 1], found.as_deref().unwrap_or("NOT FOUND"));
    }
    assert_eq!(missed, 0, "some fault was not found");
}

#[test]
fn every_fault_is_found() {
    check_all_are_found(
        (1..=OF_MMA).chain([OF_TREES, OF_CONTEXTS, OF_HEAD_SCALES, OF_MERGES]),
        steps,
    );
}

#[test]
fn every_fault_is_found_in_long_heads() {
    for heads in unusual() {
        let are_shared = heads.v_head_dim > 256;
        let faults = (1..=OF_MMA)
            .chain([OF_LOGITS])
            .filter(|&fault| fault != OF_QUERIES)
            .filter(|&fault| fault != if are_shared { OF_KEY_WARPS } else { OF_LOGITS });
        check_all_are_found(faults, |fault| steps_of_long_heads(heads, fault));
    }
}

#[test]
fn every_fault_of_attn_sm90_is_found() {
    let of = |head_dim| heads_of_sm90().find(|heads| heads.head_dim == head_dim).unwrap();
    let faults = || (1..OF_GRAPHS).filter(|fault| !NOT_OF_SM90.contains(fault));
    let of_items = || OF_ITEMS.into_iter().chain([OF_LAUNCHES]);
    check_all_are_found(faults().chain(of_items()), |fault| {
        steps_of_sm90(of(64), Dtype::Bf16, fault)
    });
    let of_fp8 = faults().filter(|fault| !NOT_OF_FP8.contains(fault)).chain([OF_HEAD_SCALES]);
    check_all_are_found(of_fp8.chain(OF_ITEMS), |fault| {
        steps_of_sm90(of(64), Dtype::Fp8E4m3, fault)
    });
    check_all_are_found(faults().chain(of_items()).chain(OF_GROUPS), |fault| {
        steps_of_sm90(of(576), Dtype::Bf16, fault)
    });
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
