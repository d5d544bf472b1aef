//! The expansion of bodies into events. A protocol crate knows its own layout; this one only asks
//! for it by name.

use std::{ops::Range, sync::Arc};

use crate::{Rows, StoredBlock};

/// Expands the bodies of one layout, such as `lumberjack/1`, into events.
pub trait Layout: Send + Sync {
    /// The name with its version, as in [`Block::layout`](crate::Block::layout).
    fn name(&self) -> &'static str;

    /// Whether its events may have attributes of their own, which stand in the body.
    fn has_attributes(&self) -> bool {
        false
    }

    /// Pushes exactly the events of `rows` (counted within the block), in order.
    ///
    /// It is not called if no column needs the body; `Rows::wants_payload` says which parts may
    /// be skipped.
    ///
    /// # Errors
    /// The body does not match the layout's name.
    fn expand(
        &self,
        block: &StoredBlock<'_>,
        rows: Range<u32>,
        out: &mut Rows,
    ) -> Result<(), LayoutError>;
}

/// The reason a body could not be expanded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LayoutError(
    /// The expected and the found value.
    pub String,
);

/// The layouts that a reader knows, by name.
#[derive(Clone, Default)]
pub struct Layouts(
    /// The layouts; the first one of a name counts.
    pub Vec<Arc<dyn Layout>>,
);

impl Layouts {
    /// A table of these layouts.
    pub fn new(layouts: Vec<Arc<dyn Layout>>) -> Self {
        Self(layouts)
    }

    /// The layout of that name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Layout>> {
        self.0.iter().find(|layout| layout.name() == name)
    }
}

impl std::fmt::Debug for Layouts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|layout| layout.name()))
            .finish()
    }
}
