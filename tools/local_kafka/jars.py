"""The jars that are pinned in requirements/, such as Apache Kafka's, in folders of the user's
cache.

Apache Ivy fetches them. It is in the package pyspark, so a machine needs only Python and Java, and
Ivy knows the address of Maven Central. For another repository, the environment variable
HEADGATE_MAVEN_REPOSITORY has its base address.

The folder of a list is named after the list's checksum, so that a fresh clone finds it. It is
filled under another name and renamed when it is complete. So a process never sees a part of it.
"""

import contextlib
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

_REQUIREMENTS = Path(__file__).resolve().parents[2] / "requirements"
KAFKA = _REQUIREMENTS / "kafka-jars.txt"
"""A broker, Java clients, and Connect workers with FileStreamSource and FileStreamSink."""
COMPILER = _REQUIREMENTS / "java-compiler.txt"
AVRO = _REQUIREMENTS / "avro-jars.txt"
"""Avro, and the mapping between Connect's schemas and Avro's that Java's converters have."""
FORMATS = _REQUIREMENTS / "format-jars.txt"
"""Java's Protobuf, and a validator of JSON Schema."""
SPARK_KAFKA = _REQUIREMENTS / "spark-kafka-jars.txt"
"""Jars with which Spark itself reads topics, for benches."""
REGISTRY = _REQUIREMENTS / "registry-server.txt"
"""A schema registry of another project. Its 142 MB are fetched only by the tests that start it."""
REPOSITORY = "HEADGATE_MAVEN_REPOSITORY"
ATTEMPTS = 3
FETCH_S = 300
_PIN = re.compile(r"([\w.-]+):([\w.-]+):([\w.-]+)(?::([\w.-]+)@([\w.]+))? sha256:([0-9a-f]{64})")


class JarsError(Exception):
    """The jars cannot be fetched. The message says what to do."""


@dataclass(frozen=True, slots=True)
class Jar:
    """A pinned artifact of a Maven repository."""

    group: str
    artifact: str
    version: str
    classifier: str | None
    ending: str | None
    """File name extension, such as ``tar.gz``. None: the file is a jar."""
    sha256: str

    @property
    def name(self) -> str:
        classifier = f"-{self.classifier}" if self.classifier else ""
        return f"{self.artifact}-{self.version}{classifier}.{self.ending or 'jar'}"


def pinned(pins: Path = KAFKA) -> list[Jar]:
    """Return the jars that the file `pins` lists, in its order."""
    jars = []
    for number, line in enumerate(pins.read_text().splitlines(), 1):
        if line and not line.startswith("#"):
            found = _PIN.fullmatch(line)
            if found is None:
                raise JarsError(f"{pins}:{number}: not 'group:artifact:version sha256:…': {line}")
            jars.append(Jar(*found.groups()))
    return jars


def folder(pins: Path = KAFKA) -> Path:
    """Return the folder of the jars of `pins`. It may not exist yet."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    key = hashlib.sha256(pins.read_bytes()).hexdigest()[:16]
    return Path(cache) / "headgate" / f"{pins.stem}-{key}"


def class_path(pins: Path = KAFKA) -> str:
    """Return the class path for `java -cp`. The jars are fetched if they are missing."""
    here = ensure(pins)
    return os.pathsep.join(str(here / jar.name) for jar in pinned(pins))


def ensure(pins: Path = KAFKA) -> Path:
    """Return the folder of the jars. If it does not exist, the jars are fetched and checked."""
    here = folder(pins)
    jars = pinned(pins)
    if here.is_dir():
        lost = [jar.name for jar in jars if not (here / jar.name).is_file()]
        if not lost:
            return here
        # Some program that cleans caches has removed files.
        shutil.rmtree(here)
    here.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=here.parent) as scratch:
        new = Path(scratch) / "jars"
        fetch(jars, new, Path(scratch))
        check(jars, new)
        # If another process was faster, its folder has the same content.
        with contextlib.suppress(OSError):
            new.rename(here)
    if not here.is_dir():
        raise JarsError(f"the jars could not be put at {here}")
    return here


def check(jars: Sequence[Jar], where: Path) -> None:
    """Check that every jar is in `where` with its pinned checksum. Raises JarsError."""
    for jar in jars:
        path = where / jar.name
        if not path.is_file():
            raise JarsError(f"{jar.group}:{jar.artifact}:{jar.version} was not delivered")
        seen = hashlib.sha256(path.read_bytes()).hexdigest()
        if seen != jar.sha256:
            raise JarsError(
                f"{jar.group}:{jar.artifact}:{jar.version} has sha256 {seen}, expected "
                f"{jar.sha256}: the repository served something else than what was pinned"
            )


def fetch(jars: Sequence[Jar], to: Path, scratch: Path) -> None:
    """Fetch `jars` into the folder `to` with Ivy, whose cache and settings are in `scratch`."""
    settings, module = scratch / "ivysettings.xml", scratch / "ivy.xml"
    settings.write_text(_settings(scratch / "ivy", os.environ.get(REPOSITORY)))
    module.write_text(_module(jars))
    command = [
        *(java(), "-jar", str(_ivy()), "-settings", str(settings), "-ivy", str(module)),
        *("-retrieve", f"{to}/[artifact]-[revision](-[classifier]).[ext]", "-warn"),
    ]
    said = ""
    for _ in range(ATTEMPTS):  # Ivy's cache keeps what an attempt fetched for the next one.
        code, said = _run(command, scratch)
        if code == 0:
            return
    problems = [line.strip() for line in said.splitlines() if _tells(line)][:20]
    raise JarsError(
        f"{jars[0].artifact} and {len(jars) - 1} other jars could not be fetched from "
        + (os.environ.get(REPOSITORY) or "Maven Central")
        + f" in {ATTEMPTS} attempts. The network must reach it, or {REPOSITORY} must be the base "
        "address of a repository that has them. A proxy is set with JAVA_TOOL_OPTIONS. Ivy said:\n"
        + "\n".join(problems)
    )


def _run(command: Sequence[str], where: Path) -> tuple[int, str]:
    """Run a command. Returns its exit code and output."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=FETCH_S, cwd=where
        )
    except subprocess.TimeoutExpired:
        return 1, f"not done after {FETCH_S} s"
    return done.returncode, done.stdout + done.stderr


