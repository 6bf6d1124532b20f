//! Attention on the CPU against its definition in f64, over paged memory that is poisoned wherever
//! nothing was written.

mod attention {
    pub mod check;
    pub mod compare;
    pub mod contexts;
    pub mod cuts;
    pub mod edges;
    pub mod fp8;
    pub mod groups;
    pub mod matrix;
    pub mod memory;
    pub mod numbers;
    pub mod setup;
    pub mod states;
    pub mod trees;
    pub mod world;
}

use attention::setup::{Setup, best_isa};
use attention::world::{Chunk, World};
use attention::{contexts, cuts, edges, fp8, groups, matrix, states, trees};
use radixkv::cpu::Isa;

// K20 K21 K22: all formats, head sizes, groupings, layouts and masks.
#[test]
fn every_combination_with_heads_of_64() {
    matrix::matrix(64);
}

#[test]
fn every_combination_with_heads_of_80() {
    matrix::matrix(80);
}

#[test]
fn every_combination_with_heads_of_112() {
    matrix::matrix(112);
}

#[test]
fn every_combination_with_heads_of_96() {
    matrix::matrix(96);
}

#[test]
fn every_combination_with_heads_of_128() {
    matrix::matrix(128);
}

#[test]
fn every_combination_with_heads_of_256() {
    matrix::matrix(256);
}

#[test]
fn random_shapes_with_each_set_of_instructions() {
    for isa in Isa::available() {
        matrix::random_shapes(isa, 60);
    }
}

#[test]
fn k20_a_chunk_attends_to_the_prefix_and_itself() {
    let mut world = World::new(Setup::default(), 1);
    world.fill(0, 21);
    world.step(&[Chunk::new(0, 37)]);
    world.step(&[Chunk::new(0, 5)]);
    world.step(&[Chunk::new(0, 1)]);
}

#[test]
fn k20_every_cut_equals_a_full_prefill() {
    cuts::every_cut(best_isa());
}

#[test]
fn k21_regions_and_cuts() {
    cuts::regions_and_cuts();
}

// K21
#[test]
fn k21_drafts_see_what_their_tree_masks_show() {
    for isa in Isa::available() {
        trees::random_trees(isa, 60);
    }
    trees::every_format();
}

// K21
#[test]
fn k21_a_tree_without_branches_is_a_causal_row() {
    trees::a_chain_is_causal();
}

// K21
#[test]
fn k21_nan_stays_on_its_branch() {
    trees::nan_stays_on_its_branch();
}

// K21
#[test]
fn k21_tree_masks_that_are_none_are_refused() {
    trees::refused_masks();
}

// K21
#[test]
fn k21_queries_that_are_no_positions_see_a_whole_context() {
    for isa in Isa::available() {
        contexts::random_contexts(isa, 60);
    }
    contexts::refused_contexts();
}

// K22
#[test]
fn k22_each_head_has_scales_of_its_own() {
    contexts::scales_of_heads();
}

// K21, for Miri.
#[test]
fn small_trees() {
    trees::a_small_tree();
}

#[test]
fn a_result_does_not_depend_on_the_batch_the_chunks_or_the_threads() {
    cuts::batches_and_threads(40);
}

#[test]
fn long_rows_give_the_same_bits_on_any_number_of_threads() {
    cuts::long_rows();
}

#[test]
fn the_first_call_may_have_a_long_row() {
    cuts::first_call_with_a_long_row();
}

// K22
#[test]
fn k22_every_byte_of_fp8_means_what_the_format_says() {
    fp8::every_byte();
}

// G14
#[test]
fn g14_rows_with_holes_windows_sinks_and_chunks() {
    for isa in Isa::available() {
        groups::random_groups(isa, 30);
    }
}

// G14
#[test]
fn g14_keys_and_values_of_different_sizes() {
    groups::sizes_of_keys_and_values();
}

// G14
#[test]
fn g14_long_rows_with_sinks_give_the_same_bits_on_any_number_of_threads() {
    groups::long_rows_with_sinks();
}

// G14, for Miri.
#[test]
fn small_groups() {
    groups::small_groups();
}

// K22
#[test]
fn k22_fp8_rounds_to_the_nearest_and_saturates() {
    fp8::rounding_and_saturation();
}

#[test]
fn states_merge_into_one() {
    states::random_states(60);
    states::all_empty();
}

#[test]
fn merged_parts_equal_attention_to_the_union() {
    states::parts_make_the_whole();
}

#[test]
fn nan_reaches_only_those_that_see_it() {
    edges::nan_stays_where_it_is_seen();
}

#[test]
fn nan_of_a_whole_segment_is_not_forgotten() {
    edges::nan_stays_where_a_segment_has_nothing_else();
}

#[test]
fn extreme_logits() {
    edges::extreme_logits();
}

#[test]
fn threads_of_the_engine() {
    edges::threads_of_the_engine();
}

// What Miri runs: tests whose names begin with small.
#[test]
fn small_shapes() {
    edges::small_shapes();
}

#[test]
fn small_states() {
    states::random_states(3);
    states::all_empty();
}

#[test]
fn several_calls_at_once() {
    edges::calls_at_once();
}

// B08
#[test]
fn b08_the_first_positions_of_pages_are_copied() {
    edges::copies_of_pages();
}

#[test]
fn what_is_not_supported_is_refused() {
    edges::refusals();
}

#[test]
fn a_refused_row_changes_nothing() {
    edges::refused_rows();
}

#[test]
fn an_empty_batch() {
    edges::empty_batch();
}
