//! Runs the conformance vectors in the folders given, by default tests/vectors and `ACKLINE_VECTORS`.

#[path = "../tests/common/adapter.rs"]
mod adapter;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ackline_testkit::vectors;

fn main() -> ExitCode {
    let mut folders: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if folders.is_empty() {
        folders = vectors::folders(Path::new("tests/vectors"));
    }
    let mut out = std::io::stdout().lock();
    match vectors::run(&folders, &[&adapter::Lumberjack], "rust", &mut out) {
        Ok(true) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
