"""Record how a line is typed, completed by llama.vim, accepted and checked in Vim, and draw it as an SVG.

    git clone https://github.com/ggml-org/llama.vim build/llama.vim
    mens serve --port 8080
    python -m mens_pipeline_tests.bench.editor build/llama.vim docs/images/completion.svg

Nothing is staged: the frames are states of a real editor, with the real times.
"""

import json
import os
import pty
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final

import click

_FILE: Final = """fn total(prices: list[int]) to int {
    let mut sum = 0
    for price in prices {
    }
    return sum
}

@test fn test_total() {
    assert(total([1, 2, 3]) is 6)
}
"""
_LINE: Final = 3
"""Number of the line above the typed one."""
_TYPED: Final = "    sum "
_KEY_SECONDS: Final = 0.12
_WAIT_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.1
_SETTINGS: Final = """set nocompatible noswapfile expandtab autoindent backspace=indent,eol,start
let g:llama_config = {{'endpoint_fim': '{server}/infill', 'n_predict': 24, 'show_info': 0, 'ring_n_chunks': 0}}
call extend(g:llama_config, {{'n_prefix': 1000, 'n_suffix': 1000}})
set runtimepath+={plugin}
runtime plugin/llama.vim
let g:driver = ch_open('127.0.0.1:{port}', {{'mode': 'json'}})
"""
_STATE: Final = (
    "[getline(1, '$'), line('.'), col('.'), prop_list(line('.')), "
    "range(screencol(), &columns)->map('screenstring(screenrow(), v:val)')->join('')]"
)
_SCREEN: Final = ("env", "TERM=xterm-256color", "LINES=24", "COLUMNS=100")


@dataclass(frozen=True, slots=True)
class Frame:
    """State of the editor at one moment; `second` counts from the first frame, row and column from 0.

    `ghost` is text that is shown at the cursor and is not in the file, `below` a message below the file.
    """

    second: float
    lines: tuple[str, ...]
    row: int
    column: int
    ghost: str
    below: str = ""


class Editor:
    """A Vim in its own terminal: keys go to the terminal, and expressions to a channel."""

    def __init__(self, keyboard: int, channel: socket.socket) -> None:
        self._keyboard = keyboard
        self._channel = channel
        self._begun = time.monotonic()

    def press(self, keys: str) -> None:
        """Type keys."""
        os.write(self._keyboard, keys.encode())

    def look(self) -> Frame:
        """Return its current state."""
        lines, row, column, properties, screen = self.ask(_STATE)
        has_ghost = any(found["type"] == "llama_hl_fim_hint" for found in properties)
        ghost = screen.rstrip().removesuffix(lines[row - 1][column - 1 :]) if has_ghost else ""
        return Frame(time.monotonic() - self._begun, tuple(lines), row - 1, column - 1, ghost)

    def ask(self, expression: str) -> Any:
        """Return the value of a Vim expression."""
        self._channel.sendall(json.dumps(["expr", expression, -1]).encode())
        answer = b""
        while not answer.endswith(b"\n"):
            answer += self._channel.recv(1 << 16)
        return json.loads(answer)[1]


@contextmanager
def edit(plugin: Path, server: str, file: Path) -> Iterator[Editor]:
    """Open a file in an editor with the plugin; close it after the block."""
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(_WAIT_SECONDS)
        settings = Path(folder) / "vimrc"
        port = listening.getsockname()[1]
        settings.write_text(_SETTINGS.format(server=server, plugin=plugin.resolve(), port=port))
        screen, terminal = pty.openpty()
        command = [*_SCREEN, "vim", "-u", str(settings), "-i", "NONE", "--not-a-term", str(file)]
        with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal) as process:
            # Discard the output of Vim, or the buffer of the terminal would fill up.
            threading.Thread(target=_drain, args=(screen,), daemon=True).start()
            try:
                channel, _ = listening.accept()
                with channel:
                    channel.settimeout(_WAIT_SECONDS)
                    yield Editor(screen, channel)
            finally:
                process.terminate()


def _drain(screen: int) -> None:
    while os.read(screen, 1 << 16):
        pass


