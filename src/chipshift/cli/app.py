"""The ``chipshift`` command: subcommands are imported only when they are called."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from chipshift import __version__
from chipshift.errors import InputError, nearest

COMMANDS: dict[str, str] = {}
"""Name of each subcommand and the one line ``--help`` prints; its module is ``cli.<name>``, which
holds a Typer function called ``command``."""

COMMANDS.update(
    estimate="Time, memory and cost of one plan of a job on one machine, part by part.",
    plan="The best plans of a job on a machine, why others lose, what each limit costs.",
    assess="What a training job becomes on other machines: the four-part answer.",
    audit="What in the code will not run, recompile, stall or waste the chip, by file and line.",
    compile="The real training step through the target's own compiler, with no chip attached.",
    chips="The chips known, each figure with its source; side by side in the same units.",
    fabric="Where mesh axes sit on a machine, and how long collectives take there.",
    read="What a job file is understood to say, assumed and ignored, line by line.",
    roofline="Where each op of a job sits under each chip's roof, and why it is bound there.",
    validate="Predicted against measured on public runs, by chip, beside the naive baseline.",
    trace="Run a step a few times on the CPU and count recompiles, host reads, graph breaks.",
)

EXAMPLES = """
\b
Examples:
  chipshift assess examples/llama3-8b-torchtitan.toml --on 'h100*128' --to v6e --to v7x
  chipshift compile examples/llama3-8b.toml --to v6e:4x4 --plan fsdp=16,microbatch=1,remat=full
  chipshift chips --compare h100,v6e,v7x
"""

UsageError: type[Exception] = typer.BadParameter.__bases__[0]
"""What Typer raises for a command line it cannot parse (its own name for it is private)."""


class LazyGroup(TyperGroup):
    """A group that knows its commands' names and help without importing them."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"chipshift.cli.{cmd_name}")
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(name=cmd_name, help=module.command.__doc__)(module.command)
        return typer.main.get_command(app)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            raise InputError(
                f"chipshift has no command '{args[0]}'{nearest(args[0], list(COMMANDS))} "
                "(see chipshift --help)"
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


app = typer.Typer(
    cls=LazyGroup,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog=EXAMPLES,
    context_settings={"max_content_width": 100, "help_option_names": ["--help", "-h"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"chipshift {__version__}")
        raise typer.Exit


@app.callback()
def group(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and leave."
    ),
) -> None:
    """What a GPU training job becomes on TPU, with every number worked."""


def main(args: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code.

    0 done; 1 the answer is no; 2 input that cannot be used; 3 a fault of chipshift's own, said in
    one sentence (with its traceback where CHIPSHIFT_TRACEBACK is set).
    """
    if sys.stdout is None:  # closed before the start (>&-): what is printed goes nowhere
        sys.stdout = open(os.devnull, "w", encoding="utf8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that cannot show a sign shows its escape
            stream.reconfigure(errors="backslashreplace")
    try:
        code = run(args)
    except Exception as fault:
        if os.environ.get("CHIPSHIFT_TRACEBACK"):
            raise
        say(f"a fault of chipshift's own, not of your input: {type(fault).__name__}: {fault} "
            "(CHIPSHIFT_TRACEBACK=1 prints where)")  # fmt: skip
        code = 3
    sys.exit(code)


INTERRUPTED = 130
"""Exit code of a run that Ctrl-C ended: 128 and the signal's number, as shells have it."""


def say(text: str) -> None:
    """One sentence on standard error: on one line, printable, of bearable length."""
    words = (word if len(word) <= 300 else word[:80] + "..." + word[-20:] for word in text.split())
    line = " ".join(words)
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)
    print(f"chipshift: {shown}", file=sys.stderr)


def run(args: list[str] | None = None) -> int:
    """As ``main``, but return the exit code."""
    try:
        command = typer.main.get_command(app)
        given = sys.argv[1:] if args is None else args
        result: Any = command.main(
            args=given or ["--help"], prog_name="chipshift", standalone_mode=False
        )
        if result == INTERRUPTED:  # the parser turns an interrupt into an exit of no words
            raise KeyboardInterrupt
        if sys.stdout is not None:  # it was closed before the start (>&-)
            sys.stdout.flush()
    except InputError as error:
        say(str(error))
        return 2
    except UsageError as error:
        text = error.format_message() if hasattr(error, "format_message") else str(error)
        if text:
            at = getattr(error, "ctx", None)
            say(f"{text.rstrip('.')} (see {at.command_path} --help)" if at else text)
        return 2
    except typer.Exit as leave:
        return leave.exit_code
    except (typer.Abort, KeyboardInterrupt):
        say("interrupted")
        return INTERRUPTED
    except (BrokenPipeError, SystemExit):
        # Standard output is gone (| head), which the parser and the printer turn into an exit with
        # 1; point it elsewhere so that the final flush is quiet. It says nothing of the answer.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.errno != errno.ENOSPC:  # any other is not of standard output
            raise
        say(f"standard output cannot be written: {error.strerror}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2
    return result if isinstance(result, int) else 0
