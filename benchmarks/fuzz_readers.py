"""Fuzz the readers of job files and of model configs: a sentence or a job, never a traceback.

    python benchmarks/fuzz_readers.py --seconds 120
    python benchmarks/fuzz_readers.py --seconds 120 --engine random --seed 7

With atheris installed (``pip install atheris``; the compiled package, Linux and macOS) inputs are
led by coverage of ``chipshift.jobs`` and ``chipshift.models``; without it, or with ``--engine
random``, the same seeds are cut, joined and given odd bytes at random. Seeds are the files of the
tests and of examples/. Each input is read alone and beside a model and a DeepSpeed file, with and
without ``--set``; what is read is written as a native file, which must read back. What fails is
kept under ``--keep`` and the status is 1.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SLOW_S = 10.0
"""CPU time above which one file counts as a hang."""
ODD = (
    *(b"nan", b"-1", b"0", b"1e400", b"null", b"~", b'"', b"'", b"${x}", b"$((1/0))", b"\x00"),
    *(b"\xff\xfe", b"[[[[", b"{{{{", b"&a [*a]", b"!!python/object:os.system x", b"$(", b"`"),
    *(b"999999999999999999999", b"\r\n", b"\t", b"<<EOF\n", b"= ", b": ", b"--", b"\\\n", b"True"),
)


def seeds() -> list[tuple[str, bytes]]:
    """(file name, text) of every job in the tests and examples, and the shipped configs."""
    sys.path[:0] = [str(ROOT / "src"), str(ROOT)]
    from tests.jobs.cases import CASES
    from tests.jobs.more_cases import MORE_CASES

    found = [
        (name.rsplit("/", 1)[-1], text.encode())
        for case in CASES + MORE_CASES
        for name, text in case.files.items()
    ]
    found += [(p.name, p.read_bytes()) for p in (ROOT / "examples").iterdir() if p.is_file()]
    found += [(f"job{n}", text) for n, text in enumerate(_texts_of_tests())]
    presets = sorted((ROOT / "src/chipshift/models/presets").glob("*.json"))
    return found + [("config.json", path.read_bytes()) for path in presets[::8]]


def _texts_of_tests() -> list[bytes]:
    """Every text of several lines that a test of the readers holds, by its syntax tree."""
    texts = set()
    for file in sorted((ROOT / "tests/jobs").glob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.add(node.value if node.value.count("\n") > 2 else "")
    return [text.encode() for text in sorted(texts) if text]


SETTINGS: tuple[dict[str, str], ...] = (
    {},
    {"devices": "16", "seq_len": "64"},
    {"training.steps": "4", "model.hidden_size": "64"},
    {"plan.tp": "2", "dp": "3"},
    {"NNODES": "2", "job.name": "", "trainer.devices": "[0, 1]"},
    {"model.num_hidden_layers": "-1", "a.b.c": "${a.b.c}", "machine": "h100*0"},
)


def whole(path: Path, settings: dict[str, str]) -> None:
    """Read a job, write it as a native file, and read that."""
    from chipshift.errors import InputError
    from chipshift.jobs.read import read_job
    from chipshift.jobs.write import to_toml

    job = read_job([str(path)], overrides=settings)
    native = path.with_name(f"{path.name}.native")
    native.write_text(to_toml(job), encoding="utf8")
    try:
        read_job([str(native)])
    except InputError as error:
        raise AssertionError(f"its native file is refused: {error}") from None
    finally:
        native.unlink()


def together(path: Path) -> None:
    """Read a file beside a model and a DeepSpeed file, either of which may be its own."""
    from chipshift.jobs.read import read_job

    beside = [str(path.with_name(name)) for name in ("beside-model.json", "ds_config.json")]
    read_job([str(path), *beside])


def lay_beside(folder: Path) -> None:
    """The files that ``together`` names."""
    presets = ROOT / "src/chipshift/models/presets"
    (folder / "beside-model.json").write_bytes(sorted(presets.glob("*.json"))[0].read_bytes())
    (folder / "ds_config.json").write_text('{"zero_optimization": {"stage": 3}}')


def check(path: Path) -> None:
    """Read one file as a job and, where it is JSON, as a model.

    Raises:
        Exception: whatever a reader let out that is not its one sentence, or took too long.
    """
    from chipshift.errors import InputError
    from chipshift.models.hf import read_config
    from chipshift.models.lora import read_lora

    settings = SETTINGS[path.stat().st_size % len(SETTINGS)]
    readers: list[Callable[[], object]] = [lambda: whole(path, {}), lambda: together(path)]
    if settings:
        readers.append(lambda: whole(path, settings))
    if path.suffix == ".json":
        readers += [lambda: read_config(path), lambda: read_lora(path)]
    for reader in readers:
        start = time.process_time()
        try:
            reader()
        except InputError as error:
            text = str(error)
            if not text or "\n" in text or len(text) > 4000:
                raise AssertionError(f"not one sentence: {text[:200]!r}") from None
        if time.process_time() - start > SLOW_S:
            raise AssertionError(f"took {time.process_time() - start:.1f} s")


def mutated(seed: bytes, other: bytes, rng: random.Random) -> bytes:
    """A seed with pieces dropped, doubled, replaced, or joined with another's."""
    data = bytearray(seed)
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(len(data) + 1)
        size = rng.choice((1, 2, 8, 40))
        kind = rng.randrange(5)
        if kind == 0:
            del data[at : at + size]
        elif kind == 1:
            data[at:at] = rng.choice(ODD)
        elif kind == 2:
            data[at : at + size] = rng.choice(ODD)
        elif kind == 3:
            data[at:at] = data[at : at + size * 4]
        else:
            start = rng.randrange(len(other) + 1)
            data[at:at] = other[start : start + size * 4]
    return bytes(data[:200_000])


