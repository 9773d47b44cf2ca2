"""A step of byte-pair encoding, as notebook 12 writes it."""


def join_pair(pieces, pair):
    joined = []
    for piece in pieces:
        if joined and (joined[-1], piece) == pair:
            joined[-1] += piece
        else:
            joined.append(piece)
    return joined
