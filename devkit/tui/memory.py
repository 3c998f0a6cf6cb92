"""The screen Memory: processes, shared-memory slabs, GPUs, and `/dev/shm` as a whole."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from devkit.control import messages
from devkit.tui import words
from devkit.tui.lines import Cell, Column, Lines, Table
from devkit.tui.pane import Pane
from devkit.tui.words import Line

PROCESSES = (
    Column("PROCESS", 14, fills=True, most=40),
    Column("PID", 6, right=True),
    Column("RSS", 8, right=True),
    Column("PSS", 8, right=True, keep=6),
    Column("OWN", 8, right=True, keep=5),
    Column("GPU", 8, right=True, keep=4),
    Column("CPU", 5, right=True, keep=7),
    Column("LAST MIN", 10, keep=3),
    Column("THREADS", 7, right=True, keep=2),
    Column("FILES", 5, right=True, keep=1),
)
SLABS = (
    Column("SLAB", 20, fills=True, most=60),
    Column("SIZE", 9, right=True),
    Column("USED", 9, right=True),
    Column("", 12, keep=5),
    Column("HIGH", 9, right=True, keep=4),
    Column("BLOCKS", 6, right=True, keep=3),
    Column("OWNERS", 10, keep=2, most=34),
)


class MemoryPane(Pane):
    """Who has how much of it."""

    NAME = "memory"
    TITLE = "Memory"
    TOPICS = frozenset({"snapshot", "history"})
    ABOUT = "What every process holds, every slab in shared memory, the GPUs and /dev/shm."
    START = "#memory-processes"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("o", "order", "Order", tooltip="By memory, or by model"),
        Binding("enter", "slab", "Owners", key_display="Enter", tooltip="Who has which bytes"),
    ]

    by_memory = False

    def compose(self) -> ComposeResult:
        """The whole, then the parts."""
        yield Lines(id="memory-overview", classes="box")
        yield Table(PROCESSES, id="memory-processes", classes="box")
        slabs = Table(SLABS, id="memory-slabs", classes="box")
        slabs.empty = "none yet: a model's slab is made by its first large tensor"
        yield slabs

    def on_mount(self) -> None:
        """Name the parts."""
        self.query_one("#memory-overview").can_focus = False
        self.query_one("#memory-overview", Lines).entitle("Machine")
        self.query_one("#memory-processes", Table).entitle("Processes")
        self.query_one("#memory-slabs", Table).entitle("Shared memory")

    def draw(self, topic: str = "") -> None:
        """All three."""
        snapshot = self.store.snapshot
        if snapshot is None:
            return
        self.query_one("#memory-overview", Lines).show(self._overview(snapshot))
        self.query_one("#memory-processes", Table).show_rows(self._processes(snapshot))
        slabs = sorted(snapshot.memory.slabs, key=lambda one: (-one.size, one.name))
        self.query_one("#memory-slabs", Table).show_rows([(one.name, _slab(one)) for one in slabs])

    def _overview(self, snapshot: messages.Snapshot) -> list[Line]:
        memory = snapshot.memory
        used = memory.total - memory.free
        ours = sum(one.size for one in memory.slabs)
        width = 24 if self.size.width < 110 else 40
        share = used / memory.total if memory.total else 0.0
        low = bool(memory.warning)
        lines: list[Line] = [[
            ("/dev/shm ", "bold"), (words.meter(share, width), "bad" if low else "accent"),
            (f" {words.size(used)} of {words.size(memory.total)}", ""),
            (f", {words.size(ours)} ours", "dim"),
        ]]  # fmt: skip
        history = self.store.values(None, "shm_ours")
        if any(history):
            lines[0] += [("  ", ""), (words.bars(history, 20), "second")]
        if low:
            lines.append([("! ", "bad"), (memory.warning, "bad")])
        for gpu in snapshot.gpus:
            share = gpu.used / gpu.total if gpu.total > 0 else 0.0
            busy = f", busy {gpu.busy_percent} %" if gpu.busy_percent >= 0 else ""
            lines.append([
                (f"GPU {gpu.index:<4} ", "bold"), (words.meter(share, width), "accent"),
                (f" {words.size(gpu.used)} of {words.size(gpu.total)}{busy}  ", ""),
                (gpu.name, "dim"),
            ])  # fmt: skip
        return lines

    def _processes(self, snapshot: messages.Snapshot) -> list[tuple[int, list[Cell]]]:
        store = self.store
        rows: list[tuple[int, list[Cell]]] = []
        if snapshot.process is not None:
            cpu = store.values(None, "cpu")
            rows.append((snapshot.process.pid, _process([("runtime", "bold")], snapshot.process,
                                                        cpu)))  # fmt: skip
        found = [
            (model, one, one.process)
            for model in snapshot.models for one in model.instances if one.process is not None
        ]  # fmt: skip
        if self.by_memory:
            found.sort(key=lambda each: -each[2].rss)
        for model, one, process in found:
            mark, tone = words.state_mark(one.state)
            cpu = store.values(model, "cpu", one.name)
            rows.append((process.pid, _process([(f"{mark} ", tone), (one.name, "")], process, cpu)))
        return rows

    def action_order(self) -> None:
        """By memory, or by model."""
        self.by_memory = not self.by_memory
        self.query_one("#memory-processes", Table).entitle(
            subtitle="by memory" if self.by_memory else ""
        )
        self.draw()

    def on_lines_chosen(self, event: Lines.Chosen) -> None:
        """Enter on a slab."""
        if event.lines.id == "memory-slabs":
            self.action_slab()

    def action_slab(self) -> None:
        """Who has which bytes of it."""
        snapshot = self.store.snapshot
        key = self.query_one("#memory-slabs", Table).key
        slab = next((one for one in snapshot.memory.slabs if one.name == key), None) if (
            snapshot
        ) else None  # fmt: skip
        if slab is None:
            return
        owners = sorted(slab.owners, key=lambda one: -one.bytes)
        lines: list[Line] = [
            [(f"{words.size(one.bytes):>10}  ", "second"), (one.name, "")] for one in owners
        ]
        self.bench.read(slab.name, lines or [[("nothing is in use", "dim")]])


def _process(name: Line, use: messages.Process, cpu: words.Numbers) -> list[Cell]:
    last = cpu[-1] if cpu else None
    return [
        name, str(use.pid), words.size(use.rss), words.size(use.pss), words.size(use.uss),
        words.size(use.gpu), "-" if last is None else f"{last:.0f} %",
        (words.bars(cpu, 10, 100.0), "second"), str(use.threads),
        str(use.open_files) if use.open_files >= 0 else "-",
    ]  # fmt: skip


def _slab(one: messages.Slab) -> list[Cell]:
    share = one.used / one.size if one.size > 0 and one.used >= 0 else 0.0
    largest = sorted(one.owners, key=lambda owner: -owner.bytes)[:2]
    owners = ", ".join(f"{owner.name} {words.size(owner.bytes)}" for owner in largest)
    return [
        one.name, words.size(one.size), words.size(one.used), (words.meter(share, 12), "accent"),
        words.size(one.high_water), str(one.blocks) if one.blocks >= 0 else "-", (owners, "dim"),
    ]  # fmt: skip
