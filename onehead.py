"""The command line: parse, call one room, print."""

import inspect
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial, wraps
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import Progress, track

from derive import Atoms, MarchenkoPastur, PowerLaw, Problem, ProblemError, exact
from derive import balance as symbols
from derive.lasso import lasso_balance
from derive.locate import locate, read_point
from derive.potential import potential_steps
from derive.prefactors import laws
from derive.saddle_steps import saddle_steps
from derive.scaling import regimes
from derive.scaling_steps import scaling_steps
from derive.spectrum_steps import spectrum_steps
from derive.steps import Step, render
from derive.targets import Target
from derive.tiling import box, tiles
from numerics import solve, solve_optimal
from numerics.decomposition import term_record
from numerics.emergence import emergence, staircase
from numerics.message_passing import check_message_passing
from numerics.precision import check_digits
from numerics.sharpen import sharpen
from numerics.solution import KEYS, Solution
from numerics.spectrum import learned_spectrum
from numerics.stability import record, stability_record, warning
from numerics.sweep import Ledger, curve, grid
from numerics.views import quantity, view
from validate.compare import compare_row, read_table, standardise, summarise
from validate.exponents import (
    CHECK_NOTE,
    exponent_records,
    exponent_table,
    measurements,
    place_record,
    regime_table,
)
from validate.published import compare_published, is_published, read_published
from validate.published_spectrum import is_published_spectrum, read_spectrum, spectrum_rows
from validate.report import report as report_tables
from validate.report import threshold_row
from validate.tables import Table, as_csv, as_json, as_latex, as_markdown, as_text

app = typer.Typer(
    help="Derive, solve and check the statistical physics of single-head attention.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
derive_app = typer.Typer(help="Print a derivation step by step.", no_args_is_help=True)
app.add_typer(derive_app, name="derive")
notes = Console(stderr=True)

Format = Annotated[
    Literal["text", "json", "csv"], typer.Option("--format", help="How numbers are printed.")
]
StepFormat = Annotated[
    Literal["text", "latex", "json"], typer.Option("--format", help="How steps are printed.")
]
Task = Annotated[str, typer.Option(help="Learning task: linear, seq2lab or seq2seq.")]
Tokens = Annotated[int | None, typer.Option(help="Tokens T of a softmax task.")]
Beta = Annotated[str, typer.Option(help="Inverse temperature of the student's softmax.")]
Beta0 = Annotated[str, typer.Option(help="Inverse temperature of the target's softmax.")]
NoiseAt = Annotated[str, typer.Option(help="Label noise inside or outside the softmax.")]
Axis = Annotated[
    Literal["alpha", "alpha_bar"],
    typer.Option(help="Whether --alpha (and a threshold) is n/d^2 or alpha_bar = L_eff n/d^2."),
]
Tolerance = Annotated[
    float | None, typer.Option(help="Error estimate at which the quadrature of a softmax task stops.")
]
Penalty = Annotated[str, typer.Option(help="nuclear (factorised training) or frobenius (direct).")]
TargetName = Annotated[str, typer.Option("--target", help="marchenko-pastur, power-law or atoms.")]
Kappa0 = Annotated[str | None, typer.Option(help="Width ratio p0/d of the target (default 1/2).")]
Gamma = Annotated[str | None, typer.Option(help="Exponent of a power-law target, above 1/2.")]
Cutoff = Annotated[int | None, typer.Option(help="Modes of a power-law target; the rest vanish.")]
Eigenvalues = Annotated[
    str | None,
    typer.Option(help="Atoms: a list 0,1,3 or a file with one eigenvalue (and weight) a line."),
]
Weights = Annotated[str | None, typer.Option(help="Weights of the listed eigenvalues (default equal).")]
Size = Annotated[int | None, typer.Option("--d", help="Matrix size d.")]
RequiredSize = Annotated[int, typer.Option("--d", help="Matrix size d.")]
Seeds = Annotated[int, typer.Option(help="Independent runs, at least 2.")]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]
Width = Annotated[int | None, typer.Option(help="Student width p, 1..d (default d).")]
Noise = Annotated[str, typer.Option(help="Label noise variance Delta.")]
Alpha = Annotated[str, typer.Option(help="Samples over d^2.")]
Lam = Annotated[str, typer.Option(help="Penalty; 0 is the limit 0+, `optimal` the least risk.")]
AlphaGrid = Annotated[
    str,
    typer.Option("--alpha", help="Values a,b,c or start:stop:count or start:stop:count:log of n/d^2."),
]
LamGrid = Annotated[
    str, typer.Option("--lam", help="Values or a range as for alpha; or `optimal`, the least risk.")
]
Digits = Annotated[int, typer.Option(help="Significant digits; above 15 in mpmath.")]
Verify = Annotated[
    bool, typer.Option("--verify", help="Run the check of every step instead of printing it.")
]
Output = Annotated[Path | None, typer.Option(help="Write to this file instead of the terminal.")]
Store = Annotated[Path | None, typer.Option(help="Keep finished points in this file; a rerun resumes.")]


TargetReader = Callable[[int | None], Target]


@dataclass(frozen=True)
class TargetOptions:
    """The options that state a target law; called with d, it reads them."""

    target: TargetName = "marchenko-pastur"
    kappa0: Kappa0 = None
    gamma: Gamma = None
    cutoff: Cutoff = None
    eigenvalues: Eigenvalues = None
    weights: Weights = None

    def __call__(self, d: int | None) -> Target:
        """The law, at matrix size d where it has one."""
        stray = [o for o in _OWNER if getattr(self, o) is not None and _OWNER[o] != self.target]
        if stray and self.target in _OWNER.values():
            raise ProblemError(f"--{stray[0]} does not belong to the {self.target} target")
        if self.target == "marchenko-pastur":
            return MarchenkoPastur(self.kappa0 or "1/2")
        if self.target == "power-law":
            return PowerLaw(self._needed(self.gamma, "--gamma"), self._needed(d, "--d"), self.cutoff)
        if self.target == "atoms":
            text = self._needed(self.eigenvalues, "--eigenvalues")
            if Path(text).is_file():
                return _atoms_from_file(Path(text))
            return Atoms(tuple(text.split(",")), tuple(self.weights.split(",")) if self.weights else ())
        raise ProblemError(
            f"unknown target {self.target!r}: choose from atoms, marchenko-pastur, power-law"
        )

    def _needed(self, value: Any, option: str) -> Any:
        if value is None:
            raise ProblemError(f"the {self.target} target needs {option}")
        return value


