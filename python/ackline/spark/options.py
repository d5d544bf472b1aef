"""The options of `format("ackline")`: their names, their defaults, and their checks.

Nothing here touches a spool or Spark, so a mistake is reported before either is opened.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, cast

from ackline.exceptions import UsageError
from ackline.receiver import OPTION_NAMES, unknown_option
from ackline.spark.patience import OPTIONS as PATIENCE_OPTIONS
from ackline.spark.patience import Patience, patience
from ackline.spark.payload import OPTIONS as PAYLOAD_OPTIONS
from ackline.spark.payload import PayloadOptions, payload_options
from ackline.spark.places import At, Place, Places, StartingPosition, one_of, places
from ackline.spark.spools import is_pattern
from ackline.spark.tasks import OPTIONS as TASK_OPTIONS
from ackline.spark.tasks import TaskOptions, task_options
from ackline.spark.times import microseconds
from ackline.spark.values import count, flag, listed, size, unknown
from ackline.spark.where import checked_filter, filter_of, is_of_micromsg, subscribed
from ackline.spool import LEAST_MEMORY, MEMORY

if TYPE_CHECKING:
    from collections.abc import Mapping

COLUMNS: Final = (
    "spool",
    "position",
    "received_at",
    "protocol",
    "peer",
    "link",
    "stream",
    "sequence",
    "repeat",
    "attributes",
    "parts",
    "payload",
)
"""The columns of an event, in the order in which a spool yields them."""

DIGEST: Final = "digest"
"""The column that is built only on request: 16 bytes of sender and event."""

ON_REQUEST: Final = (DIGEST, "listener", "endpoint")
"""The columns that are built only if the option `columns` or `eventColumns` names them."""

Table = Literal["events", "quarantine"]
"""The table that is read of a spool: its events, or the unreadable input set aside."""


@dataclass(frozen=True, slots=True)
class ListenOptions:
    """A receiver inside the query's process.

    Attributes:
        urls: The URLs that it listens on.
        options: The options of `ackline.Receiver`, by its names.
        connect: The URLs that it connects to.
    """

    urls: tuple[str, ...]
    options: tuple[tuple[str, int | str | bool], ...]
    connect: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of `readStream.format("ackline")`.

    Attributes:
        spools: Directories, at least one.
        consumer: The name of the consumer with the marks that this query moves; None moves none.
        start: The start in spools that no checkpoint knows.
        start_given: Whether that was given, or is the default.
        fail_on_loss: Whether positions that are gone end the query.
        table: The table that is read of each spool.
        group: Whether the spools' files may be open to their group.
        listen: The receiver inside the query's process; None for none.
        max_rows: Events per batch, over all spools; None for no limit.
        max_bytes: Inflated bytes per batch, over all spools; None for no limit.
        patience: The fewest events of a batch, and how long they wait; None for no wait.
        tasks: The number of tasks of a batch.
        columns: The columns that are built of each event; None for all.
        digest: Whether these include the digest.
        payload: The options for payloads as columns, if a schema asks for that.
        skip_repeats: Whether events that were sent before are left out.
        read_memory: Bytes that the reader of each task holds at once.
    """

    spools: tuple[str, ...]
    consumer: str | None
    start: StartingPosition | Places
    start_given: bool
    fail_on_loss: bool
    table: Table
    group: bool
    listen: ListenOptions | None
    max_rows: int | None
    max_bytes: int | None
    patience: Patience | None
    tasks: TaskOptions
    columns: tuple[str, ...] | None
    digest: bool
    payload: PayloadOptions
    skip_repeats: bool
    read_memory: int


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """The options of `read.format("ackline")`.

    Attributes:
        spools: Directories, at least one.
        start: The first position, or the first time of receipt, that is read of each spool.
        end: The first that is no longer read; `latest` is the end when the query is planned.
        table: The table that is read of each spool.
        group: Whether the spools' files may be open to their group.
        tasks: The number of tasks.
        columns: The columns that are built of each event; None for all.
        digest: Whether these include the digest.
        payload: The options for payloads as columns, if a schema asks for that.
        skip_repeats: Whether events that were sent before are left out.
        read_memory: Bytes that the reader of each task holds at once.
    """

    spools: tuple[str, ...]
    start: Places
    end: Places
    table: Table
    group: bool
    tasks: TaskOptions
    columns: tuple[str, ...] | None
    digest: bool
    payload: PayloadOptions
    skip_repeats: bool
    read_memory: int


