//! The CUDA backend on an emulated device: its own kernels, compiled for the processor, behind an
//! emulated driver. With RKV_CUDA_DRIVER=system the same tests run on a GPU.

mod cuda {
    #[path = "../attention/memory.rs"]
    #[allow(dead_code)] // what only the CPU's tests use
    pub mod memory;
    #[path = "../attention/numbers.rs"]
    pub mod numbers;

    pub mod buffers;
    pub mod compare;
    pub mod device;
    mod emulated_driver;
    pub mod emulator;
    pub mod setup;
    pub mod world;

    mod clocks;
    mod contexts;
    mod driver;
    mod faults;
    mod graph;
    mod graph_runner;
    mod groups;
    mod hopper;
    mod long_heads;
    mod matrix;
    mod moves;
    mod runner;
    mod shared_plan;
    mod steps;
    mod streams;
    mod tier;
    mod trees;
}
