//! Attention on the CPU against its definition in f64, over paged memory that is poisoned wherever
//! nothing was written.

mod attention {
    pub mod compare;
    pub mod memory;
    pub mod numbers;
    pub mod world;
}

use attention::world::{Chunk, Setup, World};

// K20
#[test]
fn k20_a_chunk_attends_to_the_prefix_and_itself() {
    let setup = Setup::default();
    let mut world = World::new(setup, 1);
    world.fill(0, 21);
    world.step(&[Chunk::new(0, 37)]);
    world.step(&[Chunk::new(0, 5)]);
    world.step(&[Chunk::new(0, 1)]);
}
