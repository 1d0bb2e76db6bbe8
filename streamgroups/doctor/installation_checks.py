"""Checks the installation in this Python: packages, the client library and the reader.

``streamgroups_cli.doctor`` calls this module. Requirements are facts too, from the metadata of the installed
distribution (``setup.cfg``). Source of the known defects: librdkafka's changelog.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from streamgroups.doctor.check_results import CheckResult, ok, problem, warning


@dataclass(frozen=True, slots=True)
class Package:
    """A package that streamgroups requires.

    Args:
        name: its name in pip.
        required: the accepted versions, as in ``>=4.2,<5``; empty if any version is accepted.
        installed: the installed version, or None.
        extras: extras that are required too.
        extra: the extra of streamgroups that installs it; empty if it is always installed.
    """

    name: str
    required: str
    installed: str | None
    extras: tuple[str, ...] = ()
    extra: str = ""

    @property
    def requirement(self) -> str:
        """The requirement in pip's format.

        >>> Package("pyspark", "<5,>=4.2", None, ("sql",)).requirement
        'pyspark[sql]>=4.2,<5'
        """
        extras = f"[{','.join(self.extras)}]" if self.extras else ""
        return f"{self.name}{extras}{as_range(self.required)}"


@dataclass(frozen=True, slots=True)
class ClientLibrary:
    """The loaded Kafka client.

    Args:
        binding_version: the version of confluent-kafka.
        library_version: the version of the loaded librdkafka.
    """

    binding_version: str
    library_version: str


@dataclass(frozen=True, slots=True)
class NotLoadable:
    """A Kafka client that could not be imported.

    Args:
        why: the message of the import error.
    """

    why: str


@dataclass(frozen=True, slots=True)
class Reader:
    """The native reader, and whether Spark's tasks can use it.

    Args:
        works: whether it works here.
        reason: why it does not work.
        remedy: how to repair it.
        library: path of the librdkafka it uses, if known.
        required: ``native`` or ``plain``, if an environment variable requests one.
    """

    works: bool
    reason: str = ""
    remedy: str = ""
    library: str | None = None
    required: str = ""


@dataclass(frozen=True, slots=True)
class _Fault:
    """A defect of librdkafka that affects streamgroups, and the first version without it."""

    fixed_in: str
    what: str


_FAULTS = (
    _Fault("2.14.2", "a query that stops while its group's coordinator is unavailable can crash"),
    _Fault("2.15.0", "a member whose session has timed out cannot rejoin under 'kafka.group.protocol=consumer'"),
)
#: The first confluent-kafka whose wheel contains a librdkafka without these defects.
_WITHOUT_FAULTS = "2.15"


def with_version(packages: Iterable[Package], name: str, otherwise: Callable[[], str | None]) -> list[Package]:
    """Returns the packages, with another source for the version of one that pip does not list.

    >>> with_version([Package("pyspark", ">=4.2", None)], "pyspark", lambda: "4.2.0")[0].installed
    '4.2.0'
    """
    return [
        replace(package, installed=otherwise()) if package.name == name and package.installed is None else package
        for package in packages
    ]


def judge_packages(packages: Iterable[Package]) -> list[CheckResult]:
    """Checks the required packages: one result for each that is missing or has a wrong version, and one for all others.

    PySpark has a result of its own. :func:`judge_client` checks confluent-kafka if its version is accepted.

    >>> [result.what for result in judge_packages([Package("pandas", ">=2.2,<3", "3.0.1")])]
    ['pandas 3.0.1 is installed; streamgroups requires >=2.2,<3.']
    """
    results, good = [], []
    for package in packages:
        about = "spark" if package.name == "pyspark" else "packages"
        if package.installed is None and package.extra == "spark":
            what = "PySpark is not installed: there are no queries here, only sg.cursors.GroupCursors and the command line."
            remedy = "Use the Python of your Spark distribution, or install the extra 'spark' of streamgroups."
            results.append(warning(about, what, remedy))
        elif package.installed is None:
            what = f"{package.name} is not installed."
            results.append(problem(about, what, f"Run: pip install '{package.requirement}'."))
        elif not _fits(package.installed, package.required):
            what = (
                f"{package.name} {package.installed} is installed; streamgroups requires {as_range(package.required)}."
            )
            results.append(problem(about, what, f"Run: pip install '{package.requirement}'.", package.installed))
        elif about == "spark":
            results.append(ok("spark", f"PySpark; required: {as_range(package.required)}.", package.installed))
        elif package.name != "confluent-kafka":
            good.append(f"{package.name} {package.installed}")
    return [*results, ok("packages", f"{', '.join(good)}.")] if good else results


def judge_client(client: ClientLibrary | NotLoadable, required: Package | None) -> CheckResult:
    """Checks whether the Kafka client loads, and whether its librdkafka has a known defect.

    Args:
        client: the loaded client.
        required: the required version of confluent-kafka, if known. It also applies to librdkafka, because a binding
            that was built from source loads the librdkafka of the system.

    >>> judge_client(ClientLibrary("2.16.1", "2.16.0"), None).what
    'Loaded by confluent-kafka 2.16.1.'
    """
    if isinstance(client, NotLoadable):
        return problem(
            "librdkafka",
            f"confluent-kafka cannot be imported: {client.why}.",
            "Run: pip install --force-reinstall confluent-kafka.",
        )
    loaded = f"Loaded by confluent-kafka {client.binding_version}"
    if required is not None and not _fits(client.library_version, required.required):
        return problem(
            "librdkafka",
            f"{loaded}, but streamgroups requires librdkafka {as_range(required.required)}.",
            f"Install the wheel, which carries a librdkafka: pip install --force-reinstall --only-binary :all: "
            f"'{required.requirement}'.",
            client.library_version,
        )
    faults = [fault for fault in _FAULTS if Version(client.library_version) < Version(fault.fixed_in)]
    if faults:
        return warning(
            "librdkafka",
            f"{loaded}. Known defects: {'; '.join(fault.what for fault in faults)}.",
            f"Run: pip install 'confluent-kafka>={_WITHOUT_FAULTS}'.",
            client.library_version,
        )
    return ok("librdkafka", f"{loaded}.", client.library_version)


def judge_reader(reader: Reader) -> CheckResult:
    """Checks which reader is in use, and why it is not the native one.

    >>> judge_reader(Reader(False, "The extension is not there.", "Build it.")).in_use
    'plain'
    """
    if reader.required not in ("", "native", "plain"):
        what = f"STREAMGROUPS_READER is '{reader.required}', which is not a reader: every task will fail."
        return problem("reader", what, "Set it to native or plain, or unset it.")
    if reader.works and reader.required != "plain":
        return ok("reader", f"Uses {reader.library or 'librdkafka'}.", "native")
    if reader.required == "native":
        what = f"STREAMGROUPS_READER requires the native reader: every task will fail. {reader.reason}"
        return problem("reader", what, reader.remedy)
    slower = "Results are the same, but reading is several times slower than with the native reader."
    if reader.works:
        return warning("reader", f"{slower} STREAMGROUPS_READER selects it.", "Unset the variable.", "plain")
    return warning("reader", f"{slower} {reader.reason}", reader.remedy, "plain")


def as_range(specifier: str) -> str:
    """Returns a version range in the usual order; package metadata sorts its parts by sign.

    >>> as_range("<5,>=4.2,!=4.2.1")
    '>=4.2,!=4.2.1,<5'
    """
    parts = sorted(SpecifierSet(specifier), key=lambda part: (part.operator.startswith("<"), part.operator != ">="))
    return ",".join(str(part) for part in parts)


def _fits(version: str, specifier: str) -> bool:
    return SpecifierSet(specifier).contains(version, prereleases=True)
