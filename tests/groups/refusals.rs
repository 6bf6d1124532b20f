//! What is refused, by name, with nothing changed.
use super::library::{Library, World, group_config, must, sized};
use super::model::Kind;
use super::order::prompt;
use super::worlds::{group, world};
use radixkv::capi::*;
use std::ptr::null_mut;

fn refused_table(change: impl FnOnce(&mut rkv_page_table_config)) -> String {
    let full = rkv_group_config { kind: RKV_GROUP_FULL, ..zero() };
    let groups = [full; 2];
    let pools = [rkv_pool_config { page_count: 9, reserved: 0 }; 2];
    let mut config = rkv_page_table_config {
        page_size: 4,
        slot_count: 1,
        groups: groups.as_ptr(),
        group_count: 2,
        group_size: size_of::<rkv_group_config>(),
        pools: pools.as_ptr(),
        pool_count: 2,
        pool_size: size_of::<rkv_pool_config>(),
        ..sized()
    };
    change(&mut config);
    let mut table = null_mut();
    // SAFETY: the lists live as long as the call.
    let status = unsafe { rkv_page_table_create(&config, &mut table) };
    assert_eq!((status, table.is_null()), (rkv_status::InvalidArgument, true));
    message()
}

fn zero() -> rkv_group_config {
    group_config(&group(Kind::Full, 0))
}

fn message() -> String {
    let mut text = [0u8; 512];
    // SAFETY: so much room there is.
    let bytes = unsafe { rkv_last_error_message(text.as_mut_ptr().cast(), text.len()) };
    assert!(bytes < text.len());
    std::ffi::CStr::from_bytes_until_nul(&text).unwrap().to_str().unwrap().to_owned()
}

/// M01: what makes no sense is refused by name.
#[test]
fn g01_bad_lists_are_refused_by_name() {
    let window = rkv_group_config { kind: RKV_GROUP_WINDOW, ..zero() };
    let bad = |second: rkv_group_config| {
        let groups = [zero(), second];
        refused_table(|config| config.groups = groups.as_ptr())
    };
    assert!(bad(window).starts_with("config.groups[1].window"));
    assert!(bad(rkv_group_config { kind: 9, ..zero() }).starts_with("config.groups[1].kind"));
    assert!(bad(rkv_group_config { chunk: 1, ..zero() }).starts_with("config.groups[1].chunk"));
    assert!(bad(rkv_group_config { pool: 2, ..zero() }).starts_with("config.groups[1].pool"));
    let drafting = rkv_group_config { draft_state_count: 1, ..zero() };
    assert!(bad(drafting).starts_with("config.groups[1].draft_state_count"));
    let many = rkv_group_config { kind: RKV_GROUP_STATE, draft_state_count: 256, ..zero() };
    assert!(bad(many).starts_with("config.groups[1].draft_state_count"));
    assert!(refused_table(|config| config.group_size = 7).contains("config.group_size"));
    assert!(refused_table(|config| config.pool_size = 7).contains("config.pool_size"));
    assert!(refused_table(|config| config.group_count = 9).contains("config.group_count"));
    assert!(refused_table(|config| config.page_count = 9).contains("config.page_count"));
    let pools = [rkv_pool_config { page_count: 9, reserved: 0 }, zero_pool()];
    let text = refused_table(|config| config.pools = pools.as_ptr());
    assert!(text.starts_with("config.pools[1].page_count"), "{text}");
    let pools = [rkv_pool_config { page_count: 9, reserved: 1 }; 2];
    assert!(refused_table(|config| config.pools = pools.as_ptr()).contains("reserved"));
}

fn zero_pool() -> rkv_pool_config {
    rkv_pool_config { page_count: 0, reserved: 0 }
}

