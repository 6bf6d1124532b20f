//! Memory of the runner: what happens when there is none. Each call is made in a world of its own
//! for each request for memory that it makes, which fails alone or with all that follow. Either the
//! call says so and changed nothing, or it is done. Then it is made again, with memory, and the
//! world is as if nothing had failed, to the last bit.
//!
//! Threads that compute get no memory at all, neither the library's nor, in a task, the engine's.
mod failing;

mod runner_memory {
    pub mod world;
}

use failing::{Failure, bytes_in_use, failing};
use radixkv::capi::*;
use runner_memory::world::{ALONE, Image, POSITIONS, SETUPS, Setup, World, message, ok, sized};
use std::ffi::{OsStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::ptr;
use std::sync::{Mutex, MutexGuard};

/// Buffers for messages are the whole process's, and one test counts bytes: one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Makes a call again and again; returns how often it was refused.
fn refused_or_done(
    setup: Setup,
    prepare: impl Fn(&mut World),
    call: impl Fn(&mut World) -> rkv_status,
) -> u32 {
    let fresh = || {
        let mut world = World::new(setup);
        prepare(&mut world);
        world
    };
    let mut sound = fresh();
    let before: Image = sound.image();
    ok(call(&mut sound));
    let after = sound.image();
    let mut refused = 0;
    for at in 0.. {
        let mut is_over = false;
        for failure in [Failure::Once(at), Failure::From(at)] {
            let mut world = fresh();
            let (status, failed) = failing(failure, || call(&mut world));
            match status {
                rkv_status::OutOfMemory => {
                    assert!(failed > 0, "{setup:?} {failure:?}: refused without a reason");
                    assert!(world.image() == before, "{setup:?} {failure:?}: something changed");
                    refused += 1;
                }
                _ => ok(status),
            }
            is_over = failed == 0;
            ok(call(&mut world));
            assert!(world.image() == after, "{setup:?} {failure:?}: not as without it");
        }
        if is_over {
            return refused;
        }
    }
    unreachable!("a call asks for memory without end")
}

fn set(world: &mut World) {
    ok(world.set());
}

fn step(world: &mut World, layer: u32, with_kv: bool) -> rkv_runner_append_prefill_args {
    let kv: *const c_void = if with_kv { world.kv.as_ptr().cast() } else { ptr::null() };
    rkv_runner_append_prefill_args {
        layer,
        q: world.q.as_ptr().cast(),
        k: kv,
        v: kv,
        out: world.out.as_mut_ptr().cast(),
        lse: world.lse.as_mut_ptr(),
        ..sized()
    }
}

fn attend(world: &mut World, layer: u32, with_kv: bool) -> rkv_status {
    let args = step(world, layer, with_kv);
    // SAFETY: the tensors have the step's positions.
    unsafe { rkv_runner_append_prefill(world.runner, world.plan, &args) }
}

// M05
#[test]
fn m05_a_runner_is_made_or_nothing_is_left_of_it() {
    let _alone = alone();
    for (threads, setup) in [0, 1, 3].into_iter().flat_map(|threads| SETUPS.map(|s| (threads, s))) {
        let mut world = World::new(Setup { threads, ..setup });
        let untouched = ptr::without_provenance_mut(64);
        for at in 0.. {
            world.made.0 = untouched;
            let create = |world: &mut World, failure| {
                failing(failure, || {
                    // SAFETY: all pointers lead to live values.
                    unsafe { rkv_runner_create(world.table, &world.config, &mut world.made.0) }
                })
            };
            // Earlier messages may have taken what was prepared.
            radixkv::error::prepare();
            let before = bytes_in_use();
            let (status, failed) = create(&mut world, Failure::Once(at));
            if failed == 0 {
                ok(status);
                assert!(at > 2, "{setup:?}: it asks for memory");
                break;
            }
            // It is not to be destroyed.
            let made = std::mem::replace(&mut world.made.0, ptr::null_mut());
            assert_eq!((status, made), (rkv_status::OutOfMemory, untouched), "{setup:?} {at}");
            assert_eq!(bytes_in_use(), before, "{setup:?} {at}: something is left");
            let (status, _) = create(&mut world, Failure::From(at));
            assert_eq!((status, world.made.0), (rkv_status::OutOfMemory, ptr::null_mut()));
        }
    }
}

/// Runs a test of this program again, with RADIXKV_CPU set.
fn run_with_instructions(test: &str, name: &[u8]) {
    let ran = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .env("RADIXKV_CPU", OsStr::from_bytes(name))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&ran.stdout);
    let is_right = ran.status.success() && text.contains("1 passed");
    assert!(is_right, "{name:?}: {text}{}", String::from_utf8_lossy(&ran.stderr));
}

