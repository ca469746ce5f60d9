"""Advice for commands and options of the Rust toolchain that are named otherwise here."""

from collections.abc import Mapping
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from mens_pipeline.errors import ConfigurationError, RefusedError

COMMANDS: Final[Mapping[str, str]] = {
    "mens": "Leave the word out: the commands of `vox mens` are those of `mens`.",
    "pipeline": "Write `mens run`: every stage, every check, one command.",
    "eval-gate": "Write `mens gate --run-dir DIR --policy NAME`; policies are in config/gates.yaml.",
    "eval-collateral-damage": "Write `mens gate`: the champion completes the same prompts, a regression fails.",
    "status": "Write `mens store prune` for what is kept, `mens promote --history` for champions, or open `make ui`.",
    "watch-telemetry": "Read `telemetry.jsonl` in the folder of the run, or open `make ui`.",
    "probe": "Write `mens train --dry-run`: it looks at device, memory, data and base.",
}
"""Command of `vox mens` -> what does its work here."""

CORPUS_COMMANDS: Final[Mapping[str, str]] = {
    "merge": "There is no merge: write `mens corpus mix`, which reads several files of pairs (config/mix.yaml).",
    "extract-docs": "Write `mens corpus extract DIR -o FILE`: it reads pages as well as programs.",
    "validate-batch": "Write `mens corpus validate IN -o OUT`.",
    "generate": "Write `mens generate-data --limit N -o FILE`.",
    "mutate": "Rows are not mutated, for no gain was found: write `mens generate-data --limit N -o FILE`.",
    "augment": "Write `mens generate-data --limit N -o FILE`: its requests are worded in many ways.",
    "diversity-check": "Write `mens corpus stats IN`.",
    "fingerprint": "Nothing to do: `mens run` compares the grammar and the sources by itself.",
    "snapshot": "Nothing to do: `mens run` keeps each corpus in the store, by its hash.",
    "replay": "Write `mens telemetry import --url URL -o FILE`.",
    "prompt": "Nothing to write: the system prompt is part of the package, and of every run's manifest.",
}
"""Command of `vox mens corpus` -> what does its work here."""

_ALWAYS: Final = "It is always so, and there is no option for it."
TRAIN_OPTIONS: Final[Mapping[str, str]] = {
    "--native-lora": "Leave it out: QLoRA is what `mens train` does.",
    "--context-filter": "Write --domain NAME; config/domains.yaml chooses rows by category and difficulty.",
    "--adapter-tag": "Set VCS_SHA: adapters are named after it.",
    "--background": "Start it from your shell (`nohup mens train ... &`) or by a schedule; a killed run goes on.",
    "--log-dir": "`child.log` and `telemetry.jsonl` are in --output-dir.",
    "--process-priority": "Write `nice -n 10 mens train ...`.",
    "--vram-limit-fraction": "Write --preset NAME: presets fit a GPU, and memory is looked at first.",
    "--qlora-no-double-quant": "Write --set bnb_4bit_use_double_quant=false.",
    "--qlora-require-full-proxy-stack": f"All targeted layers are trained. {_ALWAYS}",
    "--qlora-max-skip-rate": "No row is skipped while it trains; those that are too long are counted before.",
    "--qlora-ce-last-k": f"The loss is on the whole completion. {_ALWAYS}",
    "--optimizer-experiment-mode": "There is one optimiser, AdamW; --lr, --warmup and --set weight_decay=X set it.",
    "--data-mode": "Data are read as they are; `mens run` makes them again when sources change.",
    "--fast-corpus": "`mens train` mixes nothing: it reads --data-dir/train.jsonl and names its SHA-256.",
    "--require-gpu": "Write --device cuda: a device that is not there is a refusal.",
    "--allow-cpu-fallback": "Write --device best to take what there is; it says what it took.",
    "--trajectory-weighting-enabled": "Write --trajectory-weighting.",
    "--deployment-target": "Write --preset mobile_edge for a small adapter.",
    "--cloud": "Training elsewhere is not part of this; run the same command on that machine.",
    "--max-budget": "Write --max-minutes.",
    "--max-runtime-secs": "Write --max-minutes.",
    "--qlora-lm-head-only": "All targeted layers are always trained; --target-modules names fewer.",
}
"""Option of `vox mens train` -> what to write instead."""


_WHOLE_SENTENCE: Final = 200
"""Characters of a sentence in a list of commands at most."""


class ListingGroup(TyperGroup):
    """A group whose help shows each command with its whole first sentence."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]  # noqa: ARG002 - its form
        """Return the names of the commands in the order in which they were added, groups among them."""
        return [*self.commands]

    def format_commands(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """Write the commands under the heading of their use, each with its whole first sentence."""
        headings: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                heading = getattr(command, "rich_help_panel", None)
                rows = headings.setdefault(heading if isinstance(heading, str) else "Commands", [])
                rows.append((name, command.get_short_help_str(_WHOLE_SENTENCE)))
        for heading, rows in headings.items():
            with formatter.section(heading):
                formatter.write_dl(rows)


class AdvisingGroup(ListingGroup):
    """A group that knows the commands of the Rust toolchain."""

    advice: Mapping[str, str] = COMMANDS

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> Any:  # type: ignore[override]
        """Return the command that was asked for.

        Raises:
            ConfigurationError: It is one of the Rust toolchain; the message says what does its work here.
        """
        name = args[0]
        if name in self.advice and self.get_command(ctx, name) is None:
            raise ConfigurationError(f"{ctx.command_path} {name}: no such command. {self.advice[name]}")
        return super().resolve_command(ctx, args)


class CorpusGroup(AdvisingGroup):
    """`mens corpus`."""

    advice = CORPUS_COMMANDS


class TrainCommand(TyperCommand):
    """A command that knows the options of `vox mens train`."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Read the options.

        Raises:
            RefusedError: One of them is an option of the Rust toolchain; the message says what to write instead.
        """
        known = {name for parameter in self.params for name in (*parameter.opts, *parameter.secondary_opts)}
        for word in args:
            name = word.partition("=")[0]
            if name in TRAIN_OPTIONS and name not in known:
                raise RefusedError(f"{name} is not offered. {TRAIN_OPTIONS[name]}")
        return super().parse_args(ctx, args)