/// G12, and what knows of one group only.
#[test]
fn g12_what_several_groups_do_not_have_is_unsupported() {
    let window = rkv_group_config { kind: RKV_GROUP_WINDOW, window: 8, ..zero() };
    let groups = [zero(), window];
    let config = rkv_page_table_config {
        page_size: 4,
        page_count: 9,
        slot_count: 1,
        groups: groups.as_ptr(),
        group_count: 2,
        group_size: size_of::<rkv_group_config>(),
        ..sized()
    };
    let (mut table, mut cache) = (null_mut(), null_mut());
    let hashed = rkv_cache_config { index: RKV_INDEX_BLOCK_HASH, ..sized() };
    let ids = [1, 2, 3];
    let tokens = rkv_tokens { ids: ids.as_ptr(), count: 3, ..sized() };
    let begin = rkv_sequence_begin_args { tokens: &tokens, ..sized() };
    // SAFETY: the pointers are those of locals, and the handles are destroyed once.
    unsafe {
        must(rkv_page_table_create(&config, &mut table));
        assert_eq!(rkv_cache_create(table, &hashed, &mut cache), rkv_status::Unsupported);
        must(rkv_cache_create(table, &sized(), &mut cache));
        let mut info: rkv_sequence_info = sized();
        must(rkv_sequence_begin(cache, &begin, &mut info));
        let mut count = 0;
        let status = rkv_sequence_checkpoint(cache, info.sequence, &mut count);
        assert_eq!(status, rkv_status::Unsupported, "there is no state");
        rkv_cache_destroy(cache);
        rkv_page_table_destroy(table);
    }
}

/// M01: rows of groups that are wrong are refused, by name, and nothing is claimed.
#[test]
fn g02_bad_rows_are_refused_by_name() {
    let world = world(4, &[group(Kind::Window(9, 0), 1)], &[20, 10]);
    let library = Library::new(&world);
    let ids = prompt(&[], 3);
    let (spine, mine) = (library.allocate(0, 3).unwrap(), library.allocate(1, 3).unwrap());
    let refused = |row: Vec<u32>| {
        let before = [0, 1].map(|pool| library.counts(pool));
        let done = library.insert(0, &ids, &vec![spine.clone(), row], true);
        assert_eq!(done.unwrap_err(), rkv_status::InvalidArgument);
        assert_eq!([0, 1].map(|pool| library.counts(pool)), before);
        library.check();
        message()
    };
    let text = refused(vec![mine[0], mine[0], 0]);
    assert!(text.starts_with("args.groups[0]: pages[0]"), "{text}");
    assert!(refused(vec![mine[0], 9, mine[2]]).contains("pages[1] 9"), "a free page");
    assert!(refused(vec![99, 0, 0]).contains("pages[0] 99"), "a page that there is not");
    assert!(refused(mine[..2].to_vec()).contains("page_count 2"));
    library.insert(0, &ids, &vec![spine.clone(), mine.clone()], false).unwrap();
    assert!(library.insert(0, &ids, &vec![spine, mine], false).is_ok(), "its own pages again");
}

/// J07: a page that stays outside as a duplicate can't be claimed for another group in one call.
#[test]
fn g02_a_duplicate_is_not_claimed_elsewhere() {
    let inside = world(4, &[group(Kind::Full, 0)], &[20]);
    let library = Library::new(&World { external: true, ..inside });
    let ids = prompt(&[], 2);
    library.insert(0, &ids, &vec![vec![1, 2], vec![0, 0]], false).unwrap();
    let before = library.counts(0);
    let done = library.insert(0, &ids, &vec![vec![3, 2], vec![3, 0]], false);
    assert_eq!(done.unwrap_err(), rkv_status::InvalidArgument);
    assert!(message().contains("pages[0] 3"), "{}", message());
    assert_eq!(library.counts(0), before);
    library.check();
    assert!(library.insert(0, &ids, &vec![vec![3, 2], vec![4, 0]], false).is_ok());
}

/// G05, G10: the window that is reused is a part of the window and the chunk that a request needs.
#[test]
fn g10_a_window_that_is_reused_is_not_asked_for_twice() {
    let (window, chunk) = (10, 6);
    let needed = ((window - 1 + chunk) as u32).div_ceil(4) + 1;
    let library = Library::new(&world(4, &[group(Kind::Window(window, 0), 1)], &[80, needed]));
    let serve = |ids: &[u32], reused: usize| {
        let begun = library.begin(0, ids, chunk).unwrap();
        assert_eq!(begun.cached_position_count as usize, reused);
        let mut computed = reused;
        while computed < ids.len() {
            computed = (computed + chunk).min(ids.len());
            library.allocate_positions(begun.sequence, computed).unwrap();
            library.publish(begun.sequence, computed);
        }
        library.release(begun.sequence);
        library.check();
    };
    let mut ids = prompt(&[], 40);
    serve(&ids, 0);
    ids.extend(5000..5040);
    assert_eq!(library.probe(0, &ids).positions, 160);
    serve(&ids, 160);
}