_OWNER = {
    "kappa0": "marchenko-pastur",
    "gamma": "power-law",
    "cutoff": "power-law",
    "eigenvalues": "atoms",
    "weights": "atoms",
}


@dataclass(frozen=True)
class ChannelOptions:
    """The options that state a task."""

    task: Task = "linear"
    tokens: Tokens = None
    beta: Beta = "1"
    beta0: Beta0 = "1"
    noise_at: NoiseAt = "inside"
    axis: Axis = "alpha"

    def problem(self, target: Target, alpha: Any, lam: Any, noise: Any, **more: Any) -> Problem:
        """The problem of this task, with alpha read on the axis."""
        own = {k: getattr(self, k) for k in ("task", "tokens", "beta", "beta0", "noise_at")}
        stated = Problem(target, alpha, lam, noise, **own, **more)
        if self.axis == "alpha" or stated.alpha.free_symbols:
            return stated
        return stated.at(alpha=stated.alpha / self.directions(stated))

    def symbolic(self, penalty: str) -> Problem:
        """The problem of this task with every number a symbol but those stated."""
        return Problem(task=self.task, penalty=penalty, tokens=self.tokens, noise_at=self.noise_at)

    @staticmethod
    def directions(problem: Problem) -> Any:
        """L_eff as a number."""
        if problem.channel.directions.free_symbols:
            raise ProblemError("the alpha_bar axis needs the number of tokens: state --tokens")
        return problem.channel.directions


def takes(**groups: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of a class for each parameter of that name."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command)
        options = {name: inspect.signature(group).parameters for name, group in groups.items()}

        @wraps(command)
        def wrapper(**given: Any) -> None:
            built = {
                name: group(**{option: given.pop(option) for option in options[name]})
                for name, group in groups.items()
            }
            command(**built, **given)

        rest = [p for name, p in own.parameters.items() if name not in groups]
        rest += [p for each in options.values() for p in each.values()]
        merged = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in rest]
        wrapper.__signature__ = own.replace(parameters=merged)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {p.name: p.annotation for p in merged}
        return wrapper

    return decorate


def _atoms_from_file(path: Path) -> Atoms:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ProblemError(f"cannot read {path}: {error}") from None
    values, weights = [], []
    for number, line in enumerate(lines, 1):
        fields = line.split("#")[0].replace(",", " ").split()
        if not fields:
            continue
        try:
            if len(fields) > 2:
                raise ProblemError("more than an eigenvalue and a weight")
            values.append(exact(fields[0], "eigenvalue"))
            weights.append(exact(fields[1] if len(fields) == 2 else 1, "weight"))
        except ProblemError as error:
            raise ProblemError(f"{path} line {number}: {error}") from None
    return Atoms(tuple(values), tuple(weights))


# --- printing -------------------------------------------------------------------------------------


def check_output(path: Path | None) -> None:
    """Fail before the work, not after it, if a result could not be written."""
    if path is None:
        return
    try:
        new = not path.exists()
        with path.open("a", encoding="utf-8"):
            pass
        if new:
            path.unlink()
    except OSError as error:
        raise ProblemError(f"cannot write {path}: {error.strerror}") from None


def write(text: str, output: Path | None) -> None:
    """Print, or write to a file."""
    if output is None:
        typer.echo(text.rstrip("\n"))
    else:
        output.write_text(text.rstrip("\n") + "\n", encoding="utf-8")


def print_row(row: dict[str, Any], title: str, fmt: str, output: Path | None) -> None:
    """One result."""
    if fmt == "json":
        write(as_json(row), output)
    elif fmt == "csv":
        write(as_csv([row]), output)
    else:
        write(as_text(Table(title, ("quantity", "value"), list(row.items()))), output)


def solve_at(
    state: Callable[[Any], Problem], lam: str, digits: int = 15, tolerance: float | None = None
) -> Solution:
    """Solve at lam, or for `optimal` at the best one; ``state`` makes the problem of a lam."""
    if lam == "optimal":
        return solve_optimal(state(0), digits, tolerance)
    return solve(state(lam), digits, tolerance=tolerance)


@contextmanager
def simulate_extra(work: str) -> Iterator[None]:
    """Say what to install where an import for this work fails."""
    try:
        yield
    except ModuleNotFoundError as missing:
        raise ProblemError(
            f"{work} needs {missing.name}: install onehead with the simulate extra"
        ) from None


def _derive(chain: Callable[[], list[Step]], fmt: str, output: Path | None, verify: bool) -> None:
    """Print a chain, or run the check of each of its steps."""
    check_output(output)
    steps = chain()
    if not verify:
        write(render(steps, fmt), output)
        return
    rows = []
    for step in track(steps, description="checks", console=notes, transient=True):
        rows.append({"step": step.name, "verdict": "holds" if step.verify() else "FAILS"})
    if fmt == "json":
        write(as_json(rows), output)
    else:
        cells = [list(row.values()) for row in rows]
        write(as_text(Table("Each step's own check", ("step", "verdict"), cells)), output)
    failed = [row["step"] for row in rows if row["verdict"] == "FAILS"]
    if failed:
        raise ArithmeticError(f"{len(failed)} of {len(rows)} steps do not hold: {', '.join(failed)}")


# --- commands -------------------------------------------------------------------------------------


@derive_app.command("potential")
@takes(channel=ChannelOptions)
def derive_potential(
    channel: ChannelOptions,
    penalty: Penalty = "nuclear",
    fmt: StepFormat = "text",
    output: Output = None,
) -> None:
    """The replica-symmetric potential e(q, m, V, A, M, C)."""
    check_output(output)
    write(render(potential_steps(channel.symbolic(penalty)), fmt), output)


