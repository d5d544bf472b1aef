//! Runs the conformance vectors of every protocol in the given folders, by default tests/vectors
//! and `ACKLINE_VECTORS`.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ackline_testkit::vectors;

fn main() -> ExitCode {
    let mut folders: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if folders.is_empty() {
        folders = vectors::folders(Path::new("tests/vectors"));
    }
    let mut out = std::io::stdout().lock();
    match vectors::run(&folders, &ackline::described(), "rust", &mut out) {
        Ok(true) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
