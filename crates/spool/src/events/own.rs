//! Attributes of single events, beside those that all events of their block share.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

use super::Run;

/// A name and its value.
pub(super) type Pair<'a> = (Cow<'a, str>, Cow<'a, str>);

/// The front of a name that an attribute of the block has.
const RENAMED: &str = "property.";

/// The attributes of an event as its row has them: none has the name of one of the block's, and of two with one name the
/// first counts.
pub(super) fn beside<'a>(
    block: &[(String, String)],
    pairs: impl IntoIterator<Item = Pair<'a>>,
) -> Vec<Pair<'a>> {
    let is_taken = |name: &str| block.iter().any(|(taken, _)| taken == name);
    let mut seen = HashSet::new();
    let pairs = pairs.into_iter().map(|(name, value)| {
        if is_taken(&name) {
            return (Cow::Owned(format!("{RENAMED}{name}")), value);
        }
        (name, value)
    });
    let pairs = pairs.filter(|(name, _)| !is_taken(name) && seen.insert(name.clone()));
    pairs.collect()
}

/// The bytes of these attributes, here and in the columns.
pub(super) fn bytes(pairs: &[Pair<'_>]) -> usize {
    let pair = |(name, value): &Pair<'_>| {
        let texts = name.len().saturating_add(value.len());
        // Each text has an end here and an offset there.
        texts
            .saturating_add(size_of::<usize>() + size_of::<i32>())
            .saturating_mul(2)
    };
    let texts = pairs.iter().map(pair).fold(0, usize::saturating_add);
    texts.saturating_add(size_of::<OneRow>())
}

/// The attributes of the events that are in no batch yet. Without any it holds nothing.
#[derive(Debug, Default)]
pub(super) struct OwnAttributes {
    is_wanted: bool,
    rows: Vec<OneRow>,
    texts: String,
    /// The end of each name and of each value.
    ends: Vec<usize>,
}

/// A row of the batch that has attributes of its own.
#[derive(Debug)]
struct OneRow {
    row: usize,
    /// The number of names and values of all rows up to this one.
    end: usize,
}

/// Consecutive rows with the same attributes.
#[derive(Debug)]
pub(super) struct Stretch<'a> {
    pub(super) rows: usize,
    pub(super) run: &'a Run,
    /// The place of the names and values of its one row; empty for the attributes of the run alone.
    own: Range<usize>,
}

impl OwnAttributes {
    /// None yet, of a reader that wants them or not.
    pub(super) fn new(is_wanted: bool) -> Self {
        Self {
            is_wanted,
            ..Self::default()
        }
    }

    /// Whether the column is built.
    pub(super) const fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// All of them, for a batch; none are left.
    pub(super) fn take(&mut self) -> Self {
        let left = Self::new(self.is_wanted);
        std::mem::replace(self, left)
    }

    /// Adds attributes of a row behind all others.
    pub(super) fn push(&mut self, row: usize, pairs: &[Pair<'_>]) {
        if pairs.is_empty() {
            return;
        }
        for text in pairs.iter().flat_map(|(name, value)| [name, value]) {
            self.texts.push_str(text);
            self.ends.push(self.texts.len());
        }
        let end = self.ends.len();
        self.rows.push(OneRow { row, end });
    }

    /// The rows of these runs.
    pub(super) fn stretches<'a>(&self, runs: &'a [Run]) -> Vec<Stretch<'a>> {
        let mut stretches = Vec::new();
        let mut own = self.rows.iter().peekable();
        let (mut row, mut begin) = (0, 0);
        for run in runs {
            let end = row + run.rows;
            while let Some(one) = own.next_if(|one| one.row < end) {
                stretches.push(Stretch {
                    rows: one.row - row,
                    run,
                    own: 0..0,
                });
                stretches.push(Stretch {
                    rows: 1,
                    run,
                    own: begin..one.end,
                });
                (row, begin) = (one.row + 1, one.end);
            }
            stretches.push(Stretch {
                rows: end - row,
                run,
                own: 0..0,
            });
            row = end;
        }
        stretches.retain(|stretch| stretch.rows > 0);
        stretches
    }

    /// The names, or the values, of the attributes of a row.
    pub(super) fn column<'a>(&'a self, stretch: &Stretch<'a>, is_value: bool) -> Vec<&'a str> {
        let shared = stretch.run.attributes.iter();
        let shared = shared.map(|(name, value)| if is_value { value } else { name }.as_str());
        let own = stretch.own.clone().skip(usize::from(is_value)).step_by(2);
        shared.chain(own.map(|at| self.text(at))).collect()
    }

    /// The number of attributes of a row.
    pub(super) fn count(stretch: &Stretch<'_>) -> usize {
        stretch.run.attributes.len() + stretch.own.len() / 2
    }

    fn text(&self, at: usize) -> &str {
        let end = |at: usize| self.ends.get(at).copied().unwrap_or_default();
        let begin = at.checked_sub(1).map_or(0, end);
        self.texts.get(begin..end(at)).unwrap_or_default()
    }
}