@derive_app.command("saddle")
@takes(channel=ChannelOptions)
def derive_saddle(
    channel: ChannelOptions,
    penalty: Penalty = "nuclear",
    fmt: StepFormat = "text",
    output: Output = None,
) -> None:
    """The saddle-point equations and their reduction."""
    check_output(output)
    write(render(saddle_steps(channel.symbolic(penalty)), fmt), output)


def _verifiable(name: str, words: str) -> None:
    """The command of a chain whose steps have checks of their own."""

    @derive_app.command(name, help=words)
    @takes(channel=ChannelOptions)
    def command(
        channel: ChannelOptions,
        penalty: Penalty = "nuclear",
        fmt: StepFormat = "text",
        output: Output = None,
        verify: Verify = False,
    ) -> None:
        steps = getattr(import_module(f"derive.{name}"), f"{name}_steps")
        _derive(lambda: steps(channel.symbolic(penalty)), fmt, output, verify)


_verifiable("replica", "From the replicated partition function to the potential.")
_verifiable(
    "amp", "Message passing, its state evolution, and that its fixed points are the saddle points."
)
_verifiable(
    "stability", "Local stability of the saddle point: the replicon, and jumps of the minimiser."
)


@derive_app.command("scaling")
def derive_scaling(fmt: StepFormat = "text", output: Output = None) -> None:
    """The exponents: modes, edge of the noise, and the balance of every regime."""
    check_output(output)
    write(render(scaling_steps(), fmt), output)


@derive_app.command("spectrum")
def derive_spectrum(fmt: StepFormat = "text", output: Output = None) -> None:
    """The learned spectrum: edges, splitting, outliers, and the error that each part causes."""
    check_output(output)
    write(render(spectrum_steps(), fmt), output)


@app.command("check")
def check_command(
    file: Annotated[Path, typer.Argument(help="Equations in TOML; docs/check.md has the form.")],
    fmt: Annotated[
        Literal["text", "json"], typer.Option("--format", help="How it is printed.")
    ] = "text",
    output: Output = None,
) -> None:
    """Compare a user's own equations with the engine's; the exit code is 1 where they differ."""
    from derive.equivalence import check_equations, fixed, recognise
    from derive.user_file import read_user_file

    check_output(output)
    problem, written, equations = read_user_file(file)
    found = check_equations(problem, equations)
    holds = all(one.holds for one in found)
    conventions = () if holds else recognise(problem, equations)
    rows = [
        {"equation": text, "verdict": "holds" if one.holds else "DIFFERS", "decided": one.how}
        | {k: _shown_term(getattr(one, k)) for k in ("yours", "ours", "ratio")}
        for text, one in zip(written, found, strict=True)
    ]
    if holds:
        count = fixed(problem, equations)
        verdict = "equivalent" if count == 6 else f"true, but they fix {count} of q, m, V, A, M, C only"
    elif conventions:
        verdict = "equivalent in another normalisation: " + "; ".join(c.name for c in conventions)
    else:
        verdict = "not equivalent"
    if fmt == "json":
        write(as_json({"verdict": verdict, "equations": rows}), output)
    else:
        shown = list(rows[0])[: 3 if holds else 6]
        note = "" if holds else "yours: the first term that the engine's right side (ours) has not."
        table = Table(f"{file}: {verdict}", shown, [[row[k] for k in shown] for row in rows], note)
        write(as_text(table), output)
    if not holds and not conventions:
        raise typer.Exit(1)


def _shown_term(value: Any) -> str | None:
    return None if value is None else str(value)


@app.command("solve")
@takes(target=TargetOptions, channel=ChannelOptions)
def solve_command(
    target: TargetReader,
    channel: ChannelOptions,
    alpha: Alpha,
    lam: Lam,
    penalty: Penalty = "nuclear",
    d: Size = None,
    width: Width = None,
    noise: Noise = "0",
    digits: Digits = 15,
    tolerance: Tolerance = None,
    fmt: Format = "text",
    output: Output = None,
) -> None:
    """Solve the state evolution."""
    check_output(output)
    check_digits(digits)
    more = {"penalty": penalty, "width": width, "d": d}
    stated = partial(channel.problem, target(d), alpha, noise=noise, **more)
    solution = solve_at(stated, lam, digits, tolerance)
    row = record(solution)
    print_row(row, solution.problem.describe(), fmt, output)
    _warn([row])


def _warn(rows: list[dict[str, Any]]) -> None:
    """Say on stderr which solutions are not to be trusted."""
    found = [words for row in rows if "margin" in row and (words := warning(row))]
    if found:
        count = f"{len(found)} of {len(rows)} points: " if len(rows) > 1 else ""
        typer.echo(f"onehead: warning: {count}{found[0]}", err=True)


@app.command("stability")
@takes(target=TargetOptions, channel=ChannelOptions)
def stability_command(
    target: TargetReader,
    channel: ChannelOptions,
    alpha: AlphaGrid,
    lam: LamGrid,
    penalty: Penalty = "nuclear",
    d: Size = None,
    width: Width = None,
    noise: Noise = "0",
    tolerance: Tolerance = None,
    seeds: Annotated[
        int | None, typer.Option(help="Measure the replicon on so many runs of message passing at --d.")
    ] = None,
    iterations: Annotated[int, typer.Option(help="Iterations before it is measured.")] = 30,
    fmt: Format = "text",
    output: Output = None,
    store: Store = None,
) -> None:
    """Stability of the replica-symmetric solution: replicon, margin, and jumps of the minimiser."""
    check_output(output)
    problems = _problems(channel, target(d), alpha, lam, noise, penalty=penalty, width=width, d=d)
    if seeds is not None and (len(problems) > 1 or lam == "optimal"):
        raise ProblemError("--seeds measures one point: give one alpha and one lam")
    measured = [] if seeds is None else _contractions(problems[0], d, seeds, iterations)
    rows = _solved(problems, lam == "optimal", tolerance, store, stability_record)
    if measured:
        (found,) = standardise(rows[0], measured, ("replicon",))
        rows[0] |= {k: v for k, v in found.row().items() if k not in ("quantity", "theory")}
    _print_points(rows, problems[0].describe("alpha", "lam"), fmt, output)
    _warn(rows)


