//! Waits of the native classes: each class defines once when it is ready, and has a wait for threads and one for
//! event loops.

use std::future::Future;

use pyo3::prelude::*;

use crate::runtime;

/// Waits in this thread for at most `timeout` seconds; answers whether `ready` came true.
pub(crate) fn wait(
    py: Python<'_>,
    timeout: Option<f64>,
    ready: impl Future<Output = ()> + Send,
) -> PyResult<bool> {
    let timeout = runtime::seconds("timeout", timeout)?;
    Ok(runtime::block_on(py, timeout, ready)?.is_some())
}

/// The methods `wait`, for threads, and `wait_async`, for event loops, of a native class: both wait for the future of
/// `$ready` and take nothing. `$first` are arguments before the timeout or the waker, `$more` are optional ones after
/// it.
macro_rules! waits {
    (
        $class:ident($($first:ident: $first_type:ty),*)
        $([$($more:ident: $more_type:ty = $default:tt),+])?,
        |$it:ident, $py:ident| $ready:expr
    ) => {
        #[pymethods]
        impl $class {
            /// Waits in this thread; answers whether it came true within `timeout` seconds.
            #[pyo3(signature = ($($first,)* timeout $($(, $more = $default)+)?))]
            fn wait(
                &self,
                $py: Python<'_>,
                $($first: $first_type,)*
                timeout: Option<f64>,
                $($($more: $more_type,)+)?
            ) -> PyResult<bool> {
                let $it = self;
                $crate::waits::wait($py, timeout, $ready?)
            }

            /// Waits in the event loop of `waker`; `None` if it is true.
            #[pyo3(signature = ($($first,)* waker $($(, $more = $default)+)?))]
            fn wait_async(
                &self,
                $py: Python<'_>,
                $($first: $first_type,)*
                waker: &$crate::loop_waker::LoopWaker,
                $($($more: $more_type,)+)?
            ) -> PyResult<Option<$crate::loop_waker::Standing>> {
                let $it = self;
                waker.wait($py, $ready?)
            }
        }
    };
}
pub(crate) use waits;
