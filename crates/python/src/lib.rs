//! The native module `ackline._core`: readiness-model verbs over the links, the bare machines, spools and
//! the receiver. It holds no rule of a protocol and no policy: those are in the crates it binds.

mod arrow;
mod arrow_in;
mod bpmux;
mod consumers;
mod described;
mod dicts;
mod element_lines;
mod errors;
mod given_back;
mod infer;
mod inspect;
mod listeners;
mod logging;
mod loop_waker;
mod lumberjack;
mod micromsg;
mod options;
mod outcome;
mod payloads;
mod pending_op;
mod project;
mod reactive;
mod receiver;
mod records;
mod relink;
mod runtime;
mod sansio;
mod sink;
mod spool;
mod waits;

use pyo3::prelude::*;

/// The module's content; its documentation is in `_core.pyi`.
#[pymodule(gil_used = true)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    logging::end_at_exit(module)?;
    spool::follow_forks(module)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add(
        "MAX_JSON_BYTES",
        ackline_lumberjack::Limits::default().max_json_bytes,
    )?;
    module.add_class::<loop_waker::LoopWaker>()?;
    module.add_class::<sansio::Machine>()?;
    bpmux::add(module)?;
    module.add_class::<pending_op::PendingOp>()?;
    micromsg::add(module)?;
    reactive::add(module)?;
    module.add_class::<relink::RelinkConnecting>()?;
    module.add_class::<relink::RelinkLink>()?;
    module.add_class::<relink::RelinkListener>()?;
    module.add_class::<payloads::PayloadBatch>()?;
    module.add_class::<relink::RelinkMessage>()?;
    module.add_class::<relink::RelinkPart>()?;
    module.add_class::<relink::RelinkReceipt>()?;
    module.add_class::<lumberjack::LumberjackListener>()?;
    module.add_class::<lumberjack::LumberjackWindow>()?;
    module.add_class::<lumberjack::LumberjackBatch>()?;
    module.add_class::<lumberjack::LumberjackRoom>()?;
    module.add_class::<lumberjack::LumberjackSender>()?;
    module.add_class::<sink::BpmuxRows>()?;
    module.add_class::<sink::LumberjackSink>()?;
    module.add_class::<sink::RelinkSink>()?;
    module.add_class::<spool::BlockStream>()?;
    module.add_class::<spool::Spool>()?;
    module.add_class::<consumers::Lease>()?;
    module.add_class::<arrow::EventStream>()?;
    module.add_class::<project::Projection>()?;
    module.add_class::<element_lines::ElementShape>()?;
    module.add_class::<infer::Inference>()?;
    module.add_class::<receiver::Receiver>()?;
    module.add_class::<inspect::Inspector>()?;
    module.add_function(wrap_pyfunction!(runtime::check_seconds, module)?)?;
    module.add_function(wrap_pyfunction!(options::check_whole, module)?)?;
    module.add_function(wrap_pyfunction!(options::option_table, module)?)?;
    module.add_function(wrap_pyfunction!(options::check_option, module)?)?;
    module.add_function(wrap_pyfunction!(options::protocols, module)?)?;
    module.add_function(wrap_pyfunction!(options::size_in, module)?)?;
    module.add_function(wrap_pyfunction!(options::milliseconds_in, module)?)?;
    module.add_function(wrap_pyfunction!(spool::spool_adopt, module)?)?;
    module.add_function(wrap_pyfunction!(spool::spool_mend, module)?)?;
    module.add_function(wrap_pyfunction!(sansio::sansio_decode, module)?)?;
    module.add_function(wrap_pyfunction!(sansio::sansio_encode, module)?)?;
    module.add_function(wrap_pyfunction!(sansio::sansio_describe, module)?)?;
    module.add_function(wrap_pyfunction!(sansio::sansio_protocols, module)?)?;
    Ok(())
}