def complete_line(plugin: Path, server: str, file: Path) -> list[Frame]:
    """Type the line, accept the offered text, write the file, return the frames; `ClickException` without a text."""
    file.write_text(_FILE)
    with edit(plugin, server, file) as editor:
        # Vim 9.0 waits for a key after the plugin's message about the version.
        editor.press(f"\r{_LINE}Go")
        time.sleep(_POLL_SECONDS)
        frames = [editor.look()]
        for key in _TYPED:
            time.sleep(_KEY_SECONDS)
            editor.press(key)
            frames.append(editor.look())
        deadline = time.monotonic() + _WAIT_SECONDS
        while not frames[-1].ghost.strip():
            if time.monotonic() > deadline:
                raise click.ClickException(f"llama.vim showed nothing in {_WAIT_SECONDS:g} s; is {server} ready?")
            time.sleep(_POLL_SECONDS)
            frames.append(editor.look())
        time.sleep(10 * _POLL_SECONDS)
        editor.press("\t")
        time.sleep(_POLL_SECONDS)
        editor.press("\x1b:write\r")
        time.sleep(_POLL_SECONDS)
        return [*frames, editor.look()]


_WIDTH, _LEFT, _TOP, _ROW, _CHARACTER = 640, 20, 30, 20, 8.43
_END_SECONDS: Final = 3.0
_STYLE: Final = (
    "text{font:14px ui-monospace,Menlo,Consolas,monospace;fill:#d6deeb;white-space:pre}"
    ".ghost{fill:#7f8c98;font-style:italic}.below{fill:#8fd694}.cursor{fill:#8fd694}g{visibility:hidden}"
)


def draw(frames: list[Frame]) -> str:
    """Return the frames as an animated SVG of constant size."""
    last = frames[-1].second
    total = last - frames[0].second + _END_SECONDS
    starts = [(frame.second - frames[0].second) / total for frame in frames]
    height = _TOP + _ROW * (max(len(frame.lines) for frame in frames) + 2)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
        "<title>A line of Vox is typed in Vim; the rest of it is shown in grey, and Tab accepts it</title>",
        f'<style>{_STYLE}</style><rect width="100%" height="100%" rx="8" fill="#1b2430"/>',
    ]
    for frame, start, end in zip(frames, starts, [*starts[1:], 1.0], strict=True):
        times = f"0;{start:.4f};{end:.4f}" if start else f"0;{end:.4f}"
        values = "hidden;visible;hidden" if start else "visible;hidden"
        # Viewers without animation show the last frame.
        still = ' style="visibility:visible"' if end == 1 else ""
        parts.append(
            f'<g{still}><animate attributeName="visibility" calcMode="discrete" repeatCount="indefinite" '
            f'dur="{total:.2f}s" keyTimes="{times}" values="{values}"/>{_draw_frame(frame, height)}</g>'
        )
    return "\n".join([*parts, "</svg>\n"])


def _draw_frame(frame: Frame, height: int) -> str:
    lines: list[Any] = []
    for number, line in enumerate(frame.lines):
        text = escape(line)
        if number == frame.row:
            x, y = _LEFT + frame.column * _CHARACTER, _TOP + _ROW * number
            lines.append(f'<rect class="cursor" x="{x:.1f}" y="{y - 14}" width="2" height="18"/>')
            ghost = f'<tspan class="ghost">{escape(frame.ghost)}</tspan>'
            text = escape(line[: frame.column]) + ghost + escape(line[frame.column :])
        if text:
            lines.append(f'<text x="{_LEFT}" y="{_TOP + _ROW * number}" xml:space="preserve">{text}</text>')
    if frame.below:
        lines.append(f'<text class="below" x="{_LEFT}" y="{height - 16}">{escape(frame.below)}</text>')
    return "".join(lines)


@click.command()
@click.argument("plugin", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("svg", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--server", default="http://127.0.0.1:8080", show_default=True, help="Address of `mens serve`.")
def main(plugin: Path, svg: Path, server: str) -> None:
    """Complete a line in Vim with llama.vim in folder PLUGIN, and draw it to the file SVG."""
    mens = shutil.which("mens") or str(Path(".venv/bin/mens").resolve())
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "total.vox"
        frames = complete_line(plugin, server, file)
        checked = subprocess.run([mens, "check", file.name], cwd=folder, capture_output=True, text=True, check=False)
        last = frames[-1]
        said = f"$ mens check {file.name}: {(checked.stdout or checked.stderr).strip().splitlines()[-1]}"
    offered = next(frame for frame in reversed(frames) if frame.ghost)
    complete = next(frame for frame in frames if frame.lines == offered.lines)
    shown = next(frame for frame in frames if frame.lines == offered.lines and frame.ghost)
    click.echo(f"offered {shown.second - complete.second:.1f} s after the last key: {offered.ghost!r}")
    click.echo(f"accepted: {last.lines[last.row]!r}")
    click.echo(said)
    if checked.returncode:
        raise click.ClickException("the accepted text is not a program")
    closing = Frame(last.second + 1.0, last.lines, last.row, last.column, "", said)
    svg.write_text(draw([*frames, closing]), encoding="utf-8")


if __name__ == "__main__":
    main()
