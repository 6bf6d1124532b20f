//! What a program that was compiled against the header relies on: the names that the library
//! exports, the numbers behind the names, and the layout of every struct. `docs/ABI.md` says what
//! may change; `make abi-bless` accepts additions.
use radixkv::capi;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// Only in builds with the fault-injection feature, and no part of the ABI.
const FAULTS: [&str; 2] = ["rkv_fault_panic", "rkv_fault_panic_snapshot"];

struct Layout {
    name: &'static str,
    size: usize,
    fields: &'static [(&'static str, usize)],
}

/// Pins size and offsets, and checks them against the Rust structs.
macro_rules! layouts {
    ($($name:ident $size:literal { $($field:ident $offset:literal),* })*) => {
        const LAYOUTS: &[Layout] = &[$(Layout {
            name: stringify!($name),
            size: $size,
            fields: &[$((stringify!($field), $offset)),*],
        }),*];

        #[test]
        fn rust_layouts_are_the_pinned_ones() {
            $(
                assert_eq!(size_of::<capi::$name>(), $size, stringify!($name));
                $(assert_eq!(
                    offset_of!(capi::$name, $field),
                    $offset,
                    concat!(stringify!($name), ".", stringify!($field)),
                );)*
            )*
        }
    };
}

// Fields are appended, never moved. Of structs without struct_size, elements of arrays grow as
// their calls are told; docs/ABI.md names the others, which never do.
#[cfg(target_pointer_width = "64")]
layouts! {
    rkv_shortage 56 {
        struct_size 0, pool 4, needed_page_count 8, free_page_count 16,
        reclaimable_page_count 24, locked_page_count 32, private_page_count 40,
        retained_page_count 48
    }
    rkv_token_item 40 { token_index 0, kind 8, position_count 12, bin 16, height_bin 20, digest 24 }
    rkv_tokens 40 { struct_size 0, item_size 4, ids 8, count 16, items 24, item_count 32 }
    rkv_region 16 { start 0, end 8 }
    rkv_page_table_config 72 {
        struct_size 0, page_size 4, page_count 8, slot_count 12, row_page_limit 16, flags 20,
        groups 24, group_count 32, group_size 40, pools 48, pool_count 56, pool_size 64
    }
    rkv_group_config 24 {
        kind 0, pool 4, window 8, sinks 12, chunk 16, draft_state_count 20
    }
    rkv_pool_config 8 { page_count 0, reserved 4 }
    rkv_pool_stats 64 {
        struct_size 0, reserved 4, total_page_count 8, free_page_count 16, cached_page_count 24,
        private_page_count 32, reclaimable_page_count 40, outside_page_count 48,
        retained_page_count 56
    }
    rkv_group_row 32 { group 0, reserved 4, pages 8, page_count 16, published_pages 24 }
    rkv_group_cost 16 { group 0, reserved 4, lost_position_count 8 }
    rkv_group_depths 40 {
        struct_size 0, reserved 4, position_count 8, known_position_count 16, checkpoint_at 24
    }
    rkv_group_stats 40 {
        group 0, reserved 4, cached_page_count 8, evicted_page_count 16, limited_lookup_count 24,
        lost_position_count 32
    }
    rkv_locked_page 8 { page_index 0, page 4 }
    rkv_published_group 16 {
        group 0, claimed_page_count 4, remapped_page_count 8, reserved 12
    }
    rkv_evicted_page 8 { group 0, page 4 }
    rkv_page_table_stats 80 {
        struct_size 0, page_size 4, total_page_count 8, free_page_count 16, cached_page_count 24,
        private_page_count 32, reclaimable_page_count 40, slot_count 48, free_slot_count 56,
        memory_bytes 64, outside_page_count 72
    }
    rkv_page_table_batch_row 8 { slot 0, position_count 4 }
    rkv_page_table_batch_arrays 40 {
        struct_size 0, reserved 4, indptr 8, indices 16, indices_capacity 24, last_page_len 32
    }
    rkv_cache_config 40 {
        struct_size 0, flags 4, index 8, reserved 12, retained_sequence_limit 16,
        retained_page_limit 20, journal_bytes 24, checkpoint_limit 32
    }
    rkv_namespace 72 { struct_size 0, flags 4, lora_id 8, epoch 16, image_digest 24, salt 40 }
    rkv_page_digest 32 { bytes 0 }
    rkv_tokens_page_digests_args 40 {
        struct_size 0, page_size 4, space 8, tokens 16, parent 24, first_page 32
    }
    rkv_cache_match_result 96 {
        struct_size 0, partial_page 4, node 8, partial_node 16, lock 24, token_count 32,
        position_count 40, page_count 48, partial_position_count 56, known_position_count 64,
        checkpoint_at 72, limiting_group 88, reserved 92
    }
    rkv_cache_match_item 40 {
        space 0, tokens 8, pages 16, page_capacity 24, flags 32, reserved 36
    }
    rkv_cache_probe_item 16 { space 0, tokens 8 }
    rkv_cache_probe_result 16 { token_count 0, position_count 8 }
    rkv_cache_clear_args 16 { struct_size 0, flags 4, space 8 }
    rkv_cache_clear_result 48 {
        struct_size 0, reserved 4, namespace_count 8, freed_page_count 16, held_page_count 24,
        waiting_page_count 32, dropped_sequence_count 40
    }
    rkv_cache_insert_args 96 {
        struct_size 0, flags 4, space 8, tokens 16, pages 24, page_count 32, from_node 40,
        from_token_index 48, from_page_index 56, groups 64, group_count 72, group_size 80, lock 88
    }
    rkv_index_memory_stats 32 {
        struct_size 0, reserved 4, reserved_bytes 8, huge_page_bytes 16, used_bytes 24
    }
    rkv_cache_insert_result 64 {
        struct_size 0, reserved 4, node 8, claimed_page_count 16, duplicate_page_count 24, lock 32,
        claimed_group_page_count 40, duplicate_group_page_count 48, page_count 56
    }
    rkv_node_info 64 {
        struct_size 0, lock_count 4, parent 8, position_count 16, page_count 24, end_position 32,
        child_count 40, last_access 48, hit_count 56
    }
    rkv_cache_stats 184 {
        struct_size 0, reserved 4, cached_page_count 8, reclaimable_page_count 16, node_count 24,
        namespace_count 32, sequence_count 40, image_count 48, index_bytes 56, lookup_count 64,
        lookup_position_count 72, hit_position_count 80, partial_hit_position_count 88,
        inserted_page_count 96, duplicate_page_count 104, evicted_page_count 112, prefix_count 120,
        retained_sequence_count 128, retained_page_count 136, displaced_sequence_count 144,
        inherit_count 152, inherited_position_count 160, lock_count 168,
        dropped_checkpoint_count 176
    }
    rkv_sequence_begin_args 40 {
        struct_size 0, flags 4, space 8, tokens 16, reserve_position_count 24,
        allocate_position_count 32
    }
    rkv_sequence_info 112 {
        struct_size 0, slot 4, sequence 8, position_count 16, cached_position_count 24,
        cached_token_count 32, page_count 40, shared_page_count 48, node 56,
        copy_count 64, inherited_position_count 72, known_position_count 80, checkpoint_at 88,
        limiting_group 104, reserved 108
    }
    rkv_sequence_publish_result 48 {
        struct_size 0, reserved 4, claimed_page_count 8, remapped_page_count 16,
        first_remapped_index 24, shared_page_count 32, node 40
    }
    rkv_sequence_append_item 32 { sequence 0, ids 8, id_count 16, tokens 24 }
    rkv_sequence_publish_item 16 { sequence 0, computed_position_count 8 }
    rkv_runner_kv_memory 64 {
        k 0, v 8, page_stride 16, position_stride 24, head_stride 32, v_page_stride 40,
        v_position_stride 48, v_head_stride 56
    }
    rkv_page_copy 16 { source_page 0, target_page 4, position_count 8, group 12 }
    rkv_runner_config 88 {
        struct_size 0, backend 4, layer_count 8, query_head_count 12, kv_head_count 16,
        head_dim 20, dtype 24, kv_dtype 28, kv_layout 32, thread_count 36, flags 40, device 44,
        kv_layers 48, kv_layer_size 56, parallel_for 64, parallel_user_data 72, group 80,
        v_head_dim 84
    }
    rkv_runner_stats 24 { struct_size 0, thread_count 4, kv_bytes 8, page_bytes 16 }
    rkv_plan_row 56 {
        sequence 0, slot 8, region_count 12, regions 16, start 24, count 32, tree_masks 40,
        mask 48, reserved 52
    }
    rkv_plan_capacity 40 {
        struct_size 0, flags 4, row_count 8, position_count 16, row_position_count 24,
        page_count 32
    }
    rkv_plan_arrays 104 {
        struct_size 0, row_count 4, position_count 8, query_indptr 16, indptr 24, indices 32,
        last_page_len 40, slot_mapping 48, copy_count 56, copy_sequence 64, copy_group 72,
        copy_source_page 80, copy_target_page 88, copy_position_count 96
    }
    rkv_plan_group_arrays 56 {
        struct_size 0, row_count 4, indptr 8, indices 16, last_page_len 24, slot_mapping 32,
        first_position 40, sink_page_count 48
    }
    rkv_runner_append_prefill_args 168 {
        struct_size 0, layer 4, q 8, k 16, v 24, out 32, lse 40, q_position_stride 48,
        q_head_stride 56, k_position_stride 64, k_head_stride 72, v_position_stride 80,
        v_head_stride 88, out_position_stride 96, out_head_stride 104, sinks 112, scale 120,
        soft_cap 124, window 128, k_scale 132, v_scale 136, reserved 140, stream 144,
        k_scales 152, v_scales 160
    }
    rkv_kept_branch 16 { row 0, position_count 4, positions 8 }
    rkv_runner_merge_states_args 56 {
        struct_size 0, state_count 4, position_count 8, outs 16, lses 24, out 32, lse 40,
        stream 48
    }
    rkv_sequence_continue_args 56 {
        struct_size 0, flags 4, parent 8, space 16, tokens 24, all_tokens 32,
        reserve_position_count 40, allocate_position_count 48
    }
    rkv_sequence_fork_args 32 {
        struct_size 0, flags 4, parent 8, child_count 16, reserve_position_count 24
    }
    rkv_sequence_fork_child 16 { sequence 0, slot 8, copy_count 12 }
    rkv_journal_record 160 {
        number 0, kind 8, reason 12, group 16, parent_page 20, first_position 24, page_index 32,
        page_count 40, token_index 48, token_count 56, item_index 64, item_count 72,
        namespace_flags 80, reserved 84, lora_id 88, epoch 96, image_digest 104, salt 120,
        group_0_page_index 152
    }
    rkv_journal_item 48 {
        kind 0, position 4, position_count 8, image_offset 12, image_position_count 16, bin 20,
        height_bin 24, reserved 28, digest 32
    }
    rkv_journal_buffers 88 {
        struct_size 0, flags 4, records 8, record_size 16, record_capacity 24, pages 32,
        page_capacity 40, tokens 48, token_capacity 56, items 64, item_size 72, item_capacity 80
    }
    rkv_cache_read_journal_result 72 {
        struct_size 0, reserved 4, record_count 8, page_count 16, token_count 24, item_count 32,
        last_number 40, newest_number 48, oldest_number 56, lost_count 64
    }
    rkv_cache_read_contents_result 56 {
        struct_size 0, next_page 4, record_count 8, page_count 16, token_count 24, item_count 32,
        number 40, newest_number 48
    }
    rkv_event_encoder_config 24 {
        struct_size 0, flags 4, data_parallel_rank 8, placeholder_token_id 12, medium 16
    }
    rkv_event_batch 56 {
        struct_size 0, flags 4, byte_count 8, event_count 16, stored_block_count 24,
        removed_block_count 32, last_number 40, lost_record_count 48
    }
    rkv_tier_config 136 {
        struct_size 0, flags 4, page_bytes 8, host_bytes 16, host_memory 24, directory 32,
        disk_bytes 40, fingerprint 48, store_after_uses 80, worker_count 84, commit_interval_ms 88,
        event_fd 92, remote 96, remote_timeout_ms 104, reserved 108, pools 112, pool_count 120,
        pool_size 128
    }
    rkv_tier_pool_config 24 { page_bytes 0, host_bytes 8, host_memory 16 }
    rkv_remote_item 56 { key 0, bytes 32, byte_count 40, answer 48, reserved 52 }
    rkv_remote_store 48 {
        struct_size 0, reserved 4, user_data 8, has 16, get 24, put 32, remove 40
    }
    rkv_sequence_fetch_result 32 {
        struct_size 0, is_open 4, position_count 8, host_position_count 16,
        asked_position_count 24
    }
    rkv_cache_prefetch_result 48 {
        struct_size 0, reserved 4, prefetch 8, cached_position_count 16, position_count 24,
        host_position_count 32, asked_position_count 40
    }
    rkv_copy_job 48 {
        job 0, host 8, byte_count 16, sequence 24, page 32, direction 36, group 40, reserved 44
    }
    rkv_fetch_end 40 {
        sequence 0, position_count 8, wanted_page_count 16, brought_page_count 24, flags 32,
        reserved 36
    }
    rkv_cache_poll_result 24 { struct_size 0, reserved 4, job_count 8, end_count 16 }
    rkv_tier_totals 64 {
        page_count 0, used_bytes 8, byte_limit 16, stored_page_count 24, fetched_page_count 32,
        evicted_page_count 40, damaged_page_count 48, failed_count 56
    }
    rkv_remote_totals 176 {
        asked_page_count 0, found_page_count 8, read_page_count 16, read_bytes 24,
        fetched_page_count 32, written_page_count 40, written_bytes 48, known_page_count 56,
        damaged_page_count 64, gone_page_count 72, failed_page_count 80, late_page_count 88,
        skipped_page_count 96, dropped_page_count 104, waiting_page_count 112,
        late_fetch_count 120, call_count 128, slow_call_count 136, call_ns 144,
        longest_call_ns 152, pause_count 160, is_paused 168
    }
    rkv_tier_stats 520 {
        struct_size 0, is_read_only 4, host 8, disk 72, open_fetch_count 136, open_job_count 144,
        copied_page_count 152, index_bytes 160, followed_number 168, fetch_count 176,
        joined_count 184, complete_count 192, shortened_count 200, late_count 208,
        abandoned_count 216, fetch_ns 224, longest_fetch_ns 232, lost_page_count 240,
        throttled_page_count 248, lost_record_count 256, cleared_page_count 264,
        waiting_write_count 272, unusable_page_count 280, longest_commit_ns 288, remote 296,
        open_prefetch_count 472, prefetch_count 480, refused_prefetch_count 488,
        prefetched_disk_page_count 496, prefetched_remote_page_count 504, is_ring 512
    }
    rkv_snapshot_cache_config 24 { struct_size 0, flags 4, entry_limit 8, byte_limit 16 }
    rkv_snapshot_cache_stats 160 {
        struct_size 0, reserved 4, entry_count 8, entry_bytes 16, pinned_entry_count 24,
        pin_count 32, detached_count 40, detached_bytes 48, node_count 56, namespace_count 64,
        index_bytes 72, lookup_count 80, hit_count 88, full_hit_count 96, lookup_token_count 104,
        hit_token_count 112, stored_count 120, replaced_count 128, rejected_count 136,
        evicted_count 144, removed_count 152
    }
    rkv_snapshot_part 16 { data 0, size_bytes 8 }
    rkv_snapshot_cache_insert_args 88 {
        struct_size 0, flags 4, space 8, tokens 16, data 24, size_bytes 32, destructor 40,
        user_data 48, has_next_token 56, next_token 60, parts 64, part_count 72, part_size 80
    }
    rkv_snapshot_cache_insert_result 24 {
        struct_size 0, stored 4, replaced 8, reserved 12, evicted_count 16
    }
    rkv_snapshot_cache_match_result 72 {
        struct_size 0, full_hit 4, pin 8, data 16, size_bytes 24, token_count 32,
        has_next_token 40, next_token 44, common_token_count 48, fetchable_token_count 56,
        is_copy 64, reserved 68
    }
    rkv_snapshot_tier_config 96 {
        struct_size 0, flags 4, directory 8, byte_limit 16, fingerprint 24, write_after_matches 56,
        worker_count 60, waiting_byte_limit 64, commit_interval_ms 72, event_fd 76,
        remote 80, remote_timeout_ms 88, reserved 92
    }
    rkv_snapshot_cache_fetch_result 40 {
        struct_size 0, reserved 4, ticket 8, token_count 16, common_token_count 24, size_bytes 32
    }
    rkv_snapshot_tier_stats 416 {
        struct_size 0, is_read_only 4, entry_count 8, used_bytes 16, byte_limit 24,
        writing_count 32, waiting_bytes 40, loading_bytes 48, ticket_count 56, index_bytes 64,
        write_count 72, written_bytes 80, failed_write_count 88, no_space_count 96, full_count 104,
        throttled_count 112, unfit_count 120, load_count 128, loaded_count 136, read_bytes 144,
        joined_count 152, failed_load_count 160, damaged_count 168, late_count 176,
        no_memory_count 184, unusable_count 192, commit_count 200, longest_commit_ns 208,
        write_ns 216, read_ns 224, remote 232, is_ring 408
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The headers, one after the other, without their comments.
fn header() -> String {
    let read = |name: &str| fs::read_to_string(root().join("include").join(name)).unwrap();
    let text = read("radixkv.h") + &read("radixkv_spatial.h");
    let mut code = String::new();
    for (at, piece) in text.split("/*").enumerate() {
        code.push_str(if at == 0 { piece } else { piece.split_once("*/").unwrap().1 });
    }
    code
}

/// The identifier at the end of a declaration: `a` of `const uint8_t *a[16]`.
fn last_word(declaration: &str) -> &str {
    let name = declaration.split('[').next().unwrap().trim_end();
    name.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap()
}

fn header_functions() -> BTreeSet<String> {
    let header = header();
    let (_, body) = header.split_once("extern \"C\" {").unwrap();
    let declarations = body.split("RKV_API").skip(1);
    declarations.map(|text| last_word(text.split('(').next().unwrap()).to_owned()).collect()
}

/// Compares a list with its blessed file. Blessing adds lines: one that changed or vanished is a
/// broken promise, and has to be taken out of the file by hand.
fn assert_blessed(file: &str, now: &BTreeSet<String>) {
    let path = root().join("abi").join(file);
    let blessed = fs::read_to_string(&path).unwrap_or_default();
    let blessed: BTreeSet<String> = blessed.lines().map(str::to_owned).collect();
    let gone: Vec<_> = blessed.difference(now).collect();
    assert!(gone.is_empty(), "changed or removed, see docs/ABI.md: {gone:#?}");
    if env::var_os("RKV_BLESS").is_some() {
        let lines: Vec<_> = now.iter().map(String::as_str).collect();
        return fs::write(&path, lines.join("\n") + "\n").unwrap();
    }
    let added: Vec<_> = now.difference(&blessed).collect();
    assert!(added.is_empty(), "new; `make abi-bless` accepts it: {added:#?}");
}

#[test]
fn the_library_exports_what_the_header_declares() {
    let mut declared = header_functions();
    if !cfg!(feature = "fault-injection") {
        assert!(FAULTS.iter().all(|name| declared.remove(*name)));
    }
    // Where `cargo test` puts the cdylib: beside this test.
    let library = env::current_exe().unwrap().with_file_name("libradixkv.so");
    let nm = Command::new("nm").args(["-D", "--defined-only"]).arg(&library).output().unwrap();
    assert!(nm.status.success(), "{}", String::from_utf8_lossy(&nm.stderr));
    let symbols = String::from_utf8(nm.stdout).unwrap();
    let exported: BTreeSet<String> =
        symbols.lines().map(|line| line.split_whitespace().last().unwrap().to_owned()).collect();
    assert_eq!(exported, declared);

    declared.retain(|name| !FAULTS.contains(&name.as_str()));
    assert_blessed("exports.txt", &declared);
}

#[test]
fn numbers_keep_their_meaning() {
    let mut numbers = BTreeSet::new();
    for line in header().lines() {
        let line = line.trim().trim_end_matches(',').replace(" = ", " ");
        let words: Vec<&str> = line.trim_start_matches("#define ").split(' ').collect();
        if let [name, value] = words[..]
            && name.starts_with("RKV_")
            && value.parse::<u64>().is_ok()
            && !name.contains("VERSION")
        {
            numbers.insert(format!("{name} {value}"));
        }
    }
    assert!(numbers.contains("RKV_STATUS_OK 0"));
    assert_blessed("numbers.txt", &numbers);
}

#[test]
fn the_changelog_says_what_came_with_the_version() {
    let text = fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    let version = capi::RKV_ABI_VERSION;
    assert!(text.contains(&format!("`RKV_ABI_VERSION` is {version}:")), "{version}");
    assert!(text.contains(&format!("\n| {version} | ")), "what came with {version}");
}

#[test]
fn every_struct_of_the_header_is_pinned() {
    let header = header();
    let mut found = BTreeMap::new();
    for piece in header.split("typedef struct ").skip(1) {
        let Some((name, body)) = piece.split_once(" {") else { continue };
        if name.contains(';') {
            continue; // an opaque handle
        }
        let fields = body.split_once('}').unwrap().0.split_terminator(';').map(last_word);
        found.insert(name, fields.filter(|field| !field.is_empty()).collect::<Vec<_>>());
    }
    let pinned: BTreeMap<&str, Vec<&str>> = LAYOUTS
        .iter()
        .map(|layout| (layout.name, layout.fields.iter().map(|field| field.0).collect()))
        .collect();
    assert_eq!(found, pinned);
}

#[test]
fn c_sees_the_same_layouts() {
    let mut code = "#include \"radixkv.h\"\n".to_owned();
    for Layout { name, size, fields } in LAYOUTS {
        code += &format!("_Static_assert(sizeof({name}) == {size}, \"{name}\");\n");
        for (field, offset) in *fields {
            code += &format!(
                "_Static_assert(offsetof({name}, {field}) == {offset}, \"{name}.{field}\");\n"
            );
        }
    }
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("layout.c");
    fs::write(&source, code).unwrap();
    let compiler = cc::Build::new()
        .target(env!("RKV_TARGET"))
        .host(env!("RKV_TARGET"))
        .opt_level(0)
        .cargo_metadata(false)
        .include(root().join("include"))
        .get_compiler();
    let made = compiler.to_command().args(["-std=c11", "-fsyntax-only"]).arg(source).output();
    let made = made.unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}
