//! Publishers by name: exactly, by the beginning of the name, or by a pattern.

use ackline_core::UsageError;

use crate::refusal;

/// Values by the names of publishers. A name finds the value that was added for exactly it, else that of the longest
/// beginning, else that of the first pattern that fits.
#[derive(Debug, Clone)]
pub struct Names<T> {
    all: Vec<(Name, T)>,
}

/// Names that a value is for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Name {
    /// One name.
    Exact(String),
    /// All names with this beginning.
    Prefix(String),
    /// The names that fit: `*` stands for any characters but a slash, `?` for one of them.
    Pattern(Vec<char>),
}

impl<T> Default for Names<T> {
    fn default() -> Self {
        Self { all: Vec::new() }
    }
}

impl Name {
    fn parse(text: &str) -> Self {
        let beginning = text.strip_suffix('*').unwrap_or(text);
        if beginning.contains(['*', '?']) {
            Self::Pattern(text.chars().collect())
        } else if beginning.len() < text.len() {
            Self::Prefix(beginning.to_owned())
        } else {
            Self::Exact(text.to_owned())
        }
    }

    /// How well a name fits: nothing if not, and the larger the better.
    fn fits(&self, name: &str) -> Option<usize> {
        match self {
            Self::Exact(text) => (text == name).then_some(usize::MAX),
            Self::Prefix(text) => name
                .starts_with(text.as_str())
                .then_some(text.len().saturating_add(1)),
            Self::Pattern(pattern) => fits(pattern, name).then_some(0),
        }
    }
}

/// Whether a name fits a pattern. Its work is at most the product of both lengths.
fn fits(pattern: &[char], name: &str) -> bool {
    // The parts of the pattern with which the characters so far can have been used up.
    let mut reached = vec![false; pattern.len().saturating_add(1)];
    if let Some(first) = reached.first_mut() {
        *first = true;
    }
    skip_stars(pattern, &mut reached);
    for character in name.chars() {
        let mut next = vec![false; reached.len()];
        for (at, part) in pattern.iter().enumerate() {
            if !reached.get(at).is_some_and(|reached| *reached) {
                continue;
            }
            let to = match part {
                '*' if character != '/' => at,
                '?' if character != '/' => at.saturating_add(1),
                part if *part == character && !"*?".contains(*part) => at.saturating_add(1),
                _ => continue,
            };
            if let Some(next) = next.get_mut(to) {
                *next = true;
            }
        }
        skip_stars(pattern, &mut next);
        reached = next;
    }
    reached.last().is_some_and(|reached| *reached)
}

/// A star may stand for no characters.
fn skip_stars(pattern: &[char], reached: &mut [bool]) {
    for (at, part) in pattern.iter().enumerate() {
        let is_here = reached.get(at).is_some_and(|reached| *reached);
        if is_here
            && *part == '*'
            && let Some(next) = reached.get_mut(at.saturating_add(1))
        {
            *next = true;
        }
    }
}

impl<T> Names<T> {
    /// Adds a value for a name, for all names with a beginning (`sensors/*`: a star at the end stands for anything), or for
    /// those that fit a pattern (`sensors/*/raw`, `node-?`: a star elsewhere, and a question mark for one character; neither
    /// stands for a slash).
    ///
    /// # Errors
    /// `publisher_exists`: the same was added before.
    pub fn add(&mut self, text: &str, value: T) -> Result<(), UsageError> {
        let name = Name::parse(text);
        if self.all.iter().any(|(other, _)| *other == name) {
            return Err(refusal::PUBLISHER_EXISTS);
        }
        self.all.push((name, value));
        Ok(())
    }

    /// The value for a name.
    pub fn find(&self, name: &str) -> Option<&T> {
        let fitting = self.all.iter().enumerate();
        let fitting = fitting.filter_map(|(at, (one, value))| {
            Some((one.fits(name)?, usize::MAX.saturating_sub(at), value))
        });
        let best = fitting.max_by_key(|(fit, first, _)| (*fit, *first));
        best.map(|(_, _, value)| value)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test may panic
mod tests {
    use super::*;

    fn names(all: &[&'static str]) -> Names<&'static str> {
        let mut names = Names::default();
        for one in all {
            names.add(one, *one).unwrap();
        }
        names
    }

    #[test]
    fn the_exact_name_goes_before_the_longest_beginning_and_that_before_patterns() {
        let names = names(&["*", "a/?", "a/*", "a/b/*", "a/b", "*/raw", "x?z", "y*y*y"]);
        for (name, found) in [
            ("a/b", "a/b"),
            ("a/b/c", "a/b/*"),
            ("a/c", "a/*"),
            ("other", "*"),
            ("", "*"),
        ] {
            assert_eq!(names.find(name), Some(&found), "{name}");
        }
    }

    #[test]
    fn patterns_fit_whole_names_and_never_a_slash() {
        let fitting = |pattern: &'static str, name: &str| names(&[pattern]).find(name).is_some();
        for (pattern, name, fits) in [
            ("*/raw", "a/raw", true),
            ("*/raw", "/raw", true),
            ("*/raw", "a/b/raw", false),
            ("*/raw", "a/raw2", false),
            ("x?z", "xyz", true),
            ("x?z", "xz", false),
            ("x?z", "x/z", false),
            ("x?z", "xyyz", false),
            ("a*b*c", "abc", true),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "aXcYb", false),
            ("é?*x", "éäx", true),
            ("exact", "exact", true),
            ("exact", "exactly", false),
            ("pre*", "pre/any/thing", true),
            ("pre*", "pr", false),
        ] {
            assert_eq!(fitting(pattern, name), fits, "{pattern} {name}");
        }
    }

    #[test]
    fn a_pattern_of_many_stars_is_no_bomb() {
        let pattern = format!("{}b", "*a".repeat(2_000));
        let mut names = Names::default();
        names.add(&pattern, ()).unwrap();
        assert!(names.find(&"a".repeat(2_000)).is_none());
    }

    #[test]
    fn the_same_name_is_added_once() {
        let mut names = names(&["a", "a*"]);
        for one in ["a", "a*"] {
            assert_eq!(names.add(one, one), Err(refusal::PUBLISHER_EXISTS));
        }
    }
}
