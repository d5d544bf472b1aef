//! Members that a later one of the same name replaces, where one of the two is an object whose
//! members are wanted. Two objects of one name are read as one, and a column that takes two values
//! keeps the last; the remaining case is handled here, as it hardly ever occurs.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use crate::scope::Scope;
use crate::text::{Span, body, unescaped};
use crate::value::members;

/// The offsets in `text`, an object of valid JSON, at which the names of replaced members begin.
pub(crate) fn replaced(scope: &Scope, text: &str) -> HashSet<usize> {
    let mut doubles = Doubles {
        scope,
        text,
        last: HashMap::new(),
        places: 0,
        replaced: HashSet::new(),
    };
    doubles.object(0, 0, text);
    doubles.replaced
}

struct Doubles<'s, 't> {
    scope: &'s Scope,
    text: &'t str,
    last: HashMap<(usize, Cow<'t, str>), Last>,
    /// The number of parsed objects; objects that are read as one count once.
    places: usize,
    replaced: HashSet<usize>,
}

/// The last value of a name in an object.
#[derive(Default)]
struct Last {
    /// The number of its objects, if it is an object.
    place: Option<usize>,
    /// The offsets of its members' names.
    names: Vec<usize>,
}

impl<'t> Doubles<'_, 't> {
    fn object(&mut self, node: usize, place: usize, object: &'t str) {
        // The text was read before, so every member is reported.
        let _valid = members(object, &mut |name, value| {
            let found = self.scope.find(node, body(name));
            if let Some(node) = found.filter(|node| self.scope.leads_on(*node)) {
                self.member(node, place, name, value);
            }
        });
    }

    fn member(&mut self, node: usize, place: usize, name: &'t str, value: &'t str) {
        let is_object = value.starts_with('{');
        let says = unescaped(body(name)).unwrap_or(Cow::Borrowed(name));
        let last = self.last.entry((place, says)).or_default();
        if last.place.is_some() != is_object {
            self.replaced.extend(last.names.drain(..));
            last.place = None;
        }
        last.names.push(Span::of(self.text, name).start());
        if is_object {
            let below = *last.place.get_or_insert_with(|| {
                self.places += 1;
                self.places
            });
            self.object(node, below, value);
        }
    }
}
