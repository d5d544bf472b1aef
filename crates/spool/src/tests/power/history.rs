//! The invariants of a recovered spool: which events were promised or read, where consumers stand, and
//! how far the spool may begin.

use std::collections::{BTreeMap, BTreeSet};

/// An event that obliges the spool from then on.
#[derive(Debug, Clone)]
pub(super) enum Fact {
    /// Events with consecutive numbers have these positions: they were promised, or a reader saw them.
    Known {
        position: u64,
        number: u64,
        count: u64,
    },
    /// A consumer's mark is about to be written, or removed.
    Trying(String, Option<u64>),
    /// It is certainly written, or removed.
    Done(String, Option<u64>),
    /// Whether events may go for their age from now on.
    Ages(bool),
}

#[derive(Debug, Clone, Default)]
pub(super) struct History {
    /// The number of the event at each position that was promised or read.
    events: BTreeMap<u64, u64>,
    /// The possible marks of each consumer: the last one that was certainly written, and later
    /// ones.
    marks: BTreeMap<String, BTreeSet<Option<u64>>>,
    /// The highest mark that was ever tried.
    highest: BTreeMap<String, u64>,
    /// The highest position at which the spool may begin, by the consumers' actions.
    allowed_start: u64,
    may_age: bool,
    /// Whether a sync ever failed.
    pub(super) has_faulted: bool,
    /// Whether a writer that was replaced may have published its mark in place of a newer one.
    pub(super) has_rivals: bool,
    pub(super) violations: Vec<String>,
}

impl History {
    pub(super) fn learn(&mut self, fact: &Fact) {
        match fact {
            Fact::Known {
                position,
                number,
                count,
            } => {
                for at in 0..*count {
                    let (position, number) = (position + at, number + at);
                    let before = *self.events.entry(position).or_insert(number);
                    if before != number {
                        self.violations.push(format!(
                            "position {position} was event {before} and is event {number}"
                        ));
                    }
                }
            }
            Fact::Trying(name, mark) => {
                let possible = self.marks.entry(name.clone());
                possible
                    .or_insert_with(|| BTreeSet::from([None]))
                    .insert(*mark);
                if let Some(mark) = mark {
                    let highest = self.highest.entry(name.clone()).or_default();
                    *highest = (*highest).max(*mark);
                }
            }
            Fact::Done(name, mark) => {
                self.marks.insert(name.clone(), BTreeSet::from([*mark]));
            }
            Fact::Ages(may_age) => self.may_age = *may_age,
        }
        self.allowed_start = self.allowed_start.max(self.lowest().unwrap_or(0));
    }

    /// The highest that the lowest mark may be; `None` without a consumer.
    fn lowest(&self) -> Option<u64> {
        let sure = self.marks.values().filter(|marks| !marks.contains(&None));
        let lowest = sure
            .filter_map(|marks| marks.iter().copied().flatten().max())
            .min();
        let maybe = || self.marks.values().flatten().copied().flatten().max();
        lowest.or_else(maybe)
    }

    /// The names of the consumers that certainly exist.
    pub(super) fn consumers(&self) -> Vec<String> {
        let exists = |(_, marks): &(&String, &BTreeSet<_>)| !marks.contains(&None);
        self.marks
            .iter()
            .filter(exists)
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// The names of the consumers that may exist.
    pub(super) fn all_consumers(&self) -> Vec<String> {
        let may_exist = |(_, marks): &(&String, &BTreeSet<_>)| marks.iter().any(Option::is_some);
        self.marks
            .iter()
            .filter(may_exist)
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Events that are owed from this position on.
    pub(super) fn owed(&self, first: u64) -> u64 {
        self.events
            .range(first..)
            .next_back()
            .map_or(0, |(position, _)| position + 1)
    }

    pub(super) fn highest_mark(&self, name: &str) -> u64 {
        self.highest.get(name).copied().unwrap_or(0)
    }

    /// Checks that the spool may begin there.
    pub(super) fn check_start(&mut self, first: u64) -> Result<(), String> {
        if self.may_age {
            self.allowed_start = self.allowed_start.max(first);
        }
        if first > self.allowed_start {
            let allowed = self.allowed_start;
            return Err(format!(
                "it begins at {first}, above {allowed}: {:?}",
                self.marks
            ));
        }
        Ok(())
    }

    /// Whether these marks may be found. The consumer that acknowledges may have been made by a writer.
    pub(super) fn check_marks(
        &mut self,
        found: &BTreeMap<String, u64>,
        acks: &str,
    ) -> Result<(), String> {
        for name in found.keys() {
            let possible = self.marks.entry(name.clone());
            possible.or_insert_with(|| BTreeSet::from([None]));
        }
        for (name, possible) in &mut self.marks {
            let mark = found.get(name).copied();
            if name == acks && possible.contains(&None) && mark.is_some() {
                possible.insert(mark);
            }
            if !possible.contains(&mark) {
                return Err(format!(
                    "the mark of {name} is {mark:?}, not one of {possible:?}"
                ));
            }
        }
        Ok(())
    }

    /// Takes the state that was found after a loss of power for synced.
    pub(super) fn settle_marks(&mut self, found: &BTreeMap<String, u64>) {
        for (name, possible) in &mut self.marks {
            *possible = BTreeSet::from([found.get(name).copied()]);
        }
    }
}
