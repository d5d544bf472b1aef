//! The members of an event that no column took, with their places, and their object in JSON.

use std::collections::HashMap;

use crate::text::Span;

/// An object of the text in which wanted members may be; the first is the event.
#[derive(Debug, Clone, Copy)]
struct PathStep {
    /// The object around it.
    within: usize,
    name: Span,
    /// Whether a part of it is left over.
    is_spilt: bool,
    /// The first place of this name in the same object; its own number otherwise.
    first: usize,
}

/// A member that no column took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extra {
    /// The place that contains it.
    pub(crate) place: usize,
    pub(crate) name: Span,
    pub(crate) value: Span,
    pub(crate) is_misfit: bool,
}

/// The parsed objects of an event, and its left-over members.
#[derive(Debug, Default)]
pub(crate) struct Leftover {
    /// Whether it is written after an object is read; otherwise only misfits are kept, for error
    /// texts.
    pub(crate) is_wanted: bool,
    places: Vec<PathStep>,
    pub(crate) extras: Vec<Extra>,
    /// Places with left-over members, by the places that contain them.
    spilt: Vec<(usize, usize)>,
}

/// The place of the event itself.
pub(crate) const EVENT: usize = 0;

impl Leftover {
    /// Begins with an event.
    pub(crate) fn begin(&mut self) {
        self.places.clear();
        self.extras.clear();
        self.places.push(PathStep {
            within: EVENT,
            name: Span::default(),
            is_spilt: true,
            first: EVENT,
        });
    }

    /// Records an object of a name within another.
    pub(crate) fn enter(&mut self, within: usize, name: Span) -> usize {
        let place = self.places.len();
        self.places.push(PathStep {
            within,
            name,
            is_spilt: false,
            first: place,
        });
        place
    }

    /// Whether two places of one depth are reached by the same names, as they are written.
    pub(crate) fn is_same(&self, text: &str, mut one: usize, mut other: usize) -> bool {
        while one != other {
            let (Some(a), Some(b)) = (self.places.get(one), self.places.get(other)) else {
                return false;
            };
            if a.name.within(text) != b.name.within(text) {
                return false;
            }
            (one, other) = (a.within, b.within);
        }
        true
    }

    /// Writes the object of left-over members; `None`, with nothing written, if there are none.
    ///
    /// Members keep their names and texts, and the objects that contained them theirs; two objects
    /// of one name become one.
    pub(crate) fn write(&mut self, text: &str, out: &mut Vec<u8>) -> Option<()> {
        if self.extras.is_empty() {
            return None;
        }
        self.find_spilt(text);
        self.write_place(EVENT, text, out);
        Some(())
    }

    fn find_spilt(&mut self, text: &str) {
        for extra in &self.extras {
            let mut at = extra.place;
            while let Some(place) = self.places.get_mut(at)
                && !place.is_spilt
            {
                place.is_spilt = true;
                at = place.within;
            }
        }
        self.spilt.clear();
        let mut known = HashMap::new();
        for at in 1..self.places.len() {
            let Some(place) = self.places.get(at).filter(|place| place.is_spilt) else {
                continue;
            };
            let within = self.first(place.within);
            let first = *known.entry((within, place.name.within(text))).or_insert(at);
            if first == at {
                self.spilt.push((within, at));
            } else if let Some(place) = self.places.get_mut(at) {
                place.first = first;
            }
        }
        self.spilt.sort_unstable();
        let places = &self.places;
        self.extras
            .sort_by_key(|extra| places.get(extra.place).map(|place| place.first));
    }

    /// The first place of the same name.
    fn first(&self, place: usize) -> usize {
        self.places.get(place).map_or(EVENT, |place| place.first)
    }

    fn write_place(&self, at: usize, text: &str, out: &mut Vec<u8>) {
        out.push(b'{');
        let mut is_first = true;
        let begin = self
            .extras
            .partition_point(|extra| self.first(extra.place) < at);
        let here = self.extras.iter().skip(begin);
        for extra in here.take_while(|extra| self.first(extra.place) == at) {
            push_name(extra.name, text, &mut is_first, out);
            out.extend_from_slice(extra.value.within(text).as_bytes());
        }
        let begin = self.spilt.partition_point(|(within, _)| *within < at);
        let below = self.spilt.iter().skip(begin);
        for (_, place) in below.take_while(|(within, _)| *within == at) {
            let name = self.places.get(*place).map(|place| place.name);
            push_name(name.unwrap_or_default(), text, &mut is_first, out);
            self.write_place(*place, text, out);
        }
        out.push(b'}');
    }
}

fn push_name(name: Span, text: &str, is_first: &mut bool, out: &mut Vec<u8>) {
    if !std::mem::take(is_first) {
        out.push(b',');
    }
    out.extend_from_slice(name.within(text).as_bytes());
    out.push(b':');
}
