//! The CUDA backend on an emulated device: its own kernels, compiled for the processor, behind an
//! emulated driver. With RKV_CUDA_DRIVER=system the same tests run on a GPU.

mod cuda {
    #[path = "../attention/memory.rs"]
    pub mod memory;
    #[path = "../attention/numbers.rs"]
    pub mod numbers;

    pub mod compare;
    pub mod device;
    pub mod emulator;
    pub mod world;
}

use cuda::world::{Setup, World};

// K20
#[test]
fn k20_a_chunk_attends_to_the_prefix_and_itself() {
    let mut world = World::new(Setup::new(64, 16), 1);
    world.fill(0, 21);
    world.step(&[(0, 37)]);
    world.step(&[(0, 5)]);
    world.step(&[(0, 1)]);
}
