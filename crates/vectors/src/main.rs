//! Runs the conformance vectors of every protocol in the given folders, by default tests/vectors
//! and `ACKLINE_VECTORS`. A protocol's adapter for the runner is in its crate's tests.

#![forbid(unsafe_code)]

#[path = "../../bpmux/tests/common/adapter.rs"]
mod bpmux;
#[path = "../../lumberjack/tests/common/adapter.rs"]
mod lumberjack;
#[path = "../../relink/tests/common/adapter.rs"]
mod relink;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ackline_testkit::vectors;

fn main() -> ExitCode {
    let mut folders: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if folders.is_empty() {
        folders = vectors::folders(Path::new("tests/vectors"));
    }
    let mut out = std::io::stdout().lock();
    let protocols: [&dyn vectors::Protocol; 3] =
        [&bpmux::Bpmux, &lumberjack::Lumberjack, &relink::Relink];
    match vectors::run(&folders, &protocols, "rust", &mut out) {
        Ok(true) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