def _contractions(
    problem: Problem, d: int | None, seeds: int, iterations: int
) -> list[dict[str, float]]:
    """The replicon on runs of message passing."""
    if d is None:
        raise ProblemError("--seeds measures the replicon at a matrix size: state --d")
    with simulate_extra("message passing"):
        from validate.amp import contraction, runs
    started = runs(contraction, problem, d, seeds, iterations)
    shown = track(started, description="seeds", total=seeds, console=notes, transient=True)
    return [{"replicon": one} for one in shown]


@app.command("spectrum")
@takes(target=TargetOptions, channel=ChannelOptions)
def spectrum_command(
    target: TargetReader,
    channel: ChannelOptions,
    alpha: Alpha,
    lam: Lam,
    penalty: Penalty = "nuclear",
    d: Size = None,
    width: Width = None,
    noise: Noise = "0",
    points: Annotated[int, typer.Option(help="Points on each band, 2..5000.")] = 200,
    of: Annotated[
        str, typer.Option(help="S, or singular values: weights (of W), map (of the query-key map).")
    ] = "S",
    digits: Annotated[int, typer.Option(help="Significant digits of edges and outliers.")] = 15,
    tolerance: Tolerance = None,
    fmt: Format = "text",
    output: Output = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the density here.")] = None,
) -> None:
    """The spectrum of the learned S: atom at zero, bands with their density, outliers."""
    check_output(output)
    check_output(plot)
    check_digits(digits)
    if not 2 <= points <= 5000:
        raise ProblemError(f"points must lie in 2..5000, not {points}")
    more = {"penalty": penalty, "width": width, "d": d}
    stated = partial(channel.problem, target(d), alpha, noise=noise, **more)
    solution = solve_at(stated, lam, digits, tolerance)
    found = learned_spectrum(solution, points)
    found = view(sharpen(found, solution) if digits > 15 else found, solution, of)
    words, record = solution.problem.describe(), found.to_dict(digits)
    axis = quantity(of, solution)
    if plot is not None:
        from validate.plots import plot_spectrum

        plot_spectrum(found, plot, words, axis)
    if fmt == "json":
        write(as_json({"problem": words, "of": axis} | record), output)
    elif fmt == "csv":
        pairs = [(x, y) for band in found.bands for x, y in zip(band.x, band.density, strict=True)]
        name = "eigenvalue" if of == "S" else "singular_value"
        write(as_csv([{name: float(x), "density": float(y)} for x, y in pairs]), output)
    else:
        write(as_text(_spectrum_table(record, words, axis)), output)


def _spectrum_table(record: dict[str, Any], title: str, quantity: str) -> Table:
    rows = [("atom at zero", 0.0, 0.0, record["atom"], None, None)] if record["atom"] else []
    rows += [("band", b["low"], b["high"], b["mass"], b["error"], None) for b in record["bands"]]
    rows += [
        (f"outlier {o['k']}", o["eigenvalue"], None, None, None, o["overlap"])
        for o in record["outliers"]
    ]
    note = f"from, to: {quantity}"
    if record["outliers"]:
        transition = record["outliers"][0]["transition"]
        note += f". A mode of the target leaves the band above the strength {transition} (BBP)"
    columns = ("part", "from", "to", "mass", "error of the density", "overlap")
    shown = len(columns) if record["outliers"] else len(columns) - 1
    return Table(title, columns[:shown], [row[:shown] for row in rows], note)


@app.command("decompose")
@takes(target=TargetOptions, channel=ChannelOptions)
def decompose_command(
    target: TargetReader,
    channel: ChannelOptions,
    alpha: AlphaGrid,
    lam: LamGrid,
    penalty: Penalty = "nuclear",
    d: Size = None,
    width: Width = None,
    noise: Noise = "0",
    tolerance: Tolerance = None,
    fmt: Format = "text",
    output: Output = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the terms and the outliers to this PNG, PDF or SVG.")
    ] = None,
    store: Store = None,
) -> None:
    """Split the error over the spectrum of S: over, under, approx, mismatch, along alpha or lam."""
    check_output(output)
    check_output(plot)
    problems = _problems(channel, target(d), alpha, lam, noise, penalty=penalty, width=width, d=d)
    rows = _solved(problems, lam == "optimal", tolerance, store, term_record)
    words = problems[0].describe("alpha", "lam")
    if plot is not None:
        from validate.plots import plot_terms

        plot_terms(rows, plot, words, axis=channel.axis)
    _print_points(rows, words, fmt, output)


@app.command("curve")
@takes(target=TargetOptions, channel=ChannelOptions)
def curve_command(
    target: TargetReader,
    channel: ChannelOptions,
    alpha: AlphaGrid,
    lam: LamGrid,
    penalty: Annotated[
        str, typer.Option(help="One penalty, or several separated by commas.")
    ] = "nuclear",
    d: Size = None,
    width: Width = None,
    noise: Noise = "0",
    digits: Digits = 15,
    tolerance: Tolerance = 1e-4,
    fmt: Format = "csv",
    output: Output = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the curve to this PNG, PDF or SVG.")] = None,
    store: Store = None,
) -> None:
    """Solve along alpha and lam; finished points survive an interruption with --store."""
    check_output(output)
    check_output(plot)
    check_digits(digits)
    more = {"width": width, "d": d}
    names, law = penalty.split(","), target(d)
    problems = [
        problem
        for name in names
        for problem in _problems(channel, law, alpha, lam, noise, penalty=name, **more)
    ]
    rows = _solve_all(problems, lam == "optimal", digits, tolerance, store)
    if plot is not None:
        from validate.plots import plot_curve

        plot_curve(rows, plot, optimal=lam == "optimal", axis=channel.axis)
    columns = ["penalty", "alpha", "alpha_bar", "lam", *KEYS, "margin"]
    _print_rows(rows, problems[0].describe("alpha", "lam"), fmt, output, columns)
    _warn(rows)


