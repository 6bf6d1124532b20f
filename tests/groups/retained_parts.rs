//! What is kept of the page that a retained sequence computed in part.
use super::library::{Library, World};
use super::model::Kind;
use super::order::prompt;
use super::worlds::{group, world};

/// G11: where whole pages alone are shared nobody can go on from that page, and no group keeps it.
#[test]
fn g11_where_whole_pages_are_shared_no_group_keeps_a_part() {
    let groups = [group(Kind::Window(8, 0), 1), group(Kind::Full, 2)];
    for whole_pages in [false, true] {
        let world = World { whole_pages, ..world(4, &groups, &[700, 700, 700]) };
        let library = Library::new(&world);
        // So many pages behind what was computed go back in portions.
        for more in [0, 4 * 300] {
            let id = library.begin(0, &prompt(&[], 2)[..6], 0).unwrap().sequence;
            library.publish(id, 6);
            library.append(id, &vec![7; more]).unwrap();
            library.retain(id);
            let part = u64::from(!whole_pages);
            for pool in 0..3 {
                let counts = library.counts(pool);
                assert_eq!((counts.retained, counts.private), (1 + part, part), "pool {pool}");
            }
            library.check();
            let child = library.go_on((id, false), (0, &[8]), (0, 0)).unwrap();
            assert_eq!(child.cached_position_count, if whole_pages { 4 } else { 6 });
            if !whole_pages {
                library.confirm(child.sequence);
            }
            library.release(child.sequence);
            library.drop_sequence(id);
            library.check();
        }
    }
}