/// What the environment says of instructions is read without memory.
// M05
#[test]
fn m05_a_runner_of_named_instructions_is_made_or_nothing_is_left_of_it() {
    run_with_instructions("m05_a_runner_is_made_or_nothing_is_left_of_it", b"portable");
}

/// Who asks what can be computed is told of a name that is none, too.
#[test]
fn a_name_of_no_instructions_is_refused_before_a_runner_is_made() {
    let names: [&[u8]; 2] = [b"AVX2", b"avx2\xff"];
    match std::env::var_os("RADIXKV_CPU") {
        Some(name) if names.contains(&name.as_bytes()) => {}
        _ => {
            let itself = "a_name_of_no_instructions_is_refused_before_a_runner_is_made";
            return names.into_iter().for_each(|name| run_with_instructions(itself, name));
        }
    }
    let mut config = sized::<rkv_runner_config>();
    // SAFETY: all pointers lead to live values.
    let [supported, made] = unsafe {
        ok(rkv_runner_config_init(&mut config, size_of_val(&config)));
        (config.layer_count, config.query_head_count, config.kv_head_count) = (1, 1, 1);
        let mut table_config = sized::<rkv_page_table_config>();
        ok(rkv_page_table_config_init(&mut table_config, size_of_val(&table_config)));
        table_config.page_count = 4;
        let (mut table, mut runner) = (ptr::null_mut(), ptr::null_mut());
        ok(rkv_page_table_create(&table_config, &mut table));
        let both = [
            rkv_runner_supports(&config, 16, ptr::null_mut()),
            rkv_runner_create(table, &config, &mut runner),
        ];
        rkv_page_table_destroy(table);
        both
    };
    assert_eq!([supported, made], [rkv_status::InvalidArgument; 2]);
    assert!(message().contains("RADIXKV_CPU"), "{}", message());
}

// M05
#[test]
fn m05_a_plan_is_made_or_it_is_not() {
    let _alone = alone();
    let refused = refused_or_done(
        ALONE,
        |_| {},
        |world| {
            // A second one is made when a first one was.
            // SAFETY: all pointers lead to live values; nobody else uses the plan.
            unsafe {
                rkv_plan_destroy(std::mem::replace(&mut world.made.1, ptr::null_mut()));
                rkv_plan_create(world.table, &mut world.made.1)
            }
        },
    );
    assert!(refused > 4, "{refused}");
}

// M05
#[test]
fn m05_a_plan_is_set_or_stays() {
    let _alone = alone();
    for setup in SETUPS {
        let refused = refused_or_done(setup, |_| {}, World::set);
        assert!(refused > 10, "{refused}");
        // Another step was set before, so there is room for a part of it.
        let refused = refused_or_done(setup, set_one, World::set);
        assert!(refused > 10, "{refused}");
    }
}

fn set_row(world: &World, at: usize) -> rkv_status {
    // SAFETY: the row is alive.
    unsafe { rkv_plan_set(world.plan, &world.rows[at], 1, size_of::<rkv_plan_row>()) }
}

fn set_one(world: &mut World) {
    ok(set_row(world, 3));
}

// M05
#[test]
fn m05_a_plan_is_reserved_or_it_is_not() {
    let _alone = alone();
    let capacity = rkv_plan_capacity {
        flags: RKV_PLAN_REGIONS,
        row_count: 4,
        position_count: POSITIONS as u64,
        page_count: 200,
        ..sized()
    };
    refused_or_done(ALONE, set, |world| {
        // SAFETY: all pointers lead to live values.
        unsafe {
            match rkv_plan_reserve(world.plan, &capacity) {
                rkv_status::Ok => rkv_runner_reserve_plan(world.runner, world.plan),
                refused => refused,
            }
        }
    });
}

