"""The figures of notebook 00: the whole model."""

from drawings.kit import INK, Figure
from drawings.two_stacks import LEFT_X, RIGHT_X, lead_memory, noted_box, stack_of_layers, two_rows_of_words

GERMAN = ("der", "mann", "hebt", "den", "ball", "auf", ".")
ENGLISH = ("<sos>", "the", "man", "is", "raising", "the")
NEXT_WORD = ("ball 97 %,", "balloons 0.2 %, …")  # what the shipped model says here


def whole_model() -> Figure:
    """Draw the whole model for somebody who has not seen it before."""
    figure = Figure(
        "whole_model",
        368,
        614,
        "The whole model in one picture",
        "Left, from bottom to top: the German sentence 'der mann hebt den ball auf .' enters the embedding, which "
        "turns each word and its place into a vector; then the encoder, N layers of self-attention, in which each word "
        "looks at every word, and feed-forward, which works on each word by itself. The result is the memory: one "
        "vector per German word, in its context. Right: the English so far, '<sos> the man is raising the', "
        "enters an embedding and the decoder, N layers of self-attention, in which each word looks at itself and the "
        "words before it, cross-attention, in which it looks at the memory, and feed-forward. Linear and softmax give "
        f"each English word a probability of being next: {' '.join(NEXT_WORD)}. The word that is chosen joins "
        "the English so far, and the next round begins.",
    )
    bottom = figure.height - 44
    rows = {}
    stacks = {}
    for x, words, note, title, sublayers in (
        (
            LEFT_X,
            GERMAN,
            "German sentence",
            "Encoder",
            (
                ("attention", "Self-attention", "each word looks", "at every word"),
                ("feed_forward", "Feed-forward", "each word by itself"),
            ),
        ),
        (
            RIGHT_X,
            ENGLISH,
            "English so far",
            "Decoder",
            (
                ("attention", "Self-attention", "looks at itself and", "the words before"),
                ("attention", "Cross-attention", "each word looks", "at the memory"),
                ("feed_forward", "Feed-forward", "each word by itself"),
            ),
        ),
    ):
        rows[x] = two_rows_of_words(figure, x, bottom, words)
        figure.text(x, bottom + 18, note, "middle", bold=True, colour=INK)
        embedding = noted_box(
            figure, "embedding", x, rows[x].top - 20, "Embedding", "a vector for each", "word and its place"
        )
        figure.up(rows[x], embedding)
        stacks[x] = stack_of_layers(figure, embedding, title, sublayers)
    read = stacks[LEFT_X][-1]
    boxes = stacks[RIGHT_X]
    memory = noted_box(figure, "data", LEFT_X, read.top - 62, "Memory", "a vector per word,", "in its context")
    figure.up(read, memory)
    lead_memory(figure, memory, boxes[1])
    output = noted_box(
        figure, "linear", RIGHT_X, boxes[-1].top - 46, "Linear, softmax", "a probability for", "every word"
    )
    figure.up(boxes[-1], output)
    chosen = noted_box(figure, "data", RIGHT_X, output.top - 22, "Next word", *NEXT_WORD)
    figure.up(output, chosen)
    side = 360
    row = rows[RIGHT_X]
    figure.arrow(
        (chosen.right, chosen.middle), (side, chosen.middle), (side, row.middle + 17), (row.right, row.middle + 17)
    )
    return figure


FIGURES = (whole_model,)
