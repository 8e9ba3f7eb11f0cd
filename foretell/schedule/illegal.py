"""What a step of a schedule raises when the nest does not allow for it."""

from __future__ import annotations


class IllegalStep(Exception):
    """A step that would change what a nest computes, or that names what is not there.

    Spaces are legal by construction, so that this means a bug, or a schedule that was made for another nest.
    """
