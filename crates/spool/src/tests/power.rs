//! Power loss, death and rivalry of processes, and disks that fail. Everything that a spool does to
//! its disk is recorded in a model of it, over many lives: the events read after each of them must
//! be those that were promised.
//!
//! ```text
//! life ── closed, killed at any step, or its disk failed ──┬─ the power stays: the same files, cache and all
//!                                                          └─ the power goes: any state that a disk may hold then
//! ```
//!
//! `ACKLINE_POWER_SEEDS` sets how many random histories of several lives are lived (600); `=17` lives that one.

mod history;
mod life;
mod seam;
mod shadow;

use std::{
    panic::AssertUnwindSafe,
    sync::atomic::{AtomicU64, Ordering},
};

use super::*;
use history::History;
use life::{Life, look};
use seam::{Control, Event, World};
use shadow::{Dice, Image, Shadow};

fn seeds() -> (u64, u64) {
    let set = std::env::var("ACKLINE_POWER_SEEDS").ok();
    let Some(text) = set else { return (0, 600) };
    // One seed again: `=17`.
    if let Some(one) = text.strip_prefix('=') {
        let one: u64 = one.parse().unwrap();
        return (one, one + 1);
    }
    (0, text.parse().unwrap())
}

/// Runs `live` for each seed, or one in `share` of them, on two threads.
fn for_each_seed(share: u64, live: impl Fn(u64, &Path) + Sync) {
    let (_temp, dir) = temp();
    let base = dir.parent().unwrap();
    let (first, end) = seeds();
    let end = first + (end - first).div_ceil(share);
    let (next, failed) = (AtomicU64::new(first), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        break;
                    }
                    // The other histories continue; the failed one was printed.
                    let live = AssertUnwindSafe(|| live(seed, base));
                    if std::panic::catch_unwind(live).is_err() {
                        failed.lock().unwrap().push(seed);
                    }
                }
            });
        }
    });
    assert_eq!(
        failed.into_inner().unwrap(),
        Vec::<u64>::new(),
        "seeds that failed"
    );
}

/// The number of steps after which a process is killed: seldom never.
fn lifetime(dice: &mut Dice) -> u64 {
    match dice.below(8) {
        0 => u64::MAX,
        1 => dice.below(40),
        2..5 => dice.below(120),
        _ => dice.below(400),
    }
}

/// The power fails. Returns the resulting disk, in a directory of its own.
fn lose_power(world: Arc<World>, root: &Path, dice: &mut Dice) -> Arc<World> {
    let (image, history) = world.crash(dice);
    drop(world);
    World::new(root, &image, history, dice.fork())
}

/// Lives a few lives, each on the remains of the one before.
fn lives(seed: u64, base: &Path) {
    let mut dice = Dice::new(seed);
    let acks = dice.once_in(2);
    let root = |life: u64| base.join(format!("{seed}-{life}"));
    let mut world = World::new(&root(0), &Image::new(), History::default(), dice.fork());
    let mut number = 0;
    let mut has_power = true;
    for life in 1..=5 {
        let begun = Life {
            world: Arc::clone(&world),
            control: Control::new(lifetime(&mut dice), None),
            dice: dice.fork(),
            story: format!("seed {seed}, life {life}"),
            acks,
            number,
        };
        number += 1_000;
        let (control, story) = (Arc::clone(&begun.control), begun.story.clone());
        if let Some(mut running) = begun.open() {
            if !has_power {
                let marks = look(&world, &story, &control);
                if !control.is_dead() {
                    world.lock().history.settle_marks(&marks);
                    has_power = true;
                }
            }
            running.begin();
            let rounds = dice.below(14);
            running.work(rounds);
            running.end();
        }
        control.kill();
        if dice.once_in(2) {
            world = lose_power(world, &root(life), &mut dice);
            has_power = false;
        } else if dice.once_in(3) {
            world.evict();
        }
    }
}

