//! Tree masks: new positions of a draft that see some of those before them.
use super::hopper::has_hopper;
use super::long_heads::latent;
use super::world::{Setup, World};
use radixkv::attention::{Capacity, Dtype, KvLayout, PositionMove};
use radixkv::gpu::Heads;

/// Masks of a binary tree, whose positions lie in the order of their levels.
pub fn binary_tree(count: usize) -> Vec<u64> {
    let mut masks: Vec<u64> = vec![0];
    for at in 1..count {
        let parent = (at - 1) / 2;
        masks.push(masks[parent] | 1 << parent);
    }
    masks
}

/// A draft of 64 positions and a small one, beside a row that has no tree; contexts end inside of a
/// tile of keys and of a page.
fn step(setup: Setup) -> World {
    let mut world = World::new(setup, 3);
    world.fill(0, 300);
    world.fill(1, 45);
    world.fill(2, 20);
    world.sequences[0].tree = binary_tree(64);
    world.sequences[1].tree = vec![0, 0, 0b01, 0b10, 0b1010];
    world.step(&[(0, 64), (1, 5), (2, 7)]);
    world
}

// K21
#[test]
fn k21_drafts_see_what_their_tree_masks_show() {
    let fp8 = (Dtype::F16, Dtype::Fp8E4m3);
    for (head_dim, page_size, heads, dtypes, window) in [
        (64, 16, (8, 2), (Dtype::Bf16, Dtype::Bf16), None),
        (64, 1, (2, 2), (Dtype::F16, Dtype::F16), Some(40)),
        (96, 23, (3, 1), fp8, None),
        (128, 16, (8, 2), (Dtype::Bf16, Dtype::Bf16), Some(4)),
        (256, 16, (4, 2), (Dtype::Bf16, Dtype::Bf16), None),
        (256, 64, (2, 1), fp8, Some(66)),
    ] {
        let setup = Setup::new(head_dim, page_size).heads(heads.0, heads.1);
        let mut setup = setup.dtypes(dtypes.0, dtypes.1);
        setup.params.view.window = window;
        setup.params.soft_cap = (head_dim == 96).then_some(15.0);
        setup.pages = 500 / page_size + 8;
        step(setup);
    }
}

// K21
#[test]
fn k21_drafts_go_to_attn_mma_where_attn_sm90_is_used() {
    if !has_hopper() {
        return;
    }
    for (head_dim, page_size, window) in [(64, 16, None), (128, 7, Some(50)), (256, 16, None)] {
        let mut setup = Setup::new(head_dim, page_size).heads(8, 2).sm90();
        (setup.params.view.window, setup.pages) = (window, 600 / page_size + 8);
        let mut world = step(setup);
        // And back.
        world.sequences.iter_mut().for_each(|sequence| sequence.tree.clear());
        world.step(&[(2, 70)]);
    }
}

/// A draft whose context is cut into pieces, and shared with another one's.
// K21
#[test]
fn k21_drafts_behind_contexts_that_are_cut_and_shared() {
    let mut setup = Setup::new(64, 16).heads(8, 2);
    (setup.pages, setup.sinks) = (300, true);
    let mut world = World::new(setup, 2);
    world.fill(0, 1640);
    world.share(0, 1, 96);
    world.fill(1, 10);
    for sequence in 0..2 {
        world.sequences[sequence].tree = binary_tree(8 + sequence);
    }
    world.step(&[(0, 8), (1, 9)]);
}

/// Positions of a branch move to where the sequence goes on, also onto places that others leave,
/// and nothing else changes.
// K21
#[test]
fn k21_a_branch_is_moved_in_order() {
    let alike = |head_dim| Heads { head_dim, v_head_dim: head_dim, latent: false };
    let unfolded = Heads { head_dim: 192, v_head_dim: 128, latent: false };
    for (lengths, page_size, layout, dtypes) in [
        (alike(128), 16, KvLayout::Nhd, (Dtype::Bf16, Dtype::Bf16)),
        (alike(80), 1, KvLayout::Hnd, (Dtype::F16, Dtype::Fp8E4m3)),
        (alike(256), 7, KvLayout::Hnd, (Dtype::F16, Dtype::F16)),
        (latent(), 16, KvLayout::Nhd, (Dtype::Bf16, Dtype::Bf16)),
        (unfolded, 16, KvLayout::Hnd, (Dtype::Bf16, Dtype::Fp8E4m3)),
    ] {
        let mut setup = Setup::of(lengths, page_size).heads(8, 4).dtypes(dtypes.0, dtypes.1);
        (setup.layout, setup.padding, setup.pages) = (layout, 16, 120 / page_size + 8);
        let mut world = World::new(setup, 1);
        world.fill(0, 63);
        let before: Vec<_> =
            world.kinds().iter().map(|&kind| (kind, world.memory(kind).read())).collect();
        let place = |world: &World, at: usize| {
            (world.sequences[0].pages[at / page_size], (at % page_size) as u32)
        };
        let sources = [1, 2, 3, 7, 8, 20, 21];
        let moves: Vec<PositionMove> = (40..)
            .zip(sources)
            .map(|(target, source)| PositionMove {
                source: place(&world, 40 + source),
                target: place(&world, target),
            })
            .collect();
        world.move_positions(&moves);
        for (kind, before) in before {
            let mut expected = before.clone();
            for moved in &moves {
                for head in 0..4 {
                    let at = |place| world.place_of_head(kind, place, head);
                    let (source, target) = (at(moved.source), at(moved.target));
                    expected[target].copy_from_slice(&before[source]);
                }
            }
            assert!(world.memory(kind).read() == expected);
        }
    }
}

/// A plan that has room for trees takes steps with and without; another one refuses them.
// K21, J04
#[test]
fn k21_steps_with_trees_are_reserved() {
    let capacity = Capacity {
        rows: 3,
        positions: 80,
        row_positions: 70,
        pages: 60,
        regions: false,
        trees: true,
        cascade: true,
    };
    let mut world = World::new(Setup::new(64, 16), 2);
    world.backend.reserve(&capacity, &mut world.plan).unwrap();
    world.fill(0, 30);
    world.step(&[(0, 40), (1, 3)]);
    world.sequences[1].tree = vec![0, 1, 1, 0b101];
    let (batch, _) = world.rows(&[(1, 4)]);
    let error = Capacity { trees: false, ..capacity }.check_fits(&batch).unwrap_err().to_string();
    assert!(error.contains("tree_masks were not reserved"), "{error}");
    capacity.check_fits(&batch).unwrap();
    world.step(&[(0, 40), (1, 4)]);
}
