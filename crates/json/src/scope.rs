//! The objects at one place: the events themselves, or the structs within a list or a map.
//!
//! An object is read twice: first every member is found and checked, and the places of the wanted
//! ones are noted; then, when it is known to be complete, the columns take their values from there.
//! Unwanted members are only checked.
//!
//! Wanted members form a tree of names, split at their dots, so that `{"log":{"level":1}}` and
//! `{"log.level":1}` lead to the same node. If both are in one object, the one with more names of
//! its own wins; of a repeated one, the last.

use std::collections::{HashMap, HashSet};

use arrow_array::{Array, ArrayRef, StructArray};
use arrow_buffer::{NullBuffer, NullBufferBuilder};
use arrow_schema::{ArrowError, Fields};

use crate::column::{Column, Fit, put, put_text};
use crate::doubles::replaced;
use crate::leftover::{EVENT, Extra, Leftover};
use crate::scan::Scanner;
use crate::text::{Span, body, is_plain, unescaped};
use crate::value;

/// Columns of one place, and the names of their members.
pub(crate) struct Scope {
    fields: Fields,
    shapes: Vec<Shape>,
    nodes: Vec<Node>,
    leaves: Vec<Leaf>,
    structs: Vec<Struct>,
    leftover: Leftover,
    /// How the members of the object being read fit so far.
    fit: Fit,
    /// Offsets of members that are skipped, because later ones of the same name replace them.
    replaced: HashSet<usize>,
    /// Whether an object and another value lead to one node.
    is_mixed: bool,
    case_sensitive: bool,
    from_texts: bool,
    /// Counts the objects, so that nothing has to be reset between them.
    object: u64,
}

/// The assembly of a place's columns.
#[derive(Debug, Clone)]
pub(crate) enum Shape {
    Leaf(usize),
    Struct(usize, Fields, Vec<Self>),
}

/// A name on the path to wanted members; the first is the object itself.
struct Node {
    parent: usize,
    leaf: Option<usize>,
    names: Names,
    /// The last object that had it.
    seen: u64,
    /// The last objects in which an object, and another value, led to it; only if names are below
    /// it.
    object_in: u64,
    other_in: u64,
}

/// A column and its value's place in the current object.
struct Leaf {
    column: Box<dyn Column>,
    slot: Slot,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    object: u64,
    level: usize,
    container: usize,
    place: usize,
    name: Span,
    value: Span,
}

/// The nulls of a struct, which is present when its node is.
struct Struct {
    node: usize,
    nulls: NullBufferBuilder,
}

/// Names of one node: few are compared, many are looked up.
enum Names {
    Few(Vec<(Box<str>, usize)>),
    Many(HashMap<Box<str>, usize>),
}

impl Scope {
    pub(crate) fn new(fields: Fields, case_sensitive: bool) -> Self {
        let mut scope = Self {
            fields,
            shapes: Vec::new(),
            nodes: Vec::new(),
            leaves: Vec::new(),
            structs: Vec::new(),
            leftover: Leftover::default(),
            fit: Fit::Whole,
            replaced: HashSet::new(),
            is_mixed: false,
            case_sensitive,
            from_texts: false,
            object: 0,
        };
        scope.nodes.push(Node::new(0));
        scope
    }

    pub(crate) fn fields(&self) -> Fields {
        self.fields.clone()
    }

    /// Sets the assembly of the columns, when all of them were added.
    pub(crate) fn shape(&mut self, shapes: Vec<Shape>) {
        self.shapes = shapes;
    }

    /// The node that `name`, with or without dots, leads to from `node`.
    pub(crate) fn add_node(&mut self, mut node: usize, name: &str) -> usize {
        for part in name.split('.') {
            node = self.find_part(node, part).unwrap_or_else(|| {
                let added = self.nodes.len();
                self.nodes.push(Node::new(node));
                let key = self.key(part);
                if let Some(parent) = self.nodes.get_mut(node) {
                    parent.names.insert(key, added);
                }
                added
            });
        }
        node
    }

