//! Two threads that make the same sequence longer, in several groups: each makes the rows of groups
//! longer first, in slices, and the row of the spine in the end.
use super::settings::Setting;
use crate::{NEXT, World, tokens};
use radixkv::error::Error;
use radixkv::ids::SequenceId;
use radixkv::store::Shared;
use radixkv::token::TokenList;

/// What one thread asks for, of a prompt of 36 tokens that has pages for its beginning.
type Call = fn(&Shared, SequenceId) -> Result<(), Error>;

const CALLS: [(&str, Call); 4] = [
    ("allocate some", |shared, id| shared.allocate(id, 20)),
    ("allocate all", |shared, id| shared.allocate(id, 36)),
    ("append", |shared, id| shared.append(id, TokenList::text(&tokens(9, 9)))),
    ("append too much", |shared, id| shared.append(id, TokenList::text(&tokens(9, 200)))),
];

/// Pages of a sequence by group.
fn rows(shared: &Shared, id: SequenceId) -> Vec<usize> {
    let state = shared.read();
    let groups = 0..state.groups().list().len();
    groups.map(|group| state.group_row(id, group, 0).unwrap().len()).collect()
}

/// M06: whatever the two ask for, who gets it has its pages in all groups, and who is refused takes
/// nothing from the other.
#[test]
fn m06_two_threads_grow_a_sequence_of_several_groups() {
    for (setting, is_full) in [(Setting::Full, true), (Setting::Window, false)] {
        for (first_name, first) in CALLS {
            for (second_name, second) in CALLS {
                for at in 0.. {
                    let what = format!("{setting:?}, {first_name}, at yield {at} {second_name}");
                    let world = World::new(setting);
                    let (shared, id) = (world.shared.clone(), world.short);
                    let (sent, came) = std::sync::mpsc::channel();
                    NEXT.set(Some((
                        at,
                        Box::new(move |shared: &Shared| {
                            sent.send(second(shared, id).is_ok()).unwrap();
                        }),
                    )));
                    let is_done = first(&shared, id).is_ok();
                    NEXT.set(None);
                    world.check(&what);
                    let Ok(is_second_done) = came.recv() else {
                        assert!(at > 4 || !is_done, "{what}: others got in {at} times");
                        break;
                    };
                    let of = |name: &str, is_done: bool| if is_done { name } else { "" }.to_owned();
                    let done = [of(first_name, is_done), of(second_name, is_second_done)];
                    // What neither gets without the other is there for both, unless one is refused.
                    let appended = 9 * done.iter().filter(|name| *name == "append").count();
                    let positions = shared.read().sequence_info(id).unwrap().positions;
                    assert_eq!(positions, 36 + appended, "{what}");
                    let least = if appended > 0 || done.iter().any(|name| name == "allocate all") {
                        positions.div_ceil(2)
                    } else if done.iter().any(|name| name == "allocate some") {
                        10
                    } else {
                        1
                    };
                    let rows = rows(&shared, id);
                    let growing = if is_full { &rows[..2] } else { &rows[..] };
                    assert!(growing.iter().all(|&pages| pages >= least), "{what}: {rows:?}");
                    assert!(rows.iter().all(|&pages| pages == rows[0]), "{what}: {rows:?}");
                }
            }
        }
    }
}
