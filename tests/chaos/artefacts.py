"""What a soak leaves to be read: beside the logs of our processes, the texts of the database."""

from __future__ import annotations

import shutil

from tests.chaos.town import Town
from tests.invariants.secrets import texts


def gather(town: Town) -> None:
    """Into the artefacts' folder, where no canary may be."""
    for server in (town.postgres, town.valkey):
        shutil.copy(server.log, town.artefacts)
    with (
        town.database() as connection,
        (town.artefacts / "database.txt").open("wb") as file,
    ):
        for where, values in texts(connection):
            for value in values:
                file.write(f"{where}: ".encode() + value + b"\n")