def _problems(
    channel: ChannelOptions, law: Target, alpha: str, lam: str, noise: str, **more: Any
) -> list[Problem]:
    """The problems of a grid, alpha by alpha; the best lam stands as 0 until it is found."""
    lams = [0] if lam == "optimal" else grid(lam, "lam")
    return [
        channel.problem(law, value, shrink, noise, **more)
        for value in grid(alpha, "alpha")
        for shrink in lams
    ]


def _solve_all(
    problems: list[Problem],
    optimal: bool,
    digits: int,
    tolerance: float | None,
    store: Path | None,
    record: Callable[[Solution], dict[str, Any]] = record,
) -> list[dict[str, Any]]:
    """Records of a grid of problems, with progress; a failure is a row and is reported."""
    ledger = Ledger(store)
    rows: list[dict[str, Any]] = []
    with Progress(console=notes, transient=True) as progress:
        bar = progress.add_task("solves", total=len(problems))
        for name in dict.fromkeys(problem.penalty for problem in problems):
            own = [problem for problem in problems if problem.penalty == name]
            alphas, lams = (dict.fromkeys(getattr(p, axis) for p in own) for axis in ("alpha", "lam"))
            asked = None if optimal else lams
            for row in curve(own[0], alphas, asked, digits, ledger, tolerance, record):
                rows.append({"penalty": name} | row)
                progress.advance(bar)
    failures = [row["failure"] for row in rows if "failure" in row]
    if failures and len(rows) > 1:
        typer.echo(
            f"onehead: {len(failures)} of {len(rows)} points failed; the first: {failures[0]}", err=True
        )
    return rows


def _solved(
    problems: list[Problem],
    optimal: bool,
    tolerance: float | None,
    store: Path | None,
    record: Callable[[Solution], dict[str, Any]],
) -> list[dict[str, Any]]:
    """Float records of a grid of problems; the failure of a single one is an error."""
    rows = _solve_all(problems, optimal, 15, tolerance, store, record)
    if len(rows) == 1 and "failure" in rows[0]:
        raise ArithmeticError(rows[0]["failure"])
    return rows


def _print_points(rows: list[dict[str, Any]], title: str, fmt: str, output: Path | None) -> None:
    """One result line by line, many as a table."""
    if len(rows) == 1:
        print_row(rows[0], title, fmt, output)
    else:
        _print_rows(rows, title, fmt, output)


def _print_rows(
    rows: list[dict[str, Any]],
    title: str,
    fmt: str,
    output: Path | None,
    columns: list[str] | None = None,
) -> None:
    """Many results; as text in these columns, or in all."""
    if fmt == "json":
        write(as_json(rows), output)
    elif fmt == "csv":
        write(as_csv(rows), output)
    else:
        shown = columns or list(dict.fromkeys(key for row in rows for key in row))
        write(as_text(Table(title, shown, [[row.get(c) for c in shown] for row in rows])), output)


@app.command("thresholds")
@takes(target=TargetOptions, channel=ChannelOptions)
def thresholds_command(
    target: TargetReader,
    channel: ChannelOptions,
    d: Size = None,
    noise: Annotated[str | None, typer.Option(help="Delta; adds the interpolation threshold.")] = None,
    alpha: Annotated[str | None, typer.Option(help="Adds the penalty lam at which S collapses.")] = None,
    lam: Annotated[
        str | None, typer.Option(help="Adds the alpha above which the spectrum of S is split.")
    ] = None,
    digits: Digits = 15,
    fmt: Format = "text",
    output: Output = None,
) -> None:
    """Perfect recovery, interpolation, collapse and splitting."""
    check_output(output)
    check_digits(digits)
    law = target(d)
    problem = channel.problem(law, alpha or 1, lam or 1, noise or 0)
    row = threshold_row(
        problem,
        digits,
        noise=noise is not None,
        collapse_too=alpha is not None,
        splitting_too=lam is not None,
        on_bar=channel.axis == "alpha_bar",
    )
    print_row(
        row, f"Thresholds ({channel.axis}) of the {problem.channel.describe()}, {law}", fmt, output
    )


@app.command("validate")
@takes(target=TargetOptions, channel=ChannelOptions)
def validate_command(
    target: TargetReader,
    channel: ChannelOptions,
    alpha: Alpha,
    lam: Lam,
    d: RequiredSize,
    penalty: Penalty = "nuclear",
    width: Width = None,
    noise: Noise = "0",
    seeds: Seeds = 8,
    optimizer: Annotated[str, typer.Option(help="lbfgs or adam.")] = "lbfgs",
    sensing: Annotated[
        str, typer.Option(help="tokens, or gaussian as a finite-size control.")
    ] = "tokens",
    device: Device = "cpu",
    batch: Annotated[int | None, typer.Option(help="Samples in a mini-batch of adam.")] = None,
    precision: Annotated[str, typer.Option(help="float64 or float32, of the training.")] = "float64",
    tolerance: Tolerance = 1e-4,
    fmt: Format = "text",
    output: Output = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the eigenvalues of the trained S over the density.")
    ] = None,
    store: Store = None,
) -> None:
    """Train networks and compare them with theory, in standard errors."""
    check_output(output)
    check_output(plot)
    with simulate_extra("training"):
        from validate.simulate import simulate
    more = {"penalty": penalty, "width": width, "d": d}
    stated = partial(channel.problem, target(d), alpha, noise=noise, **more)
    solution = solve_at(stated, lam, tolerance=tolerance)
    runs = simulate(
        solution.problem,
        d,
        seeds,
        optimizer=optimizer,
        sensing=sensing,
        device=device,
        batch=batch,
        precision=precision,
        ledger=Ledger(store),
    )
    finished = list(track(runs, description="seeds", total=seeds, console=notes, transient=True))
    if plot is not None:
        from validate.plots import plot_spectrum

        found, pooled = learned_spectrum(solution), [x for run in finished for x in run["spectrum"]]
        plot_spectrum(found, plot, solution.problem.describe(), quantity("S", solution), pooled)
    _print_validation(solution, finished, sensing, fmt, output)


