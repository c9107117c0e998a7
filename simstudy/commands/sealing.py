"""Confirm on new seeds what was declared before they existed: ``freeze`` and ``confirm``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simstudy.commands import cli
from simstudy.commands.running import run_and_report
from simstudy.errors import UserError, require_plain

if TYPE_CHECKING:
    from simstudy.design.document import Confirmation, Design
    from simstudy.execution.seal import Seal

MIN_BEACON = 16
"""Fewest characters of a beacon: all shorter texts could be tried before the seal is published."""
_BEACON = "Text of the beacon that the seal names; if it names none, a text of your own of 16 characters or more."
_PROMISE = 'Public beacon that will count: "drand ROUND", "nist TIME" or "bitcoin TIME" (the first block after it).'
_BECAUSE = "Why claims of an earlier seal are withdrawn or changed; `claims.csv` keeps the reason."


@cli.app.command()
def freeze(
    design: cli.DesignArgument,
    profile: cli.ProfileOption = "quick",
    beacon: Annotated[str, typer.Option(help=_PROMISE)] = "own word",
    because: Annotated[str, typer.Option(help=_BECAUSE)] = "",
) -> None:
    """Write a seal and a preregistration of a design into the folder `sealed` beside it.

    Publish both, for example by git push. A beacon is a public text that does not exist yet; name it with --beacon.
    When it exists, `simstudy confirm` computes new seeds from the seal and this text, and judges the claims. Without
    --beacon any text of your own counts, and reports say so.

    A change of cells, precision, claims, expected verdicts, margins or code voids the seal. Comments, format, titles
    and figures can change. `claims.csv` in that folder keeps every claim that was ever sealed, changed or not.

    A file of claims about your own numbers is sealed for `simstudy judge --confirm`.
    """
    from simstudy.design.load import load_design
    from simstudy.design.written import find_design, read_design
    from simstudy.execution.seal import OWN_WORD, described, read_seal, register, require_promise, seal_of, seal_path
    from simstudy.report.preregistration import write_sealed
    from simstudy.report.terminal import say

    path = find_design(design)
    require_plain("because", because)
    # Of claims about numbers of the user's own, and no design.
    if read_design(path).tables.keys() <= {"claims", "numbers"}:
        if (profile, beacon) != ("quick", OWN_WORD):
            raise UserError(f"{path}: claims on your own numbers have no profile and no beacon; omit these options")
        _freeze_claims(path, because)
        return
    loaded = load_design(path, profile)
    if not loaded.claims:
        raise UserError(f"{path}: makes no claim, so there is nothing to confirm; declare one as [claims.NAME]")
    place = seal_path(path, loaded)
    promise = require_promise(beacon)
    before = read_seal(place) if place.exists() else None
    if before is not None and _holds(before, loaded, place, promise):
        return
    seal = seal_of(loaded, promise)
    written = write_sealed(loaded, seal, place)
    register(place, before, seal, because)
    say(f"seal     {place}", f"prereg   {written}", f"digest   {seal.digest}")
    then = "you choose the text for confirm" if promise == OWN_WORD else "the beacon exists"
    say(f"beacon   {described(promise)}", f"publish both now, before {then}")


def _freeze_claims(path: Path, because: str) -> None:
    from simstudy.judging.files import write_seal
    from simstudy.report.terminal import say, warn

    place, seal, before = write_seal(path, because)
    if before is seal:
        say(f"{place}: frozen on {seal.frozen}, and nothing has changed since")
        return
    if before is not None:
        warn(f"{place}: replaced the seal of {before.frozen}, {before.digest}")
    say(f"seal     {place}", f"digest   {seal.digest}", "publish it before the numbers exist, and judge with --confirm")


def _holds(seal: Seal, loaded: Design, place: Path, promise: str) -> bool:
    """Whether the seal that is there still holds, which is said; that of a voided one is said, too."""
    from simstudy.execution.seal import require_unbroken
    from simstudy.report.terminal import say, warn

    try:
        require_unbroken(seal, loaded, place)
        if seal.promise != promise:
            raise UserError(f"{place}: named {seal.promise}, and now {promise}")
    except UserError as error:
        warn(f"{error}", f"replaced: the seal of {seal.frozen}")
        return False
    say(f"{place}: frozen on {seal.frozen}, and nothing has changed since")
    return True


@cli.app.command()
def confirm(
    design: cli.DesignArgument,
    beacon: Annotated[str, typer.Option(help=_BEACON)],
    profile: cli.ProfileOption = "quick",
    executor: cli.ExecutorOption = "threads",
    workers: cli.WorkersOption = None,
    output: cli.OutputOption = cli.OUTPUT,
    quiet: cli.QuietOption = False,
    trust: cli.TrustOption = None,
) -> None:
    """Judge the claims of a sealed design on new data, query points and heads.

    All seeds are computed from the seal and the text of the beacon. The text must have the form of the beacon that the
    seal names. The command does not check that it comes from there, and reports say so. A text of your choice proves
    nothing, nor does the hash of your own commit, because you can try several. Each beacon has its own folder in the
    folder of the pilot, and the report lists all confirmations that were begun.
    """
    from simstudy.design.document import confirmatory
    from simstudy.design.load import load_design
    from simstudy.design.written import find_design, is_shipped
    from simstudy.execution.seal import begin, count_confirmation, described, read_seal, require_unbroken, seal_path
    from simstudy.report.confirmed import claims_of
    from simstudy.report.terminal import say
    from simstudy.results import open_results

    path = find_design(design)
    loaded = load_design(path, profile, trust or ())
    place = seal_path(path, loaded)
    seal = read_seal(place)
    require_unbroken(seal, loaded, place)
    confirmed = confirmatory(loaded, _confirmation(seal, beacon))
    folder = begin(confirmed, seal, output).folder
    again = (folder / "results.nc").exists()
    if not quiet:
        say(f"beacon   {described(seal.promise)}")
    code = run_and_report(confirmed, output, quiet, executor=executor, workers=workers)
    # Confirmations of shipped designs are counted by make table, which gathers those of several machines.
    if not again and not is_shipped(path):
        verdicts = {row["claim"]: row["verdict"] for row in claims_of(open_results(folder))}
        count_confirmation(place, verdicts)
    _show_beside(loaded, output, quiet)
    raise typer.Exit(code)


def _confirmation(seal: Seal, beacon: str) -> Confirmation:
    from simstudy.design.document import MAX_BEACON, Confirmation
    from simstudy.execution.seal import require_fit

    text = beacon.strip()
    if not MIN_BEACON <= len(text) <= MAX_BEACON:
        raise UserError(f"beacon: has {len(text)} characters; give a text of {MIN_BEACON} to {MAX_BEACON}")
    require_plain("beacon", text)
    if text in seal.model_dump_json():
        raise UserError(f"beacon = {text!r}: occurs in the seal, so it existed before; give a later text")
    require_fit(seal.promise, text)
    return Confirmation(seal=seal.digest, beacon=text)


def _show_beside(loaded: Design, output: Path, quiet: bool) -> None:
    """Write the report of the pilot again, if there is one: it shows the verdicts side by side."""
    from simstudy.report.page import write_report
    from simstudy.report.terminal import say, warn
    from simstudy.results import open_results

    pilot = cli.store_for(loaded, output)
    shown = f"no pilot to show beside it; run one with simstudy run {loaded.path} --profile {loaded.profile}"
    try:
        if (pilot.folder / "results.nc").exists():
            with pilot.locked():
                report = write_report(open_results(pilot.folder), loaded, pilot)
            shown = f"pilot and confirmations side by side: {report}"
    except UserError as error:
        warn(*error.args)
        return
    if not quiet:
        say(shown)
