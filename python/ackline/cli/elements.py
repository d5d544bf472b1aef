"""Elements of a fixed size, as `--element` describes them: their size and their values as JSON."""

from ackline._core import ElementShape
from ackline.cli.values import USAGE, fail
from ackline.exceptions import AcklineError, UsageError

__all__ = ["Element", "described"]


class Element:
    """A description such as ``f64`` or ``time:u64,value:f32``.

    Raises:
        UsageError: The description is wrong.
    """

    def __init__(self, text: str) -> None:
        self._shape = ElementShape(text)
        self.text = self._shape.shown
        """The description."""
        self.size = self._shape.size
        """The bytes of every element."""

    def line(self, element: bytes) -> bytes:
        """Returns the value of an element, or an object of all fields, as a line of JSON.

        Raises:
            AcklineError: The element has another size, or a bool is neither 0 nor 1.
        """
        if len(element) != self.size:
            has = f"--element {self.text} has {self.size} bytes"
            raise AcklineError(f"{has}, and an element of the stream has {len(element)}")
        return self._shape.lines(element)

    def lines(self, elements: bytes) -> bytes:
        """Returns the values of elements that stand one behind the other, as lines of JSON.

        Raises:
            AcklineError: A bool is neither 0 nor 1.
        """
        return self._shape.lines(elements)

    def is_of(self, dtype: object) -> bool:
        """Returns whether a dtype of a NumPy file may be the same.

        Args:
            dtype: Its description in the file: a text, or a list of fields, which is not compared.
        """
        own = self._shape.numpy
        if not isinstance(dtype, str) or own is None:
            return not isinstance(dtype, str) and own is None
        return dtype in {own, own.replace("V", "S")}


def described(element: str | None) -> Element | None:
    """Returns the type that `--element` names; a wrong one ends the command."""
    try:
        return None if element is None else Element(element)
    except UsageError as error:
        fail(f"--{error}", USAGE)