def _print_validation(
    solution: Any, runs: list[dict[str, Any]], sensing: str, fmt: str, output: Path | None
) -> None:
    from validate.eigenvectors import Eigenvectors, EigenvectorTheory
    from validate.spectrum import compare_spectrum

    comparisons = standardise(solution.values, [run["measured"] for run in runs])
    try:
        terms = EigenvectorTheory.of(solution)
    except (ArithmeticError, ProblemError) as reason:  # the runs are finished: print what there is
        typer.echo(f"onehead: no terms of the error: {reason}", err=True)
    else:
        vectors = [terms.measure(Eigenvectors.from_dict(run["eigenvectors"])) for run in runs]
        comparisons += standardise(terms.values, vectors, terms.values)
    match = compare_spectrum(solution, [tuple(run["spectrum"]) for run in runs])
    rows = [c.row() for c in comparisons]
    unconverged = sum(not run["converged"] for run in runs)
    spectrum = {
        "ks_distance": match.ks,
        "rank_fraction_theory": match.rank_theory,
        "rank_fraction_simulation": match.rank_simulated,
    }
    if fmt == "json":
        write(
            as_json({"rows": rows, **spectrum, "seeds": len(runs), "unconverged": unconverged}), output
        )
    elif fmt == "csv":
        write(as_csv(rows), output)
    else:
        note = (
            f"Spectrum: Kolmogorov-Smirnov distance {match.ks:.4f} on the continuous part, rank "
            f"fraction {match.rank_simulated:.4f} (theory {match.rank_theory:.4f}). {len(runs)} seeds, "
            f"{unconverged} not converged."
        )
        if sensing == "tokens":
            note += (
                "\nReal tokens at finite d are not yet Gaussian fields (skewness about 6/sqrt(d)); "
                "--sensing gaussian is the control without that effect."
            )
        cells = [list(row.values()) for row in rows]
        write(as_text(Table(solution.problem.describe(), list(rows[0]), cells, note)), output)


@app.command("amp")
@takes(target=TargetOptions, channel=ChannelOptions)
def amp_command(
    target: TargetReader,
    channel: ChannelOptions,
    alpha: Alpha,
    lam: Lam,
    d: RequiredSize,
    penalty: Penalty = "nuclear",
    noise: Noise = "0",
    seeds: Seeds = 8,
    iterations: Annotated[int, typer.Option(help="Iterations from S = 0.")] = 8,
    sensing: Annotated[
        str, typer.Option(help="gaussian, or tokens with their finite-size skewness.")
    ] = "gaussian",
    device: Device = "cpu",
    fmt: Format = "text",
    output: Output = None,
) -> None:
    """Run message passing on sampled data and compare each iteration with the state evolution."""
    check_output(output)
    with simulate_extra("message passing"):
        from validate.amp import compare_iterates, message_passing, runs
    stated = partial(channel.problem, target(d), alpha, noise=noise, penalty=penalty, d=d)
    check_message_passing(stated(lam if lam != "optimal" else 1))
    solution = solve_at(stated, lam)
    options = {"sensing": sensing, "device": device}
    started = runs(message_passing, solution.problem, d, seeds, iterations, **options)
    shown = track(started, description="seeds", total=seeds, console=notes, transient=True)
    rows = compare_iterates(solution, list(shown))
    _print_rows(rows, solution.problem.describe(), fmt, output)


@app.command("compare")
def compare_command(
    data: Annotated[
        Path,
        typer.Option(
            help="CSV of trained networks (d, n, gamma, noise, lam, width, mse_mean, mse_std), or a "
            "published file of softmax attention, curves or a learned spectrum."
        ),
    ],
    alpha: Annotated[
        str | None, typer.Option(help="Of a spectrum, where the file's name does not say it.")
    ] = None,
    kappa0: Kappa0 = None,
    lam: Annotated[str | None, typer.Option(help="Penalty, where the file does not say it.")] = None,
    noise: Annotated[str | None, typer.Option(help="Delta, where the file does not say it.")] = None,
    tokens: Tokens = None,
    tolerance: Tolerance = 1e-3,
    fmt: Format = "text",
    output: Output = None,
    plot: Annotated[Path | None, typer.Option(help="Draw a learned spectrum over theory.")] = None,
    store: Store = None,
) -> None:
    """Compare published numbers with theory, row by row."""
    check_output(output)
    check_output(plot)
    ledger = Ledger(store)
    stated = {"kappa0": kappa0, "lam": lam, "noise": noise}
    stated |= {"tokens": None if tokens is None else str(tokens)}
    of_spectrum = is_published_spectrum(data)
    if plot is not None and not of_spectrum:
        raise ProblemError("--plot draws a learned spectrum (a file with the one column eigenvalue)")
    if of_spectrum:
        problem, eigenvalues = read_spectrum(data, stated | {"alpha": alpha})
        solution = solve(problem, tolerance=tolerance)
        if plot is not None:
            from validate.plots import plot_spectrum

            found = view(learned_spectrum(solution, 400), solution, "weights")
            axis = "root of an eigenvalue of S"
            plot_spectrum(found, plot, problem.describe(), axis, eigenvalues**0.5)
        rows = spectrum_rows(solution, eigenvalues)
        counted = None
    elif is_published(data):
        published = read_published(data, stated)
        found = compare_published(published, tolerance or 1e-3, ledger.get)
        shown = track(found, description="rows", total=len(published), console=notes, transient=True)
        rows = [line for lines in shown for line in lines]
        counted = "the table's standard deviations (seeds), or the roughness of a Monte-Carlo curve."
    else:
        table = read_table(data)
        rows = [
            ledger.get(json.dumps(row, sort_keys=True), lambda r=row: compare_row(r))
            for row in track(table, description="rows", console=notes, transient=True)
        ]
        counted = "standard deviations over the table's seeds."
    _print_comparison(data, rows, counted, fmt, output)


def _print_comparison(
    data: Path, rows: list[dict[str, Any]], counted: str | None, fmt: str, output: Path | None
) -> None:
    summary = summarise(rows)
    if fmt == "json":
        write(as_json(summary), output)
    elif fmt == "csv":
        write(as_csv(rows), output)
    else:
        note = f"|theory/published - 1|: median {summary['median']:.3%}, worst {summary['worst']:.3%}."
        note += f" z counts {counted}" if counted else ""
        columns = list(dict.fromkeys(key for row in rows for key in row))
        cells = [[row.get(c) for c in columns] for row in rows]
        write(as_text(Table(str(data), columns, cells, note)), output)