class Harness:
    """Writes an input under its name, checks it, and keeps what fails."""

    def __init__(self, keep: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
        lay_beside(self.folder)
        self.keep = keep
        self.tried = 0
        self.failed: dict[str, Path] = {}

    def one(self, name: str, data: bytes) -> None:
        """One input; a failure is kept once for each place that it comes from."""
        path = self.folder / name
        path.write_bytes(data)
        self.tried += 1
        try:
            check(path)
        except Exception as error:
            trace = error.__traceback__
            while trace is not None and trace.tb_next is not None:
                trace = trace.tb_next
            frame = trace.tb_frame.f_code.co_filename if trace else ""
            place = f"{type(error).__name__} {frame}:{trace.tb_lineno if trace else 0}"
            if place not in self.failed:
                self.keep.mkdir(parents=True, exist_ok=True)
                self.failed[place] = self.keep / f"{len(self.failed)}-{name}"
                self.failed[place].write_bytes(data)
                print(f"{place}: {error!s:.200} ({self.failed[place]})", flush=True)
        finally:
            path.unlink(missing_ok=True)

    def report(self, began: float) -> None:
        seconds = time.process_time() - began
        summary = {"inputs": self.tried, "seconds": round(seconds, 1), "failed": len(self.failed)}
        print(json.dumps(summary), flush=True)


def run_random(harness: Harness, seconds: float, seed: int) -> None:
    """Mutations of the seeds for so much CPU time."""
    rng, known, began = random.Random(seed), seeds(), time.process_time()
    while time.process_time() - began < seconds:
        name, text = rng.choice(known)
        harness.one(name, mutated(text, rng.choice(known)[1], rng))
    harness.report(began)


def run_atheris(harness: Harness, seconds: float, seed: int) -> None:
    """Coverage-led: the first byte picks the file's name, the rest is its text."""
    import atheris

    known = seeds()
    names = sorted({name for name, _ in known})[:256]
    with atheris.instrument_imports(include=["chipshift.jobs", "chipshift.models"]):
        list(_imported())
    corpus = Path(tempfile.mkdtemp(prefix="fuzz-corpus-"))
    for number, (name, text) in enumerate(known):
        if name in names:
            (corpus / str(number)).write_bytes(bytes([names.index(name)]) + text)
    began = time.process_time()

    def target(data: bytes) -> None:
        if data:
            harness.one(names[data[0] % len(names)], data[1:])
        if time.process_time() - began > seconds:
            harness.report(began)
            sys.stdout.flush()
            os._exit(1 if harness.failed else 0)

    options = ["-max_len=200000", f"-seed={seed}", "-rss_limit_mb=4096", "-verbosity=0"]
    atheris.Setup([sys.argv[0], *options, str(corpus)], target)
    atheris.Fuzz()


def _imported() -> Iterator[object]:
    """Every reader, imported while imports are instrumented."""
    import importlib
    import pkgutil

    for name in ("chipshift.jobs.readers", "chipshift.models.families"):
        package = importlib.import_module(name)
        for module in pkgutil.iter_modules(package.__path__, f"{name}."):
            yield importlib.import_module(module.name)
    for name in ("chipshift.jobs.read", "chipshift.models.hf", "chipshift.models.lora"):
        yield importlib.import_module(name)


def main() -> int:
    """Status 1 when any input let out more than a sentence."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=120.0, help="CPU time")
    parser.add_argument("--engine", choices=("auto", "atheris", "random"), default="auto")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=Path("out/fuzz"))
    given = parser.parse_args()
    harness = Harness(given.keep)
    engine = given.engine
    if engine == "auto":
        engine = "random"
        with contextlib.suppress(ImportError):
            import atheris  # noqa: F401

            engine = "atheris"
    print(f"engine {engine}", flush=True)
    (run_atheris if engine == "atheris" else run_random)(harness, given.seconds, given.seed)
    return 1 if harness.failed else 0


if __name__ == "__main__":
    sys.exit(main())