    /// Whether a column or a struct uses a node already.
    pub(crate) fn is_taken(&self, node: usize, by_struct: bool) -> bool {
        self.structs
            .iter()
            .any(|taken| by_struct && taken.node == node)
            || self.nodes.get(node).is_some_and(|node| node.leaf.is_some())
    }

    pub(crate) fn add_leaf(&mut self, node: usize, column: Box<dyn Column>) -> Shape {
        let leaf = self.leaves.len();
        self.leaves.push(Leaf {
            column,
            slot: Slot::default(),
        });
        if let Some(node) = self.nodes.get_mut(node) {
            node.leaf = Some(leaf);
        }
        Shape::Leaf(leaf)
    }

    pub(crate) fn add_struct(&mut self, node: usize) -> usize {
        self.structs.push(Struct {
            node,
            nulls: NullBufferBuilder::new(0),
        });
        self.structs.len() - 1
    }

    /// Keeps members that no column takes, for [`write_extras`](Self::write_extras).
    pub(crate) fn keep_leftover(&mut self) {
        self.leftover.is_wanted = true;
    }

    /// Sets whether the object represents pairs of texts, which may mean values of other types.
    pub(crate) fn set_from_texts(&mut self, from_texts: bool) {
        self.from_texts = from_texts;
    }

    fn key(&self, name: &str) -> Box<str> {
        if self.case_sensitive {
            name.into()
        } else {
            name.to_lowercase().into()
        }
    }

    /// Finds the wanted members of an object.
    ///
    /// # Errors
    /// It is not an object of valid JSON, with nothing after it.
    pub(crate) fn read(&mut self, text: &str) -> Result<(), serde_json::Error> {
        self.replaced.clear();
        self.read_members(text)?;
        if self.is_mixed {
            self.replaced = replaced(self, text);
            if !self.replaced.is_empty() {
                self.read_members(text)?;
            }
        }
        Ok(())
    }

    fn read_members(&mut self, text: &str) -> Result<(), serde_json::Error> {
        self.object += 1;
        self.fit = Fit::Whole;
        self.is_mixed = false;
        self.leftover.begin();
        let mut scanner = Scanner::new(text);
        let root = Within {
            node: 0,
            place: EVENT,
            level: 0,
        };
        let read = self.read_object(text, &mut scanner, root);
        if read.is_some() && scanner.is_over() {
            return Ok(());
        }
        value::check(text)?;
        Err(serde::de::Error::custom("the text is no object"))
    }

    /// Reads an object; `None` if the text is not valid.
    fn read_object(&mut self, text: &str, scanner: &mut Scanner<'_>, of: Within) -> Option<()> {
        let Within {
            node: container,
            place,
            level,
        } = of;
        let mut has_more = scanner.enter(b'{', b'}')?;
        while has_more {
            let name = scanner.name()?;
            let found = self.find(container, body(name.within(text)));
            if found.is_none() && !self.leftover.is_wanted {
                self.fit = self.fit.max(Fit::Unknown);
                scanner.value()?;
            } else if !self.replaced.is_empty() && self.replaced.contains(&name.start()) {
                scanner.value()?;
            } else {
                let leads_on = found.filter(|node| self.leads_on(*node));
                let is_object = leads_on.is_some() && scanner.next()? == b'{';
                if let Some(node) = leads_on {
                    self.mix(node, is_object);
                }
                if let Some(node) = leads_on.filter(|_| is_object) {
                    self.see(node, container);
                    let place = self.leftover.enter(place, name);
                    let level = level + 1;
                    self.read_object(text, scanner, Within { node, place, level })?;
                } else {
                    let member = Slot {
                        object: self.object,
                        level,
                        container,
                        place,
                        name,
                        value: scanner.value()?,
                    };
                    self.take(text, found, member);
                }
            }
            has_more = scanner.goes_on(b'}')?;
        }
        Some(())
    }

