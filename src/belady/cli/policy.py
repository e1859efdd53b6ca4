"""`belady policy list`: the policies on offer, with their stability and origin."""

from __future__ import annotations

import argparse
from typing import Any

from rich.console import Console
from rich.table import Table

from belady.policy.registry import KINDS, Registration, available


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("policy", help="list policies")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="name, stability, origin and summary of each policy")
    listing.add_argument("kind", nargs="?", choices=KINDS, help="only this kind")


def run(args: argparse.Namespace) -> int:
    table = Table("kind", "name", "stability", "origin", "what it does", box=None, pad_edge=False)
    for registration in available(args.kind):
        table.add_row(
            registration.kind,
            registration.name,
            registration.stability,
            registration.origin,
            _summary(registration),
        )
    Console().print(table)
    return 0


def _summary(registration: Registration) -> str:
    """A policy that cannot be imported must not hide the others."""
    try:
        return registration.summary
    except ImportError as error:
        return f"cannot be loaded: {error}"
