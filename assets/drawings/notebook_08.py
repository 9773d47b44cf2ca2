"""The figures of notebook 08: looking inside."""

from collections.abc import Sequence

from drawings.kit import BODY, DASHED, INK, KINDS, WHITE, Box, Figure


def memory_patch() -> Figure:
    """Draw how one vector of a memory takes the place of its counterpart in another."""
    figure = Figure(
        "memory_patch",
        368,
        284,
        "One vector of the memory changes places",
        "At the bottom, the memory of 'ein mann geht die treppe hinunter': six vectors, one for each word, all "
        "orange. Above it, the memory of the same sentence with 'hinauf': six vectors, of which five are blue; "
        "in place of the sixth, there is the orange one of 'hinunter', which an arrow brings up. From this row, an "
        "arrow leads up to the decoder, and from there to what it writes: 'a man … down the stairs'.",
    )

    def memory(bottom: float, kinds: Sequence[str], note: str) -> list[Box]:
        cells = []
        left = 24.0
        for word, kind in zip(("ein", "mann", "geht", "die", "treppe", "hinunter"), kinds, strict=True):
            cell = Box(left + 4 * len(word) + 6, bottom, 8 * len(word) + 12, 34)
            cells.append(cell)
            figure.frame(cell, *KINDS[kind], radius=3)
            figure.text(cell.x, cell.middle, word, "middle", code=True, colour=INK)
            left = cell.right
        figure.text(24, bottom + 16, note)
        return cells

    patched = memory(168, [*["feed_forward"] * 5, "attention"], "memory of … hinauf, one swapped")
    other = memory(242, ["attention"] * 6, "memory of … hinunter")
    figure.arrow((other[-1].x, other[-1].top), (other[-1].x, patched[-1].bottom))
    decoder = figure.box("linear", 184, 108, 150, 34, "Decoder")
    figure.arrow((184, patched[0].top), (184, decoder.bottom))
    figure.arrow((184, decoder.top), (184, 52))
    figure.text(184, 36, "a man … down the stairs", "middle", BODY, code=True, colour=INK)
    return figure


def silenced_head() -> Figure:
    """Draw the heads' outputs side by side, one of them zero, on their way through the output projection."""
    figure = Figure(
        "silenced_head",
        368,
        196,
        "A head that is switched off",
        "Four boxes side by side, head 1 to head 4, each d_k numbers wide, together d_model. Head 2's box is dashed "
        "and empty: its numbers are zero. An arrow leads from all four up to out_proj, and from there on.",
    )
    cells = []
    for head in range(1, 5):
        silent = head == 2
        cell = Box(24 + 80 * (head - 0.5), 144, 80, 36)
        cells.append(cell)
        colours = (WHITE, KINDS["heads"][1]) if silent else KINDS["attention"]
        figure.frame(cell, *colours, radius=3, dash=DASHED * silent)
        figure.text(cell.x, cell.middle, "0 0 … 0" if silent else f"head {head}", "middle", code=silent, colour=INK)
        figure.text(cell.x, 160, "d_k", "middle", code=True)
    out = figure.box("linear", 184, 84, 130, 34, "out_proj")
    figure.arrow((184, cells[0].top), (184, out.bottom))
    figure.arrow((184, out.top), (184, 26))
    return figure


FIGURES = (memory_patch, silenced_head)