    /// Appends the members that were found in the last object.
    pub(crate) fn append(&mut self, text: &str) -> Fit {
        for leaf in &mut self.leaves {
            let slot = leaf.slot;
            if slot.object != self.object {
                leaf.column.append_null();
                continue;
            }
            let raw = slot.value.within(text);
            let fit = if self.from_texts {
                put_text(&mut *leaf.column, raw)
            } else {
                put(&mut *leaf.column, raw)
            };
            if fit != Fit::Whole {
                self.fit = self.fit.max(fit);
                self.leftover.extras.push(Extra {
                    place: slot.place,
                    name: slot.name,
                    value: slot.value,
                    is_misfit: fit == Fit::Misfit,
                });
            }
        }
        for place in &mut self.structs {
            let node = self.nodes.get(place.node);
            place
                .nulls
                .append(node.is_some_and(|node| node.seen == self.object));
        }
        self.fit
    }

    pub(crate) fn append_null(&mut self) {
        self.leaves
            .iter_mut()
            .for_each(|leaf| leaf.column.append_null());
        self.structs
            .iter_mut()
            .for_each(|place| place.nulls.append_null());
    }

    /// The columns, in the order of the fields.
    pub(crate) fn finish(&mut self) -> Result<Vec<ArrayRef>, ArrowError> {
        let arrays = self
            .leaves
            .iter_mut()
            .map(|leaf| leaf.column.finish())
            .collect::<Result<Vec<_>, _>>();
        let nulls: Vec<_> = self
            .structs
            .iter_mut()
            .map(|place| place.nulls.finish())
            .collect();
        let parts = Parts {
            arrays: &arrays?,
            nulls: &nulls,
        };
        self.shapes
            .iter()
            .map(|shape| parts.put_together(shape))
            .collect()
    }

    /// Names a misfit of the last object, for an error's text.
    pub(crate) fn misfit<'t>(&self, text: &'t str) -> Option<&'t str> {
        let mut extras = self.leftover.extras.iter();
        let misfit = extras.find(|extra| extra.is_misfit)?;
        Some(misfit.name.within(text))
    }

    /// Writes the members that no column took as a JSON object; `None`, with nothing written, if
    /// there are none.
    pub(crate) fn write_extras(&mut self, text: &str, out: &mut Vec<u8>) -> Option<()> {
        self.leftover.write(text, out)
    }

    /// The node that a member's name leads to.
    pub(crate) fn find(&self, node: usize, name: &str) -> Option<usize> {
        if is_plain(name) {
            return self.find_plain(node, name);
        }
        if !name.contains(['.', '\\']) {
            return self.find_part(node, name);
        }
        let name = unescaped(name)?;
        let mut parts = name.split('.');
        parts.try_fold(node, |node, part| self.find_part(node, part))
    }

    /// The node of a name that is plain ASCII: nearly all are.
    fn find_plain(&self, node: usize, name: &str) -> Option<usize> {
        match &self.nodes.get(node)?.names {
            Names::Few(names) if !self.case_sensitive => names
                .iter()
                .find(|(known, _)| known.eq_ignore_ascii_case(name))
                .map(|(_, at)| *at),
            _ => self.find_part(node, name),
        }
    }

    fn find_part(&self, node: usize, name: &str) -> Option<usize> {
        let names = &self.nodes.get(node)?.names;
        if self.case_sensitive {
            names.get(name)
        } else {
            names.get(&name.to_lowercase())
        }
    }

    /// Whether a node has names below it.
    pub(crate) fn leads_on(&self, node: usize) -> bool {
        self.nodes
            .get(node)
            .is_some_and(|node| !node.names.is_empty())
    }

    /// Records whether an object or another value leads to a node with names below it.
    fn mix(&mut self, node: usize, is_object: bool) {
        if let Some(node) = self.nodes.get_mut(node) {
            let (now, other) = if is_object {
                (&mut node.object_in, node.other_in)
            } else {
                (&mut node.other_in, node.object_in)
            };
            *now = self.object;
            self.is_mixed |= other == self.object;
        }
    }

    /// Marks a node, and those on the path to it from `container`, as present.
    fn see(&mut self, mut at: usize, container: usize) {
        while at != container
            && let Some(node) = self.nodes.get_mut(at)
        {
            node.seen = self.object;
            at = node.parent;
        }
    }

    /// Records a member that is not parsed further.
    fn take(&mut self, text: &str, found: Option<usize>, member: Slot) {
        let node = found.and_then(|found| self.nodes.get(found));
        let Some(node) = node else {
            return self.leave(member, false);
        };
        let (parent, leaf) = (node.parent, node.leaf);
        let is_null = member.value.within(text) == "null";
        let Some(leaf) = leaf.and_then(|leaf| self.leaves.get_mut(leaf)) else {
            if !is_null {
                self.leave(member, true);
            }
            return;
        };
        let before = leaf.slot;
        let is_new = before.object != self.object;
        let is_same = before.level == member.level
            && before.name.within(text) == member.name.within(text)
            && self.leftover.is_same(text, before.place, member.place);
        let wins = is_new || member.level >= before.level;
        if wins {
            leaf.slot = member;
        }
        if !is_new && !is_same {
            self.leave(if wins { before } else { member }, false);
        }
        self.see(parent, member.container);
    }

    fn leave(&mut self, member: Slot, is_misfit: bool) {
        let fit = if is_misfit { Fit::Misfit } else { Fit::Unknown };
        self.fit = self.fit.max(fit);
        if !is_misfit && !self.leftover.is_wanted {
            return;
        }
        self.leftover.extras.push(Extra {
            place: member.place,
            name: member.name,
            value: member.value,
            is_misfit,
        });
    }
}

