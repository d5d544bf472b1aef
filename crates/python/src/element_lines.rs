//! Elements of a fixed size as lines of JSON, for the command line.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors;
use crate::project::made;

/// See `_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct ElementShape(ackline_columns::ElementShape);

#[pymethods]
impl ElementShape {
    #[new]
    fn new(element: &str) -> PyResult<Self> {
        made(ackline_columns::ElementShape::new(element)).map(Self)
    }

    /// Bytes of every element.
    #[getter]
    fn size(&self) -> usize {
        self.0.size()
    }

    /// The description, cut off after 100 characters.
    #[getter]
    fn shown(&self) -> &str {
        self.0.shown()
    }

    /// `NumPy`'s name of a description that is a type alone, such as `<f8`; `None` for fields.
    #[getter]
    fn numpy(&self) -> Option<String> {
        self.0.numpy()
    }

    /// The values of elements that stand one behind the other, each as a line.
    fn lines<'py>(&self, py: Python<'py>, elements: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        match py.detach(|| self.0.lines(elements)) {
            Ok(lines) => Ok(PyBytes::new(py, &lines)),
            Err(why) => Err(errors::plain("AcklineError", &why)),
        }
    }
}
