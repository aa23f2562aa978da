"""The command line: `heddle compile | inspect | verify | run | bench | doctor | embed | ...`.

One file for each command. What a command needs is imported when it runs, so that those that need no
compiler start at once.
"""

from __future__ import annotations

import warnings
from typing import Any

import click

from heddle.pipelines.cli.bench import bench
from heddle.pipelines.cli.compile import compile_command
from heddle.pipelines.cli.console import listed
from heddle.pipelines.cli.doctor import doctor
from heddle.pipelines.cli.embed import embed
from heddle.pipelines.cli.generate import generate
from heddle.pipelines.cli.inspect import inspect
from heddle.pipelines.cli.rank import rank
from heddle.pipelines.cli.run import run
from heddle.pipelines.cli.serve import serve
from heddle.pipelines.cli.verify import verify
from heddle.runtime.errors import HeddleError

EXIT_CODES = listed(
    "Exit codes:",
    "0  all is well",
    "1  it failed: a bad artifact, wrong inputs, a missing device, a file that cannot be",
    "   read or written",
    "2  the command line itself is wrong, whatever its files hold",
)


class Failure(click.ClickException):
    """One sentence in red, exit code 1."""

    exit_code = 1

    def show(self, file: Any = None) -> None:
        """Prints the sentence to stderr."""
        click.secho(f"error: {self.format_message()}", fg="red", err=True)


def show_warning(message: Warning | str, *where: Any, **more: Any) -> None:
    """One sentence in yellow on stderr, without the line of code that it came from."""
    click.secho(f"warning: {message}", fg="yellow", err=True)


class Commands(click.Group):
    """Turns the errors that are a user's business into a `Failure`."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command; `--debug` lets every error through with its traceback."""
        try:
            with warnings.catch_warnings():
                warnings.showwarning = show_warning
                return super().invoke(ctx)
        except BrokenPipeError:  # nobody reads on: click ends without a word
            raise
        except (HeddleError, ImportError, OSError) as error:
            if ctx.params["debug"]:
                raise
            raise Failure(sentence(error)) from None


def sentence(error: Exception) -> str:
    """What an error says; those of the operating system begin with the file that they are about."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


@click.group(
    cls=Commands, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(package_name="heddle")
def main(debug: bool) -> None:
    """Heddle compiles model graphs ahead of time into one file, and runs that file."""


for command in (compile_command, inspect, verify, run, bench, doctor, embed, rank, generate, serve):
    main.add_command(command)