/// Two of the rows wait for copies, which are carried out in every layer, or in none.
// M05
#[test]
fn m05_a_plan_is_prepared_or_it_is_not() {
    let _alone = alone();
    for flags in [0, RKV_PREPARE_KEEP_COPIES_OPEN] {
        let refused = refused_or_done(ALONE, set, |world| {
            // SAFETY: the handles are alive, and nobody computes.
            unsafe { rkv_runner_prepare_plan(world.runner, world.plan, flags, ptr::null_mut()) }
        });
        assert!(refused > 4, "{refused}");
    }
}

/// Room is made once: setting and computing a step that decodes asks for no memory, by two runners
/// or by one.
// J04, M05
#[test]
fn j04_a_decode_step_takes_no_memory() {
    let _alone = alone();
    for setup in SETUPS {
        let mut world = World::new(setup);
        let capacity =
            rkv_plan_capacity { row_count: 4, position_count: 26, page_count: 200, ..sized() };
        // SAFETY: all pointers lead to live values.
        unsafe {
            ok(rkv_runner_create(world.table, &world.config, &mut world.made.0));
            ok(rkv_plan_reserve(world.plan, &capacity));
        }
        let step = |world: &mut World, at: u64| {
            (world.rows[3].start, world.rows[3].count) = (at, 1);
            ok(set_row(world, 3));
            for layer in 0..2 {
                ok(attend(world, layer, true));
                std::mem::swap(&mut world.runner, &mut world.made.0);
                ok(attend(world, layer, true));
                std::mem::swap(&mut world.runner, &mut world.made.0);
            }
        };
        step(&mut world, 30);
        for at in 31..40 {
            let ((), failed) = failing(Failure::From(0), || step(&mut world, at));
            assert_eq!(failed, 0, "{setup:?}");
        }
    }
}

// M05
#[test]
fn m05_a_step_is_computed_or_nothing_is_written() {
    let _alone = alone();
    for setup in SETUPS {
        let refused = refused_or_done(setup, set, |world| attend(world, 1, true));
        assert!(refused > 20, "{refused}");
    }
}

/// What a first layer had room for, the next ones have room for too.
// M05
#[test]
fn m05_later_layers_need_no_memory() {
    let _alone = alone();
    for setup in SETUPS {
        let mut world = World::new(setup);
        set(&mut world);
        ok(attend(&mut world, 0, true));
        for (layer, with_kv) in [(1, true), (0, false)] {
            let (status, failed) = failing(Failure::From(0), || attend(&mut world, layer, with_kv));
            ok(status);
            assert_eq!(failed, 0);
        }
        // Nor does a smaller step.
        let (status, _) = failing(Failure::Once(u64::MAX), || set_row(&world, 3));
        ok(status);
        let (status, failed) = failing(Failure::From(0), || attend(&mut world, 0, true));
        ok(status);
        assert_eq!(failed, 0);
    }
}

/// A layer that sees other keys than the one before it is divided anew, and may need more room.
// M05
#[test]
fn m05_a_layer_of_another_window_is_computed_or_nothing_is_written() {
    let _alone = alone();
    for setup in SETUPS {
        let narrow = |world: &mut World| {
            set(world);
            let args = rkv_runner_append_prefill_args { window: 64, ..step(world, 0, true) };
            // SAFETY: the tensors have the step's positions.
            ok(unsafe { rkv_runner_append_prefill(world.runner, world.plan, &args) });
        };
        let refused = refused_or_done(setup, narrow, |world| attend(world, 1, true));
        assert!(refused > 0, "it needs none: the documents say otherwise");
    }
}

// M05
#[test]
fn m05_states_are_merged_or_they_are_not() {
    let _alone = alone();
    for setup in SETUPS {
        let prepare = |world: &mut World| {
            set(world);
            ok(attend(world, 0, true));
        };
        let refused = refused_or_done(setup, prepare, |world| {
            let outs: [*const c_void; 3] = [world.out.as_ptr().cast(); 3];
            let lses: [*const f32; 3] = [world.lse.as_ptr(); 3];
            let args = rkv_runner_merge_states_args {
                state_count: 3,
                position_count: POSITIONS as u64,
                outs: outs.as_ptr(),
                lses: lses.as_ptr(),
                out: world.merged.as_mut_ptr().cast(),
                lse: world.merged_lse.as_mut_ptr(),
                ..sized()
            };
            // SAFETY: all states have the step's positions, and the results have room for them.
            unsafe { rkv_runner_merge_states(world.runner, &args) }
        });
        assert!(refused > 0);
    }
}

