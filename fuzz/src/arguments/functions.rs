//! One entry for each function of the header.
use super::values::*;
use super::world::vacant_table;
use super::{
    Call, Outcome, events, journal, many, paged_tiers, pools, runner, sequences, snapshot_tiers,
    snapshots, tokens,
};
use crate::abi::{Pair, Sized32};
use crate::input::Input;
use radixkv::capi::*;
use std::ffi::{CStr, c_char, c_void};
use std::ptr;

/// Functions by name. A test compares the names with the header.
pub const FUNCTIONS: &[(&str, Call)] = &[
    // Version, status, log
    ("rkv_abi_version", |_, _, _| {
        assert_eq!(rkv_abi_version(), RKV_ABI_VERSION);
        Outcome::Done
    }),
    ("rkv_version_string", |_, _, _| text(rkv_version_string())),
    ("rkv_features", |_, _, _| {
        let known = RKV_FEATURE_RADIX_INDEX | RKV_FEATURE_BLOCK_HASH_INDEX;
        assert_eq!(rkv_features() & known, known);
        Outcome::Done
    }),
    ("rkv_status_name", |_, i, _| text(rkv_status_name(number(i) as i32))),
    ("rkv_last_error_message", |_, i, a| {
        let count = i.below(80);
        let buffer = if i.rarely(8) { ptr::null_mut() } else { a.room_for::<c_char>(i, count) };
        // SAFETY: NULL, or the room that is stated.
        unsafe {
            let needed = rkv_last_error_message(buffer, count);
            assert!(needed >= 1);
            if count > 0 && !buffer.is_null() {
                let written = CStr::from_ptr(buffer).to_bytes().len();
                assert!(written < count && written < needed);
            }
        }
        Outcome::Done
    }),
    // SAFETY, here and below: each pointer is NULL, misaligned, or leads to what is stated.
    ("rkv_last_shortage", |_, i, a| unsafe { rkv_last_shortage(a.write(i)) }.into()),
    ("rkv_reserve_index_memory", |_, i, _| {
        // Of a size that a machine has; after the first that succeeds all are refused.
        let some = u64::from(number(i));
        let bytes = if i.flag() { u64::MAX - some } else { some % (1 << 24) };
        rkv_reserve_index_memory(bytes, number(i) % 5).into()
    }),
    ("rkv_read_index_memory_stats", |_, i, a| {
        unsafe { rkv_read_index_memory_stats(a.write(i)) }.into()
    }),
    ("rkv_set_log_callback", |_, i, _| {
        unsafe extern "C-unwind" fn silent(_: u32, _: *const c_char, _: *mut c_void) {}
        let user_data = ptr::without_provenance_mut(size(i));
        unsafe {
            rkv_set_log_callback(number(i), i.flag().then_some(silent), user_data);
            // A callback would swallow the report of a panic.
            rkv_set_log_callback(RKV_LOG_OFF, None, ptr::null_mut());
        }
        Outcome::Done
    }),
    // Tokens
    ("rkv_coord_bin", tokens::coord_bin),
    ("rkv_coord_value", tokens::coord_value),
    ("rkv_size_bin", tokens::size_bin),
    ("rkv_size_value", tokens::size_value),
    ("rkv_image_digest", tokens::image_digest),
    ("rkv_tokens_build", tokens::build),
    ("rkv_tokens_regions", tokens::regions),
    ("rkv_tokens_position_count", tokens::position_count),
    // The page table
    ("rkv_page_table_config_init", |_, i, a| {
        let (room, size) = init_room(i, size_of::<rkv_page_table_config>());
        let config = a.room_for::<u64>(i, room).cast();
        unsafe { rkv_page_table_config_init(config, size) }.into()
    }),
    ("rkv_page_table_create", |_, i, a| {
        let config = rkv_page_table_config {
            page_size: number(i),
            page_count: modest(i, 31),
            slot_count: modest(i, 20),
            row_page_limit: if i.flag() { number(i) } else { 0 },
            flags: zero(i),
            ..Sized32::sized()
        };
        let (config, into) = (a.read(i, &config), a.out::<*mut rkv_page_table>(i));
        unsafe {
            let status = rkv_page_table_create(config, into);
            if status == rkv_status::Ok {
                rkv_page_table_destroy(into.read());
            }
            status.into()
        }
    }),
    ("rkv_page_table_destroy", |w, i, _| {
        if i.rarely(4) {
            unsafe { rkv_page_table_destroy(ptr::null_mut()) };
            return Outcome::Done;
        }
        let table = std::mem::replace(&mut w.pairs[0].table, ptr::null_mut());
        unsafe { rkv_page_table_destroy(table) };
        // The cache lives on without the handle of what it stands on.
        Outcome::Last(unsafe { rkv_cache_check(w.pairs[0].cache) })
    }),
    ("rkv_page_table_read_stats", |w, i, a| {
        unsafe { rkv_page_table_read_stats(w.table(i), a.write(i)) }.into()
    }),
    ("rkv_page_table_allocate_slot", |w, i, a| {
        unsafe { rkv_page_table_allocate_slot(w.table(i), a.out(i)) }.into()
    }),
    ("rkv_page_table_free_slot", |w, i, _| {
        unsafe { rkv_page_table_free_slot(w.table(i), w.slot(i)) }.into()
    }),
    ("rkv_page_table_allocate_pages", |w, i, a| {
        let (mut count, table) = (i.below(24), w.table(i));
        let mut pages = a.room_for::<u32>(i, count);
        if i.rarely(16) {
            (count, pages) = (size(i), ptr::null_mut());
        }
        let status = unsafe { rkv_page_table_allocate_pages(table, count, pages) };
        if status == rkv_status::Ok && count > 0 {
            w.note_pages(unsafe { std::slice::from_raw_parts(pages, count) });
        }
        status.into()
    }),
    ("rkv_page_table_free_pages", |w, i, a| {
        let list = w.pages(i);
        let (pages, count) = a.list(i, &list);
        unsafe { rkv_page_table_free_pages(w.table(i), pages, count) }.into()
    }),
    ("rkv_page_table_map", |w, i, a| {
        let slot = w.slot(i);
        let list = w.pages(i);
        let (pages, count) = a.list(i, &list);
        let first = if i.flag() { row_length(&w.pairs[0], slot) } else { size(i) };
        let status = unsafe { rkv_page_table_map(w.table(i), slot, first, pages, count) };
        // A row that maps cached pages without a lock breaks a promise.
        if status == rkv_status::Ok { Outcome::Last(status) } else { status.into() }
    }),
    ("rkv_page_table_reserve", |w, i, _| {
        unsafe { rkv_page_table_reserve(w.table(i), w.slot(i), size(i)) }.into()
    }),
    ("rkv_page_table_can_reserve", |w, i, a| {
        unsafe { rkv_page_table_can_reserve(w.table(i), w.slot(i), size(i), a.out(i)) }.into()
    }),
    ("rkv_page_table_row_capacity", |w, i, a| {
        unsafe { rkv_page_table_row_capacity(w.table(i), w.slot(i), a.out(i)) }.into()
    }),
    ("rkv_page_table_read_row", |w, i, a| {
        let (pages, capacity) = a.room(i, 12);
        let (table, slot) = (w.table(i), w.slot(i));
        unsafe { rkv_page_table_read_row(table, slot, size(i), pages, capacity, a.count(i)) }.into()
    }),
    ("rkv_page_table_read_slot_mapping", |w, i, a| {
        let positions: Vec<_> = (0..i.below(8)).map(|_| size(i) as u64 % 80).collect();
        let mapping = a.room_for(i, positions.len());
        let (positions, count) = a.list(i, &positions);
        let (table, slot) = (w.table(i), w.slot(i));
        unsafe { rkv_page_table_read_slot_mapping(table, slot, positions, count, mapping) }.into()
    }),
    ("rkv_page_table_read_batch", |w, i, a| {
        let row = |i: &mut Input<'_>| rkv_page_table_batch_row {
            slot: w.slot(i),
            position_count: number(i),
        };
        let rows: Vec<_> = (0..i.below(4)).map(|_| row(i)).collect();
        let (indices, indices_capacity) = a.room(i, 20);
        let arrays = rkv_page_table_batch_arrays {
            reserved: zero(i),
            indptr: a.room_for(i, rows.len() + 1),
            indices,
            indices_capacity,
            last_page_len: a.room_for(i, rows.len()),
            ..Sized32::sized()
        };
        let (rows, count) = a.list(i, &rows);
        let arrays = a.read(i, &arrays);
        let (table, size) = (w.table(i), element_size::<rkv_page_table_batch_row>(i));
        unsafe { rkv_page_table_read_batch(table, rows, count, size, arrays, a.count(i)) }.into()
    }),
    ("rkv_page_table_check", |w, i, _| unsafe { rkv_page_table_check(w.table(i)) }.into()),
    // The cache
    ("rkv_cache_config_init", |_, i, a| {
        let (room, size) = init_room(i, size_of::<rkv_cache_config>());
        let config = a.room_for::<u64>(i, room).cast();
        unsafe { rkv_cache_config_init(config, size) }.into()
    }),
    ("rkv_cache_create", |w, i, a| {
        let vacant = i.flag().then(vacant_table);
        let config = rkv_cache_config {
            flags: flags(i, RKV_CACHE_WHOLE_PAGES),
            index: zero(i),
            reserved: zero(i),
            retained_sequence_limit: number(i),
            retained_page_limit: number(i),
            journal_bytes: match i.below(4) {
                0 => i.below(1 << 14) as u64,
                1 => u64::MAX - u64::from(number(i)),
                _ => 0,
            },
            ..Sized32::sized()
        };
        let config = if i.rarely(8) { ptr::null() } else { a.read(i, &config) };
        let into = a.out::<*mut rkv_cache>(i);
        unsafe {
            let status = rkv_cache_create(vacant.unwrap_or(w.table(i)), config, into);
            if let Some(table) = vacant {
                rkv_page_table_destroy(table);
            }
            if status == rkv_status::Ok {
                rkv_cache_destroy(into.read());
            }
            status.into()
        }
    }),
    ("rkv_cache_destroy", |w, i, _| {
        if i.rarely(4) {
            unsafe { rkv_cache_destroy(ptr::null_mut()) };
            return Outcome::Done;
        }
        let cache = std::mem::replace(&mut w.pairs[0].cache, ptr::null_mut());
        unsafe { rkv_cache_destroy(cache) };
        let stats = w.pairs[0].table_stats();
        assert_eq!((stats.cached_page_count, stats.reclaimable_page_count), (0, 0));
        Outcome::Last(unsafe { rkv_page_table_check(w.pairs[0].table) })
    }),
    ("rkv_cache_match", |w, i, a| {
        let (namespace, list) = (namespace(i, a), tokens(i, a));
        let flags = flags(i, RKV_MATCH_LOCK);
        let (pages, capacity) = a.room(i, 8);
        let (cache, found) = (w.cache(i), a.write_partly::<rkv_cache_match_result>(i));
        let status =
            unsafe { rkv_cache_match(cache, namespace, list, flags, pages, capacity, found) };
        if status == rkv_status::Ok {
            let found = unsafe { found.read() };
            w.note_node(found.node);
            w.note_lock(found.lock);
        }
        status.into()
    }),
    ("rkv_cache_probe", |w, i, a| {
        let (namespace, list) = (namespace(i, a), tokens(i, a));
        let count = if i.flag() { ptr::null_mut() } else { a.out(i) };
        unsafe { rkv_cache_probe(w.cache(i), namespace, list, count, a.out(i)) }.into()
    }),
    ("rkv_cache_insert", |w, i, a| {
        let list = w.pages(i);
        let published = if i.flag() { ptr::null_mut() } else { a.room_for(i, list.len()) };
        let ((pages, page_count), from) = (a.list(i, &list), i.below(4) == 0);
        let args = rkv_cache_insert_args {
            flags: flags(i, RKV_INSERT_LOCK),
            space: namespace(i, a),
            tokens: tokens(i, a),
            pages,
            page_count,
            from_node: if from { w.node(i) } else { 0 },
            from_token_index: if from { size(i) as u64 } else { zero(i) as u64 },
            from_page_index: if from { size(i) as u64 } else { zero(i) as u64 },
            lock: if from && i.flag() { w.lock(i) } else { zero(i) as u64 },
            ..Sized32::sized()
        };
        let (args, result) = (a.read(i, &args), a.write::<rkv_cache_insert_result>(i));
        let status = unsafe { rkv_cache_insert(w.cache(i), args, published, result) };
        if status == rkv_status::Ok {
            w.note_node(unsafe { (*result).node });
            // Whoever asked for no lock may not know the field.
            if unsafe { (*args).flags } == RKV_INSERT_LOCK && unsafe { (*result).node } != 0 {
                w.note_lock(unsafe { (*result).lock });
            }
            w.check();
            // A row that maps what is cached now, without a lock, breaks a promise.
            return Outcome::Last(status);
        }
        status.into()
    }),
    ("rkv_cache_lock", |w, i, a| {
        let (node, lock) = (w.node(i), a.out(i));
        let status = unsafe { rkv_cache_lock(w.cache(i), node, lock) };
        if status == rkv_status::Ok {
            w.note_lock(unsafe { lock.read() });
        }
        status.into()
    }),
    ("rkv_cache_slide_lock", |w, i, _| {
        unsafe { rkv_cache_slide_lock(w.cache(i), w.lock(i), size(i) as u64) }.into()
    }),
    ("rkv_cache_unlock", |w, i, _| {
        let lock = w.lock(i);
        let status = unsafe { rkv_cache_unlock(w.cache(i), lock) };
        if status == rkv_status::Ok {
            w.locks.retain(|&ours| ours != lock);
        }
        status.into()
    }),
    ("rkv_cache_evict", |w, i, a| {
        let (cache, count) = (w.cache(i), size(i));
        let (pages, capacity) = a.room(i, 12);
        unsafe { rkv_cache_evict(cache, count, pages, capacity, a.out(i)) }.into()
    }),
    ("rkv_cache_clear", |w, i, a| {
        let mut args = rkv_cache_clear_args::sized();
        args.flags = flags(i, RKV_CLEAR_NAMESPACE | RKV_CLEAR_EVERYTHING);
        args.space = namespace(i, a);
        let args = a.read(i, &args);
        unsafe { rkv_cache_clear(w.cache(i), args, a.write(i)) }.into()
    }),
    ("rkv_cache_contains_page", |w, i, a| {
        unsafe { rkv_cache_contains_page(w.cache(i), w.page(i), a.out(i)) }.into()
    }),
    ("rkv_node_read_info", |w, i, a| {
        unsafe { rkv_node_read_info(w.cache(i), w.node(i), a.write(i)) }.into()
    }),
    ("rkv_node_read_pages", |w, i, a| {
        let (pages, capacity) = a.room(i, 8);
        unsafe { rkv_node_read_pages(w.cache(i), w.node(i), pages, capacity, a.count(i)) }.into()
    }),
    ("rkv_node_read_children", |w, i, a| {
        let (nodes, capacity) = a.room(i, 8);
        unsafe { rkv_node_read_children(w.cache(i), w.node(i), nodes, capacity, a.count(i)) }.into()
    }),
    ("rkv_cache_read_stats", |w, i, a| {
        unsafe { rkv_cache_read_stats(w.cache(i), a.write(i)) }.into()
    }),
    ("rkv_cache_read_namespaces", |w, i, a| {
        let size = [size_of::<rkv_namespace>(), 0, 80, size(i)][i.below(4)];
        let capacity = i.below(5);
        let spaces = a.room_bytes(i, capacity * size.min(4096)).0;
        let roots = a.room_for(i, capacity);
        let cache = w.cache(i);
        unsafe { rkv_cache_read_namespaces(cache, spaces, size, roots, capacity, a.count(i)) }
            .into()
    }),
    ("rkv_cache_check", |w, i, _| unsafe { rkv_cache_check(w.cache(i)) }.into()),
    ("rkv_cache_dump", |w, i, a| {
        let format = flags(i, RKV_DUMP_DOT);
        let (buffer, mut capacity) = a.room::<c_char>(i, 255);
        let buffer = if i.flag() {
            capacity = 8192;
            a.room_for(i, capacity)
        } else {
            buffer
        };
        unsafe { rkv_cache_dump(w.cache(i), format, buffer, capacity, a.count(i)) }.into()
    }),
    // Sequences
    ("rkv_sequence_begin", sequences::begin),
    ("rkv_sequence_read_info", |w, i, a| {
        unsafe { rkv_sequence_read_info(w.cache(i), w.sequence(i), a.write(i)) }.into()
    }),
    ("rkv_sequence_read_copies", |w, i, a| {
        let (copies, capacity) = a.room::<rkv_page_copy>(i, 3);
        let (cache, sequence, size) = (w.cache(i), w.sequence(i), element_size::<rkv_page_copy>(i));
        let count = a.count(i);
        unsafe { rkv_sequence_read_copies(cache, sequence, copies, size, capacity, count) }.into()
    }),
    ("rkv_sequence_confirm_copies", |w, i, _| {
        unsafe { rkv_sequence_confirm_copies(w.cache(i), w.sequence(i)) }.into()
    }),
    ("rkv_sequence_append", |w, i, a| {
        unsafe { rkv_sequence_append(w.cache(i), w.sequence(i), tokens(i, a)) }.into()
    }),
    ("rkv_sequence_truncate", |w, i, _| {
        unsafe { rkv_sequence_truncate(w.cache(i), w.sequence(i), size(i) as u64) }.into()
    }),
    ("rkv_sequence_publish", |w, i, a| {
        let (cache, id, count) = (w.cache(i), w.sequence(i), size(i) as u64);
        unsafe { rkv_sequence_publish(cache, id, count, a.write(i)) }.into()
    }),
    ("rkv_sequence_release", |w, i, _| {
        unsafe { rkv_sequence_release(w.cache(i), w.sequence(i)) }.into()
    }),
    // At the end, so that saved inputs go on calling what they called.
    ("rkv_tokens_page_digests", tokens::page_digests),
    // The runner
    ("rkv_runner_read_kv_memory", runner::KV_MEMORY),
    ("rkv_runner_copy_pages", runner::COPY_PAGES),
    ("rkv_runner_config_init", runner::CONFIG_INIT),
    ("rkv_runner_supports", runner::SUPPORTS),
    ("rkv_runner_create", runner::CREATE),
    ("rkv_runner_destroy", runner::DESTROY),
    ("rkv_runner_read_stats", runner::STATS),
    ("rkv_plan_create", runner::PLAN_CREATE),
    ("rkv_plan_destroy", runner::PLAN_DESTROY),
    ("rkv_plan_set", runner::PLAN_SET),
    ("rkv_plan_reserve", runner::PLAN_RESERVE),
    ("rkv_plan_check", runner::PLAN_CHECK),
    ("rkv_plan_view", runner::PLAN_VIEW),
    ("rkv_plan_view_group", runner::PLAN_VIEW_GROUP),
    ("rkv_runner_reserve_plan", runner::RESERVE_PLAN),
    ("rkv_runner_prepare_plan", runner::PREPARE_PLAN),
    ("rkv_runner_append_prefill", runner::APPEND_PREFILL),
    ("rkv_runner_merge_states", runner::MERGE_STATES),
    ("rkv_spatial_decode", runner::SPATIAL_DECODE),
    // The snapshot cache
    ("rkv_snapshot_cache_config_init", snapshots::config_init),
    ("rkv_snapshot_cache_create", snapshots::create),
    ("rkv_snapshot_cache_destroy", snapshots::destroy),
    ("rkv_snapshot_cache_clear", snapshots::clear),
    ("rkv_snapshot_cache_read_stats", snapshots::stats),
    ("rkv_snapshot_cache_check", snapshots::check),
    ("rkv_snapshot_cache_insert", snapshots::insert),
    ("rkv_snapshot_cache_match", snapshots::find),
    ("rkv_snapshot_cache_probe", snapshots::probe),
    ("rkv_snapshot_cache_release", snapshots::release),
    ("rkv_snapshot_cache_remove", snapshots::remove),
    ("rkv_snapshot_tier_config_init", snapshot_tiers::config_init),
    ("rkv_snapshot_cache_attach", snapshot_tiers::attach),
    ("rkv_snapshot_cache_detach", snapshot_tiers::detach),
    ("rkv_snapshot_cache_flush", snapshot_tiers::flush),
    ("rkv_snapshot_cache_fetch", snapshot_tiers::fetch),
    ("rkv_snapshot_cache_take", snapshot_tiers::take),
    ("rkv_snapshot_cache_cancel", snapshot_tiers::cancel),
    ("rkv_snapshot_cache_read_parts", snapshot_tiers::read_parts),
    ("rkv_snapshot_cache_read_tier_stats", snapshot_tiers::stats),
    // Parents and children
    ("rkv_sequence_continue", sequences::go_on),
    ("rkv_sequence_fork", sequences::fork),
    ("rkv_sequence_retain", sequences::retain),
    ("rkv_sequence_drop", |w, i, _| unsafe { rkv_sequence_drop(w.cache(i), w.sequence(i)) }.into()),
    ("rkv_cache_drop_retained", |w, i, a| {
        unsafe { rkv_cache_drop_retained(w.cache(i), size(i), a.out(i)) }.into()
    }),
    ("rkv_cache_drop_retained_pool", pools::drop_retained),
    ("rkv_cache_read_retained", |w, i, a| {
        let (sequences, capacity) = a.room(i, 4);
        unsafe { rkv_cache_read_retained(w.cache(i), sequences, capacity, a.count(i)) }.into()
    }),
    // The journal
    ("rkv_cache_read_journal", journal::read_journal),
    ("rkv_page_table_read_journal", journal::read_journal_of_table),
    ("rkv_cache_read_contents", journal::read_contents),
    ("rkv_sequence_allocate", sequences::allocate),
    ("rkv_sequence_begin_many", many::begin),
    ("rkv_sequence_append_many", many::append),
    ("rkv_sequence_publish_many", many::publish),
    ("rkv_sequence_release_many", many::release),
    ("rkv_cache_match_many", many::find),
    ("rkv_cache_probe_many", many::probe),
    ("rkv_runner_keep_branches", runner::KEEP_BRANCHES),
    // Groups and pools
    ("rkv_page_table_allocate_pool_pages", pools::allocate),
    ("rkv_page_table_free_pool_pages", pools::free),
    ("rkv_page_table_read_pool_stats", pools::stats),
    ("rkv_cache_evict_pool", pools::evict),
    ("rkv_cache_probe_groups", pools::probe),
    ("rkv_cache_read_group_stats", pools::group_stats),
    ("rkv_cache_read_locked_pages", pools::locked_pages),
    ("rkv_sequence_read_group_row", pools::row),
    ("rkv_sequence_read_published", pools::published),
    ("rkv_sequence_slide", pools::slide),
    ("rkv_sequence_checkpoint", pools::checkpoint),
    ("rkv_sequence_donate", pools::donate),
    // Events
    ("rkv_event_encoder_create", events::create),
    ("rkv_event_encoder_destroy", events::destroy),
    ("rkv_event_encoder_encode", events::encode),
    ("rkv_event_encoder_name_namespace", events::name_namespace),
    ("rkv_event_encoder_repeat", events::repeat),
    // Tiers below the pages
    ("rkv_tier_config_init", paged_tiers::config_init),
    ("rkv_cache_attach_tiers", paged_tiers::attach),
    ("rkv_cache_detach_tiers", paged_tiers::detach),
    ("rkv_cache_flush_tiers", paged_tiers::flush),
    ("rkv_cache_shrink_tiers", paged_tiers::shrink),
    ("rkv_cache_read_tier_stats", paged_tiers::stats),
    ("rkv_sequence_fetch", paged_tiers::fetch),
    ("rkv_sequence_agree", paged_tiers::agree),
    ("rkv_cache_poll", paged_tiers::poll),
    ("rkv_cache_complete", paged_tiers::complete),
    ("rkv_cache_prefetch", paged_tiers::prefetch),
    ("rkv_cache_cancel_prefetch", paged_tiers::cancel_prefetch),
    ("rkv_runner_copy_tier_pages", paged_tiers::copy),
];

/// A text that must end.
fn text(text: *const c_char) -> Outcome {
    // SAFETY: the header promises a static text.
    assert!(!unsafe { CStr::from_ptr(text) }.is_empty());
    Outcome::Done
}

/// A number that takes little memory when it is allowed: small, or `bits` long and more.
fn modest(input: &mut Input<'_>, bits: u32) -> u32 {
    match number(input) {
        large if large > 4096 => large.max((1 << bits) + 1),
        small => small,
    }
}

fn row_length(pair: &Pair, slot: u32) -> usize {
    let mut count = 0;
    // SAFETY: the handle is alive; no room is stated.
    match unsafe { rkv_page_table_read_row(pair.table, slot, 0, ptr::null_mut(), 0, &mut count) } {
        rkv_status::Ok => count,
        _ => 0,
    }
}