def check_options(given: Mapping[str, str]) -> None:
    """Refuse options that neither a stream nor a batch takes, before the kind is known.

    Raises:
        UsageError: The error of the stream or of the batch, by the options that are given.
    """
    _known(given, (*STREAM_NAMES, *_BATCH_ONLY), "")
    refusals: list[UsageError] = []
    for read in (stream_options, batch_options):
        try:
            read(given)
        except UsageError as error:
            refusals.append(error)
        else:
            return
    of_stream = _unknown(given, BATCH_NAMES)
    of_batch = _unknown(given, STREAM_NAMES)
    if of_stream and of_batch:
        raise UsageError(f"{of_stream} is an option of readStream alone, {of_batch} of read alone")
    raise refusals[1 if of_batch else 0]


def stream_options(given: Mapping[str, str]) -> StreamOptions:
    """Read the options of a stream.

    Raises:
        UsageError: An option is unknown, missing or out of its range; the text names it.
    """
    options = _known(given, STREAM_NAMES, "readStream")
    spools, consumer = _spools(options), _consumer(options)
    max_rows = count(options, "maxRowsPerBatch")
    return StreamOptions(
        spools=spools,
        consumer=consumer,
        start=_start(options),
        start_given=one_of(options, _STREAM_STARTS) is not None,
        fail_on_loss=flag(options, "failOnDataLoss", default=True),
        table=_table(options),
        group=flag(options, "group", default=False),
        listen=_listen(options, spools, consumer),
        max_rows=max_rows,
        max_bytes=size(options, "maxBytesPerBatch"),
        patience=patience(options, max_rows),
        tasks=task_options(options),
        columns=columns_of(options) if "columns" in options else None,
        digest=flag(options, DIGEST, default=False),
        payload=payload_options(options),
        skip_repeats=_skips_repeats(options),
        read_memory=_read_memory(options),
    )


def batch_options(given: Mapping[str, str]) -> BatchOptions:
    """Read the options of a batch.

    Raises:
        UsageError: An option is unknown, missing or out of its range; the text names it.
    """
    options = _known(given, BATCH_NAMES, "read")
    spools = _spools(options)
    start = _bound(options, _BATCH_STARTS, ("earliest", "latest"))
    end = _bound(options, _BATCH_ENDS, ("latest",))
    for place in (start, end):
        if len(spools) > 1 and isinstance(place.otherwise, At):
            raise UsageError("start and end are positions of one spool, and spool names several")
    times = start.otherwise, end.otherwise
    if isinstance(times[0], int) and isinstance(times[1], int) and times[1] < times[0]:
        raise UsageError("endingTimestamp lies before startingTimestamp")
    return BatchOptions(
        spools=spools,
        start=start,
        end=end,
        table=_table(options),
        group=flag(options, "group", default=False),
        tasks=task_options(options),
        columns=columns_of(options) if "columns" in options else None,
        digest=flag(options, DIGEST, default=False),
        payload=payload_options(options),
        skip_repeats=_skips_repeats(options),
        read_memory=_read_memory(options),
    )


def columns_of(given: Mapping[str, str]) -> tuple[str, ...] | None:
    """Read `columns` and `digest`, the names to build, in the order wanted; None for all.

    Elements take the place of `payload`, unless `columns` names it.

    Raises:
        UsageError: A name is unknown or occurs twice, or `digest` is no flag.
    """
    options = {name.lower(): value for name, value in given.items()}
    text = options.get("columns")
    if text is None and "reactive.element" in options:
        text = ",".join(name for name in COLUMNS if name != "payload")
    if not flag(options, DIGEST, default=False):
        names = None if text is None else tuple(listed(text))
    else:
        chosen = COLUMNS if text is None else tuple(listed(text))
        names = chosen if DIGEST in chosen else (*chosen, DIGEST)
    if names is not None:
        check_columns(names)
    return names


def check_columns(names: tuple[str, ...]) -> None:
    """Refuse names that an event does not have.

    Raises:
        UsageError: There is no name, a name is unknown, or a name occurs twice.
    """
    known = (*COLUMNS, *ON_REQUEST)
    strange = [name for name in names if name not in known]
    if strange:
        message = f"an event has no column {strange[0]!r}, only {', '.join(known)}"
        raise UsageError(message)
    if not names or len(set(names)) != len(names):
        message = f"columns must name at least one column and each once, not {', '.join(names)!r}"
        raise UsageError(message)