@app.command("weights")
def weights_command(
    file: Annotated[Path, typer.Argument(help="A safetensors or PyTorch checkpoint.")],
    heads: Annotated[
        int | None, typer.Option(help="Query heads (default: config.json beside the file).")
    ] = None,
    key_heads: Annotated[int | None, typer.Option(help="Key heads, where queries share them.")] = None,
    query: Annotated[str | None, typer.Option(help="Pattern of the names of query weights.")] = None,
    key: Annotated[str | None, typer.Option(help="Pattern of the names of key weights.")] = None,
    fused: Annotated[
        str | None, typer.Option(help="Pattern of the names of fused query-key-value weights.")
    ] = None,
    per_head: Annotated[
        bool, typer.Option("--per-head", help="Fused weights are stacked head by head.")
    ] = False,
    transposed: Annotated[
        bool, typer.Option("--transposed", help="Separate weights are (inputs, outputs).")
    ] = False,
    layer: Annotated[str | None, typer.Option(help="Only this layer.")] = None,
    head: Annotated[int | None, typer.Option(help="Only this head of each layer.")] = None,
    fmt: Format = "text",
    output: Output = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the singular values over the fitted theory.")
    ] = None,
) -> None:
    """Spectra of the query-key maps W_Q W_K' of a trained transformer, head by head."""
    from validate.checkpoint import Layout, read_heads
    from validate.heads import HEADS_NOTE, head_spectrum

    check_output(output)
    check_output(plot)
    layout = Layout(heads, key_heads, query, key, fused, per_head, transposed)
    every = track(
        read_heads(file, layout, layer), description="heads", total=None, console=notes, transient=True
    )
    found = [head_spectrum(one) for one in every if head in (None, one.head)]
    if not found:
        asked = {"--layer": layer, "--head": head}
        words = " ".join(f"{name} {value}" for name, value in asked.items() if value is not None)
        raise ProblemError(f"{file} has no head for {words}")
    if plot is not None:
        from validate.plot_heads import plot_heads

        plot_heads(found, plot, str(file.name))
    if fmt == "json":
        write(as_json([one.to_dict() for one in found]), output)
        return
    rows = [one.row() for one in found]
    if fmt == "csv":
        write(as_csv(rows), output)
    else:
        cells = [list(row.values()) for row in rows]
        write(as_text(Table(str(file), list(rows[0]), cells, HEADS_NOTE)), output)


@app.command("exponents")
def exponents_command(
    gamma: Gamma = None,
    task: Annotated[str, typer.Option(help="linear, seq2lab, seq2seq or lasso.")] = "linear",
    penalty: Penalty = "nuclear",
    lam: Annotated[str, typer.Option(help="free (lam = d^l), optimal, or n^x such as n^1/4.")] = "free",
    narrow: Annotated[bool, typer.Option("--narrow", help="A student of width d^w, w < 1.")] = False,
    noise_free: Annotated[bool, typer.Option("--noise-free", help="Delta = 0.")] = False,
    at: Annotated[
        str | None, typer.Option(help="Say which regime a point is in: a=1.5,l=-0.2,delta=0 (and w).")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Solve at growing d and measure them.")] = False,
    delta: Annotated[
        str | None, typer.Option(help="delta of the phase diagram, Delta = d^delta (default 0).")
    ] = None,
    width: Annotated[
        str | None, typer.Option(help="w of the phase diagram of a narrow student (default 1/2).")
    ] = None,
    fmt: Annotated[
        Literal["text", "markdown", "latex", "csv", "json"],
        typer.Option("--format", help="How the table is printed."),
    ] = "text",
    output: Output = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the phase diagram in (a, l) to this PNG, PDF or SVG.")
    ] = None,
    store: Store = None,
) -> None:
    """The exponents f(gamma) in every regime: derived, located, drawn, measured."""
    check_output(output)
    check_output(plot)
    value = None if gamma is None else _exponent(gamma)
    if at is not None and (check or plot is not None):
        raise ProblemError("--at asks about one point: leave out --check and --plot")
    if check and (lam != "free" or penalty != "nuclear" or narrow or noise_free):
        raise ProblemError("--check measures the table as it stands: nuclear penalty, lam free, w = 1")
    if check and task not in ("linear", "lasso"):
        raise ProblemError(
            "--check solves the linear task or the lasso; examples/softmax_exponents.py does seq2lab"
        )
    if plot is None and (delta is not None or width is not None):
        raise ProblemError("--delta and --width say where the phase diagram is cut: add --plot")
    if width is not None and not narrow:
        raise ProblemError("--width belongs to a narrow student: add --narrow")
    table, attained = regime_table(task, penalty, lam, narrow=narrow, noise_free=noise_free)
    if at is not None:
        point = read_point(at)
        if penalty == "nuclear" and (point["w"] < 1) != narrow:
            table, _ = regime_table(task, penalty, lam, narrow=point["w"] < 1, noise_free=noise_free)
        _print_place(place_record(locate(table, point, value)), at, fmt, output)
        return
    if plot is not None:
        from validate.plots import plot_phases

        if value is None:
            raise ProblemError("the phase diagram needs a number: state --gamma")
        scale, share = exact(delta or 0, "delta"), exact(width or "1/2", "w")
        if not 0 < share < 1:
            raise ProblemError(f"the width of a narrow student lies between 0 and 1 in w, not {share}")
        at_numbers = {symbols.gamma: value, symbols.delta: scale, symbols.w: share}
        words = f"gamma = {value}, delta = {scale}" + (f", w = {share}" if narrow else "")
        plot_phases(tiles(table, at_numbers, box(value, scale)), plot, words)
    if check:
        _print_check(table, task, value, fmt, output, Ledger(store))
        return
    plain = task == "linear" and penalty == "nuclear" and lam == "free" and not (narrow or noise_free)
    constants = laws() if plain and fmt in ("json", "csv") else None
    records = exponent_records(table, value, attained, constants)
    beside = exponent_records(regimes(lasso_balance()), value) if plain and constants is None else []
    title = f"Exponents of the {task} task, {penalty} penalty" + (f", gamma = {value}" if value else "")
    _print_table(exponent_table(records, title, beside), records, fmt, output)


