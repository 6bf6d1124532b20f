//! What a call says of the pages that it lacked, where groups share a pool.
use super::library::Library;
use super::model::Kind;
use super::order::prompt;
use super::worlds::{drafting, group, world};
use radixkv::capi::*;

/// G09: a sequence that grows says what all groups of the pool need, also where one alone needs too
/// much.
#[test]
fn g09_a_shortage_counts_all_groups_of_its_pool() {
    let library = Library::new(&world(4, &[group(Kind::Window(9, 0), 0)], &[20]));
    let id = library.begin(0, &prompt(&[], 2), 0).unwrap().sequence;
    assert_eq!(library.counts(0).free, 16);
    for (pages, needed) in [(15, 30), (17, 34)] {
        let ids: Vec<u32> = (5000..5000 + 4 * pages).collect();
        assert_eq!(library.append(id, &ids), Err(rkv_status::OutOfPages));
        assert_eq!(library.shortage().needed_page_count, needed, "{pages} pages of each group");
        assert_eq!(library.counts(0).free, 16, "nothing has changed");
    }
    library.release(id);
    library.check();
}

/// G11, C08: a shortage of the first pool counts them in all groups that draw from it, as one of
/// another pool does.
#[test]
fn g11_a_shortage_of_the_first_pool_counts_what_is_retained_in_all_groups() {
    let groups = [group(Kind::Window(9, 0), 0), drafting(1, 0)];
    let library = Library::new(&world(4, &groups, &[60]));
    let id = library.begin(0, &prompt(&[], 6), 0).unwrap().sequence;
    library.publish(id, 24);
    library.retain(id);
    // Two pages of the window, and the state.
    assert_eq!(library.counts(0).retained, 9);
    assert_eq!(library.allocate(0, 60), Err(rkv_status::OutOfPages));
    assert_eq!(library.shortage().retained_page_count, 9);
    library.drop_sequence(id);
    assert_eq!(library.allocate(0, 60).map(|pages| pages.len()), Ok(60));
}
