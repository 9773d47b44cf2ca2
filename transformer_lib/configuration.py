"""What the configurations of both models share: checking their numbers, and going through JSON."""

from dataclasses import MISSING, asdict, fields
from typing import Any

_KINDS = {int: int, float: int | float, bool: bool, str: str}
_WORDS = {int: "a whole number", float: "a number", bool: "True or False", str: "a name"}


class Configuration:
    """The base of ``TransformerConfig`` and ``LanguageModelConfig``, which are frozen dataclasses."""

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Configuration":
        """Rebuild a configuration that ``to_dict`` wrote.

        Raises:
            ValueError: a field is unknown or missing.
        """
        known = {field.name: field.default is MISSING for field in fields(cls)}
        if unknown := sorted(set(values) - set(known)):
            raise ValueError(f"unknown configuration fields {unknown}: was this written by a newer version?")
        if missing := sorted(name for name, required in known.items() if required and name not in values):
            raise ValueError(f"missing configuration fields {missing}")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as a dictionary of plain values."""
        return asdict(self)

    def _layer_parameters(self, attentions: int) -> int:
        """Count the weights of a layer with so many attentions, and with a norm for each and for the feed-forward."""
        attention = 4 * (self.d_model**2 + self.d_model)
        feed_forward = 2 * self.d_model * self.d_ff + self.d_ff + self.d_model
        return attentions * attention + feed_forward + (attentions + 1) * 2 * self.d_model

    def _check_sizes(self, *names: str) -> None:
        """Raise a ValueError unless all fields are of their kind, these positive, and heads and dropout possible."""
        for name in names:
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is {value!r}, expected a positive whole number")
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) != (field.type is bool) or not isinstance(value, _KINDS[field.type]):
                raise ValueError(f"{field.name} is {value!r}, expected {_WORDS[field.type]}")
        if self.d_model % self.num_heads:
            raise ValueError(
                f"d_model={self.d_model} is not divisible by num_heads={self.num_heads}: "
                "every head gets d_model / num_heads dimensions"
            )
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout!r}, expected a probability from 0 up to, but not including, 1")