/// Finished arrays and nulls, to be assembled.
struct Parts<'a> {
    arrays: &'a [ArrayRef],
    nulls: &'a [Option<NullBuffer>],
}

impl Parts<'_> {
    fn put_together(&self, shape: &Shape) -> Result<ArrayRef, ArrowError> {
        let missing = || ArrowError::ComputeError("a column is missing".to_owned());
        match shape {
            Shape::Leaf(at) => self.arrays.get(*at).cloned().ok_or_else(missing),
            Shape::Struct(at, fields, shapes) => {
                let nulls = self.nulls.get(*at).cloned().ok_or_else(missing)?;
                let columns = shapes
                    .iter()
                    .map(|shape| self.put_together(shape))
                    .collect::<Result<Vec<_>, _>>()?;
                let array = StructArray::try_new(fields.clone(), columns, nulls)?;
                Ok(std::sync::Arc::new(array) as std::sync::Arc<dyn Array>)
            }
        }
    }
}

impl Node {
    fn new(parent: usize) -> Self {
        Self {
            parent,
            leaf: None,
            names: Names::Few(Vec::new()),
            seen: 0,
            object_in: 0,
            other_in: 0,
        }
    }
}

impl Names {
    fn insert(&mut self, name: Box<str>, node: usize) {
        match self {
            Self::Few(names) if names.len() < FEW => names.push((name, node)),
            Self::Few(names) => {
                let mut many: HashMap<_, _> = names.drain(..).collect();
                many.insert(name, node);
                *self = Self::Many(many);
            }
            Self::Many(names) => drop(names.insert(name, node)),
        }
    }

    fn get(&self, name: &str) -> Option<usize> {
        match self {
            Self::Few(names) => names
                .iter()
                .find(|(known, _)| **known == *name)
                .map(|(_, at)| *at),
            Self::Many(names) => names.get(name).copied(),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Few(names) => names.is_empty(),
            Self::Many(names) => names.is_empty(),
        }
    }
}

/// An object of the text whose members are being read.
#[derive(Clone, Copy)]
struct Within {
    node: usize,
    place: usize,
    level: usize,
}

/// Names that are compared one by one.
const FEW: usize = 8;