def java(program: str = "java") -> str:
    """Return the path of a program of Java, in JAVA_HOME if that is set, otherwise on PATH."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(program, path=str(Path(home) / "bin")) if home else shutil.which(program)
    if found is None:
        raise JarsError(
            f"no program {program} in JAVA_HOME or on PATH; needed is Java 17 or newer "
            "(Debian, Ubuntu: apt-get install openjdk-17-jre-headless; macOS: "
            "brew install openjdk@17)"
        )
    return found


def _tells(line: str) -> bool:
    """Whether a line of Ivy's is more than a row of dots or colons."""
    return bool(re.search(r"\w", line)) and not line.strip().startswith(".")


def _ivy() -> Path:
    spec = importlib.util.find_spec("pyspark")
    places = spec.submodule_search_locations if spec else None
    found = sorted(path for place in places or () for path in Path(place).glob("jars/ivy-*.jar"))
    if not found:
        raise JarsError("Apache Ivy comes with the package pyspark, which is not here: make setup")
    return found[0]


def _settings(cache: Path, repository: str | None) -> str:
    root = f" root={quoteattr(repository)}" if repository else ""
    # No poms: the list is closed. No checksums beside the jars: the list has better ones.
    return (
        f'<ivysettings><settings defaultResolver="maven"/><property name="ivy.checksums" value=""/>'
        f"<caches defaultCacheDir={quoteattr(str(cache))}/><resolvers>"
        f'<ibiblio name="maven" m2compatible="true" usepoms="false"{root}/>'
        "</resolvers></ivysettings>"
    )


def _module(jars: Sequence[Jar]) -> str:
    # Ivy takes a module only once, with all of its files.
    modules: dict[tuple[str, str, str], list[Jar]] = {}
    for jar in jars:
        modules.setdefault((jar.group, jar.artifact, jar.version), []).append(jar)
    dependencies = "".join(
        f"<dependency org={quoteattr(group)} name={quoteattr(artifact)}"
        f' rev={quoteattr(version)} transitive="false">{_archives(files)}</dependency>'
        for (group, artifact, version), files in modules.items()
    )
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="headgate" module="kafka"/>'
        '<configurations defaultconfmapping="default->default"><conf name="default"/>'
        f"</configurations><dependencies>{dependencies}</dependencies></ivy-module>"
    )


def _archives(files: Sequence[Jar]) -> str:
    """Return the XML of a module's files. Empty text: only its jar is wanted."""
    if all(jar.ending is None for jar in files):
        return ""
    found = ""
    for jar in files:
        ending = quoteattr(jar.ending or "jar")
        classifier = f" m:classifier={quoteattr(jar.classifier)}" if jar.classifier else ""
        found += (
            f"<artifact name={quoteattr(jar.artifact)} type={ending} ext={ending}{classifier}/>"
        )
    return found


def main(lists: Sequence[Path] = (KAFKA, COMPILER, AVRO, FORMATS)) -> int:
    """Fetch the missing jars, and check the others. Damaged jars are fetched again."""
    try:
        for pins in lists:
            if not folder(pins).is_dir():
                print(f"setup: fetching the jars of {pins.stem}, once for this user", flush=True)
            here = ensure(pins)
            try:
                check(pinned(pins), here)
            except JarsError as error:
                print(f"setup: {error}; fetching again", flush=True)
                shutil.rmtree(here)
                check(pinned(pins), ensure(pins))
    except JarsError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