_GAMMAS = ("3/5", "3/4", "1", "3/2", "2")


def _exponent(text: str) -> Any:
    """Gamma as an exact number above 1/2."""
    return PowerLaw(text, 1).gamma


def _print_table(table: Table, records: list[dict[str, Any]], fmt: str, output: Path | None) -> None:
    if fmt == "json":
        write(as_json(records), output)
    elif fmt == "csv":
        write(as_csv([{k: _joined(v) for k, v in r.items()} for r in records]), output)
    else:
        write(_RENDERERS[fmt](table), output)


_RENDERERS = {"text": as_text, "markdown": as_markdown, "latex": as_latex}


def _joined(value: Any) -> Any:
    return " or ".join(value) if isinstance(value, list) else value


def _print_place(record: dict[str, Any], at: str, fmt: str, output: Path | None) -> None:
    rows = [(k, " and ".join(v) if isinstance(v, list) else v) for k, v in record.items()]
    if fmt == "json":
        write(as_json(record), output)
    elif fmt == "csv":
        write(as_csv([dict(rows)]), output)
    else:
        table = Table(f"The point {at}", ("", "value"), rows)
        write(_RENDERERS[fmt](table), output)


def _print_check(
    table: Iterable[Any], task: str, value: Any, fmt: str, output: Path | None, ledger: Ledger
) -> None:
    values = [value] if value is not None else [exact(g, "gamma") for g in _GAMMAS]
    found = measurements(tuple(table), values, task)
    rows = [
        ledger.get(key, compute)
        for key, compute in track(found, description="exponents", console=notes, transient=True)
    ]
    title = f"Measured exponents, {task}"
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = Table(title, columns, [[row.get(c) for c in columns] for row in rows], CHECK_NOTE)
    _print_table(text, rows, fmt, output)


@app.command("emergence")
def emergence_command(
    gamma: Annotated[str, typer.Option(help="Exponent of the power-law target, above 1/2.")],
    d: RequiredSize,
    modes: Annotated[int, typer.Option(help="How many modes, from the largest.")] = 20,
    lam: Annotated[str, typer.Option(help="Penalty, fixed while n grows; 0 is the limit 0+.")] = "0",
    noise: Noise = "0",
    cutoff: Cutoff = None,
    fmt: Format = "text",
    output: Output = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the staircase R(n) here.")] = None,
) -> None:
    """The sample size at which each mode of a power-law target is recovered."""
    check_output(output)
    check_output(plot)
    target = PowerLaw(gamma, d, cutoff)
    shrink, label_noise = exact(lam, "lam"), exact(noise, "noise")
    Problem(target, 1, shrink, label_noise)  # checks the ranges
    events = emergence(target, modes, shrink, label_noise)
    shown = track(events, description="modes", total=modes, console=notes, transient=True)
    rows = [asdict(event) | {"R": event.risk} for event in shown]
    for row in rows:
        del row["risk"]
    title = f"Emergence: gamma = {target.gamma}, d = {d}, lam = {shrink}, Delta = {label_noise}"
    if plot is not None:
        from validate.plots import plot_emergence

        bounds = (1.5 * rows[0]["strength"], 0.8 * rows[-1]["strength"])
        curve = staircase(target, shrink, label_noise, bounds)
        points = list(track(curve, description="staircase", total=240, console=notes, transient=True))
        plot_emergence(points, rows, plot, title)
    columns = ["k", "strength", "n", "by", "R", "envelope", "regime"]
    if fmt == "json":
        write(as_json([{k: row[k] for k in columns} for row in rows]), output)
    elif fmt == "csv":
        write(as_csv([{k: row[k] for k in columns} for row in rows]), output)
    else:
        cells = [[row[k] for k in columns] for row in rows]
        write(as_text(Table(title, columns, cells, EMERGENCE_NOTE)), output)


EMERGENCE_NOTE = (
    "Mode k leaves the noise at its BBP transition (tau = s_k) and is kept once it passes theta; n is "
    "when both hold. envelope: the largest power law of `onehead exponents` there, with its constant."
)


@app.command("report")
def report_command(
    digits: Digits = 30,
    fmt: Format = "text",
    output: Output = None,
) -> None:
    """Derive, solve and print the tables of thresholds and exponents that exist so far."""
    check_output(output)
    check_digits(digits)
    tables = list(_shown(report_tables(max(digits, 16)), fmt, output))
    if fmt == "json":
        write(as_json({table.title: table.records() for table in tables}), output)
    elif fmt == "csv":
        write("\n".join(as_csv(table.records()) for table in tables), output)
    elif output is not None:
        write("\n".join(as_text(table) for table in tables), output)


def _shown(tables: Iterable[Table], fmt: str, output: Path | None) -> Iterable[Table]:
    """Print each table as soon as it is ready when the terminal is where it goes."""
    for table in tables:
        if fmt == "text" and output is None:
            write(as_text(table) + "\n", None)
            typer.echo()
        yield table


# --- errors ---------------------------------------------------------------------------------------

# The common base of the parser's own errors, whichever package it lives in.
_UsageProblem = typer.BadParameter.__mro__[2]


def main() -> None:
    """Run the command line; bad input is one sentence and exit code 2."""
    try:
        code = app(standalone_mode=False)
    except (ProblemError, _UsageProblem) as error:
        message = error.format_message() if hasattr(error, "format_message") else str(error)
        _fail(message, 2)
    except ArithmeticError as error:  # NotConverged is one
        _fail(str(error), 1)
    except KeyboardInterrupt:
        _fail("interrupted; points finished so far are in the --store file, if one was given", 130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    else:
        if code == 130:
            _fail("interrupted; points finished so far are in the --store file, if one was given", 130)
        sys.exit(code or 0)


def _fail(message: str, code: int) -> None:
    typer.echo(f"onehead: {' '.join(message.split())}", err=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
