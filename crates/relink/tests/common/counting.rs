//! An allocator that counts for each thread separately, so that tests may run in parallel.
#![allow(unsafe_code)] // an allocator needs it

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(more: usize, live: isize) {
    let _ = ALLOCATED.try_with(|allocated| allocated.set(allocated.get() + more));
    let _ = LIVE.try_with(|now| now.set(now.get() + live));
    let _ = PEAK.try_with(|peak| peak.set(peak.get().max(LIVE.get())));
}

fn signed(size: usize) -> isize {
    isize::try_from(size).unwrap_or(isize::MAX)
}

// SAFETY: every call goes to the system's allocator; the counters are plain cells of the thread.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), signed(layout.size()));
        // SAFETY: the caller's layout, unchanged.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, -signed(layout.size()));
        // SAFETY: the pointer came from the allocator above with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Returns how many bytes `run` allocates in total.
pub(crate) fn allocated(run: impl FnOnce()) -> usize {
    let before = ALLOCATED.get();
    run();
    ALLOCATED.get() - before
}

/// Returns the peak of bytes while `run` runs, beyond those before.
pub(crate) fn peak(run: impl FnOnce()) -> isize {
    let before = LIVE.get();
    PEAK.set(before);
    run();
    PEAK.get() - before
}