/// Lives one life, and then a short one on the remains of each prefix of it, as if the power failed
/// there.
fn prefixes(seed: u64, base: &Path) {
    let mut dice = Dice::new(seed + 77_777);
    let whole = base.join(format!("whole-{seed}"));
    let world = World::new(&whole, &Image::new(), History::default(), dice.fork());
    world.lock().log = Some(Vec::new());
    let acks = dice.once_in(2);
    let life = |world: &Arc<World>, dice: &mut Dice, number| Life {
        world: Arc::clone(world),
        control: Control::new(u64::MAX, None),
        dice: dice.fork(),
        story: format!("seed {seed} of prefixes, step {number}"),
        acks,
        number,
    };
    if let Some(mut running) = life(&world, &mut dice, 0).open() {
        running.begin();
        running.work(6);
        running.end();
    }
    let log = world.lock().log.take().unwrap();
    let (mut shadow, mut history) = (Shadow::default(), History::default());
    history.has_faulted = world.lock().history.has_faulted;
    for (step, event) in (1_000..).zip(&log) {
        match event {
            Event::Op(op) => shadow.play(op, &mut dice),
            Event::Fact(fact) => history.learn(fact),
        }
        let image = shadow.clone().crash(&mut dice);
        let root = base.join(format!("prefix-{seed}-{step}"));
        let world = World::new(&root, &image, history.clone(), dice.fork());
        if let Some(mut running) = life(&world, &mut dice, step).open() {
            running.begin();
            running.work(1);
            running.end();
        }
    }
}

/// One writer is held up at some step, or is not, while another one takes over; then both continue.
fn rivals(seed: u64, base: &Path) {
    let mut dice = Dice::new(seed + 55_555);
    let acks = dice.once_in(3);
    let root = |life: u64| base.join(format!("rivals-{seed}-{life}"));
    let world = World::new(&root(0), &Image::new(), History::default(), dice.fork());
    let mut number = 0;
    let mut life = |name: &str, pid, left: u64, dice: &mut Dice| {
        number += 10_000;
        Life {
            world: Arc::clone(&world),
            control: Control::new(left, pid),
            dice: dice.fork(),
            story: format!("seed {seed} of rivals, {name}"),
            acks,
            number,
        }
    };
    let older = life("the older writer", Some(1), u64::MAX, &mut dice);
    let newer = life("the newer writer", None, u64::MAX, &mut dice);
    let last = life("the last writer", None, u64::MAX, &mut dice);
    let Some(mut older) = older.open() else {
        return;
    };
    older.begin();
    older.work(dice.below(4));
    older.life.control.hold_after(dice.below(40));
    older.work(dice.below(6));
    if dice.once_in(3) {
        world.replace_lock();
    } else {
        world.lose_lock();
    }
    world.lock().history.has_rivals = true;
    let Some(mut newer) = newer.open() else {
        return;
    };
    newer.begin();
    newer.work(dice.below(6));
    older.life.control.let_go();
    newer.work(dice.below(3));
    assert!(older.fails(), "{}: it goes on", older.life.story);
    newer.work(dice.below(6));
    older.end();
    newer.work(dice.below(3));
    newer.end();
    let world = if dice.once_in(2) {
        lose_power(world, &root(1), &mut dice)
    } else {
        world
    };
    let last = Life {
        world: Arc::clone(&world),
        ..last
    };
    if let Some(last) = last.open() {
        last.look();
    }
}

#[test]
fn every_prefix_of_a_life_keeps_the_promises() {
    // Each has hundreds of prefixes.
    for_each_seed(100, prefixes);
}

#[test]
fn a_writer_that_was_replaced_settles_nothing_that_is_missing() {
    for_each_seed(2, rivals);
}

#[test]
fn nothing_promised_is_missing_and_nothing_is_half_there_after_any_end_of_any_life() {
    for_each_seed(1, lives);
}