// M05
#[test]
fn m05_pages_are_copied_or_they_are_not() {
    let _alone = alone();
    let refused = refused_or_done(
        ALONE,
        |_| {},
        |world| {
            let copies = [0, 1].map(|at| rkv_page_copy {
                source_page: world.pages[at],
                target_page: world.pages[at + 5],
                position_count: 7,
                group: 0,
            });
            // SAFETY: the copies are alive.
            unsafe {
                rkv_runner_copy_pages(
                    world.runner,
                    copies.as_ptr(),
                    copies.len(),
                    size_of::<rkv_page_copy>(),
                )
            }
        },
    );
    assert!(refused > 0);
}

/// An output of a call that answers a question.
fn answer<T>(world: &mut World) -> *mut T {
    assert!(size_of::<T>() <= size_of_val(&*world.answer));
    world.answer.as_mut_ptr().cast()
}

/// The same, of a struct that says how large it is.
fn answer_struct<T>(world: &mut World) -> *mut T {
    let place = answer::<T>(world);
    // SAFETY: there is room, and a struct of the ABI begins with its size.
    unsafe { place.cast::<u32>().write(size_of::<T>() as u32) };
    place
}

// M05
#[test]
fn m05_questions_are_answered_or_they_are_not() {
    let _alone = alone();
    // SAFETY: all pointers lead to live values, with the room that is stated.
    let needs_some = refused_or_done(ALONE, set, |world| unsafe {
        let rows = [rkv_page_table_batch_row { slot: world.rows[2].slot, position_count: 1000 }; 2];
        let to = answer::<[i32; 200]>(world).cast::<i32>();
        let arrays = rkv_page_table_batch_arrays {
            indptr: to,
            last_page_len: to.add(4),
            indices: to.add(8),
            indices_capacity: 150,
            ..sized()
        };
        let count = to.add(160).cast();
        rkv_page_table_read_batch(
            world.table,
            rows.as_ptr(),
            rows.len(),
            size_of::<rkv_page_table_batch_row>(),
            &arrays,
            count,
        )
    });
    assert!(needs_some > 0);
    type Question = unsafe fn(&mut World) -> rkv_status;
    let questions: [Question; 7] = [
        |world| {
            let (slot, to) = (world.rows[2].slot, answer(world));
            // SAFETY: all pointers lead to live values, with the room that is stated.
            unsafe { rkv_page_table_read_slot_mapping(world.table, slot, [3, 700].as_ptr(), 2, to) }
        },
        // SAFETY: as above.
        |world| unsafe { rkv_runner_read_stats(world.runner, answer_struct(world)) },
        // SAFETY: as above.
        |world| unsafe {
            rkv_runner_read_kv_memory(
                world.runner,
                1,
                answer(world),
                size_of::<rkv_runner_kv_memory>(),
            )
        },
        // SAFETY: as above.
        |world| unsafe { rkv_runner_supports(&world.config, 16, answer(world)) },
        // SAFETY: as above.
        |world| unsafe { rkv_runner_config_init(answer(world), size_of::<rkv_runner_config>()) },
        // SAFETY: as above.
        |world| unsafe { rkv_plan_view(world.plan, answer_struct(world)) },
        |world| {
            let (bin, value) = (answer::<[u32; 2]>(world), answer::<[f64; 2]>(world));
            // SAFETY: as above; the logits are as many as there are bins.
            unsafe {
                let logits = world.q.as_ptr();
                let value = value.cast::<f64>().add(1);
                rkv_spatial_decode(RKV_TOKEN_COORD, logits, 1024, bin.cast(), value)
            }
        },
    ];
    for question in questions {
        let mut world = World::new(SETUPS[2]);
        set(&mut world);
        // SAFETY: as above.
        let (status, failed) = failing(Failure::From(0), || unsafe { question(&mut world) });
        if failed > 0 {
            assert_eq!(status, rkv_status::OutOfMemory);
            assert!(world.answer[2..].iter().all(|&word| word == 77));
        } else {
            ok(status);
        }
    }
}