_NO_PUSHDOWN: Final = (
    "there is no option pushFilters any more: Spark kept its filters with the frame, for later "
    "queries too. start, end, startingTimestamp, endingTimestamp and columns choose what is read"
)


def _known(given: Mapping[str, str], names: tuple[str, ...], verb: str) -> dict[str, str]:
    name = _unknown(given, names)
    if name is not None and name.lower() == "pushfilters":
        raise UsageError(_NO_PUSHDOWN)
    if name is not None:
        where = f"{verb}.format('ackline')".removeprefix(".")
        raise unknown(where, name, names)
    return {name.lower(): value.strip() for name, value in given.items()}


def _unknown(given: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    lowered = {name.lower() for name in names}
    listens = "listen" in lowered
    for name in given:
        if name.lower() not in lowered and not (listens and name.lower().startswith(_RECEIVER)):
            return name
    return None


def _spools(options: Mapping[str, str]) -> tuple[str, ...]:
    spools = tuple(listed(options.get("spool", "")))
    if not spools:
        message = (
            "the option spool is missing: the directory of a spool, or several with commas "
            "(a writer needs the option url)"
        )
        message += (
            ". A table whose columns are named when it is made keeps none of its options: name "
            "all of them in each query, SELECT ... FROM table WITH (spool = '...', ...)"
        )
        raise UsageError(message)
    for spool in spools:
        scheme, found, _ = spool.partition("://")
        if found:
            message = f"spool must be a directory of this machine, {scheme}:// is not read yet"
            raise UsageError(message)
    if len(set(spools)) != len(spools):
        message = f"spool names a directory twice: {', '.join(spools)}"
        raise UsageError(message)
    return spools


def _consumer(options: Mapping[str, str]) -> str | None:
    name = options.get("consumer")
    if name == "":
        message = "consumer must have a name; leave the option away to move no mark"
        raise UsageError(message)
    return name


def _start(options: Mapping[str, str]) -> StartingPosition | Places:
    name = one_of(options, _STREAM_STARTS)
    if name == "startingTimestamp":
        return microseconds(name, options["startingtimestamp"])
    if name is not None and name != "startingPosition":
        return places(options, name, ("committed", "earliest", "latest"))
    start = options.get("startingposition", "committed").lower()
    if start not in ("committed", "earliest", "latest"):
        message = (
            f"startingPosition must be committed, earliest or latest, not {start!r}; "
            "a time goes into startingTimestamp"
        )
        raise UsageError(message)
    return cast("StartingPosition", start)


def _bound(options: Mapping[str, str], names: tuple[str, ...], words: tuple[Place, ...]) -> Places:
    """Read where a batch begins or ends in each spool; without an option at the first word."""
    name = one_of(options, names)
    if name is None:
        return Places(names[0], words[0])
    text = options[name.lower()]
    if "Offsets" in name:
        return places(options, name, words)
    if name.endswith("Timestamp"):
        return Places(name, microseconds(name, text))
    if text.lower() == words[0]:
        return Places(name, words[0])
    if not text.isdecimal():
        raise UsageError(f"{name} must be a position or {words[0]}, not {text!r}")
    return Places(name, At(int(text)))


def _table(options: Mapping[str, str]) -> Table:
    table = options.get("table", "events").lower()
    if table not in ("events", "quarantine"):
        raise UsageError(f"table must be events or quarantine, not {table!r}")
    return cast("Table", table)


def _skips_repeats(options: Mapping[str, str]) -> bool:
    repeats = options.get("repeats", "mark").lower()
    if repeats not in ("mark", "skip"):
        raise UsageError(f"repeats must be mark or skip, not {repeats!r}")
    return repeats == "skip"


def _read_memory(options: Mapping[str, str]) -> int:
    memory = size(options, "readMemory")
    if memory is None:
        return MEMORY
    if memory < LEAST_MEMORY:
        raise UsageError(f"readMemory must be at least {LEAST_MEMORY} (4MiB), not {memory}")
    return memory


def _listen(
    options: Mapping[str, str], spools: tuple[str, ...], consumer: str | None
) -> ListenOptions | None:
    urls, connect = (tuple(listed(options.get(name, ""))) for name in _PLACES)
    receiver = [name for name in options if name.startswith(_RECEIVER)]
    of_receiver = ("ack", "budget", "memory", *_FILTERS, *receiver)
    chosen = [name for name in of_receiver if name in options]
    given = [name for name in _PLACES if name in options]
    if not urls and not connect:
        if given:
            such = (
                "lumberjack://127.0.0.1:5044" if given[0] == "listen" else "reactive://host:7000/X"
            )
            raise UsageError(f"{given[0]} must name a URL such as {such}")
        if chosen:
            starts = "the receiver that the option listen or connect starts"
            raise UsageError(f"{chosen[0]} is for {starts}")
        return None
    if len(spools) != 1 or is_pattern(spools[0]) or consumer is None:
        message = (
            f"{given[0]} needs exactly one spool, which the receiver fills, and a consumer, whose "
            "commits it acknowledges"
        )
        raise UsageError(message)
    if _table(options) != "events":
        raise UsageError(
            f"{given[0]} fills table events: read the quarantine with a query of its own"
        )
    connect = _filtered(options, urls, connect)
    return ListenOptions(urls, tuple(_receiver_options(options, consumer).items()), connect)


def _filtered(
    options: Mapping[str, str], listen: tuple[str, ...], connect: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the URLs to connect to with the filter of the options."""
    given = [name for name in _FILTERS if name in options]
    if not given:
        return connect
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} filter the same messages: give one")
    foreign = [url for url in (*listen, *connect) if not is_of_micromsg(url) or url in listen]
    if foreign:
        place = foreign[0].partition("?")[0]
        message = (
            f"{given[0]} filters topics and queues of micromsg:// in the option connect, and what "
            f"comes from {place} would not be filtered: receive it in a query of its own"
        )
        raise UsageError(message)
    text = options[given[0]]
    return subscribed(connect, filter_of(text) if given[0] == "where" else checked_filter(text))


def _receiver_options(options: Mapping[str, str], consumer: str) -> dict[str, int | str | bool]:
    ack = options.get("ack", "committed").lower()
    if ack not in ("committed", "durable"):
        raise UsageError(f"ack must be committed or durable, not {ack!r}")
    given: dict[str, int | str | bool] = {
        "ack": f"committed={consumer}" if ack == "committed" else "durable"
    }
    if flag(options, "group", default=False):
        given["group"] = True
    for name in ("budget", "memory"):
        found = size(options, name)
        if found is not None:
            given[name] = found
    for name, text in options.items():
        if name.startswith(_RECEIVER):
            name_there = name.removeprefix(_RECEIVER).replace("-", "_")
            if name_there not in OPTION_NAMES:
                raise unknown_option(name_there, _RECEIVER)
            given[name_there] = _receiver_value(name_there, text)
    return given


def _receiver_value(name: str, text: str) -> int | str:
    # A number of milliseconds; all other values are read by the receiver.
    return int(text) if name.endswith("_ms") and text.isdecimal() else text


# The options that filter at a broker: SQL's form, and the protocol's own.
_FILTERS = ("where", "micromsg.filter")
# Of each of these one can be given.
_STREAM_STARTS = (
    "startingPosition",
    "startingTimestamp",
    "startingOffsets",
    "startingOffsetsByTimestamp",
)
_BATCH_STARTS = ("start", *_STREAM_STARTS[1:])
_BATCH_ENDS = ("end", "endingTimestamp", "endingOffsets", "endingOffsetsByTimestamp")
PLACES: Final = ({*_STREAM_STARTS, *_BATCH_STARTS}, _BATCH_ENDS)
"""Groups of options of which one can be given."""
STREAM_NAMES: Final = (
    "spool",
    "consumer",
    *_STREAM_STARTS,
    "table",
    "group",
    "maxRowsPerBatch",
    "maxBytesPerBatch",
    *PATIENCE_OPTIONS,
    *TASK_OPTIONS,
    "columns",
    *PAYLOAD_OPTIONS,
    "repeats",
    "readMemory",
    "digest",
    "failOnDataLoss",
    "listen",
    "connect",
    "ack",
    "budget",
    "memory",
    *_FILTERS,
)
BATCH_NAMES: Final = (
    "spool",
    *_BATCH_STARTS,
    *_BATCH_ENDS,
    "table",
    "group",
    *TASK_OPTIONS,
    "columns",
    *PAYLOAD_OPTIONS,
    "repeats",
    "readMemory",
    "digest",
)
_BATCH_ONLY = tuple(name for name in BATCH_NAMES if name not in STREAM_NAMES)
# The URLs of the embedded receiver: those that it listens on, and those that it connects to.
_PLACES = ("listen", "connect")
# Further options of the embedded receiver, by its own names: `receiver.max_window_events`.
_RECEIVER = "receiver."
