"""The Grafana dashboard against the types that Grafana generates from its own schema (grafana-foundation-sdk): keys that these do not know, missing places and
wrong values are complained about."""
import enum
import json
import pathlib
import typing
import unittest

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

BOARD = json.loads((pathlib.Path(__file__).resolve().parents[2] / "tools" / "grafana" / "troupe.json").read_text())


def lost(given, back, path="dashboard"):
    """What did not come back when the types had read it: they do not know it."""
    if isinstance(given, dict) and isinstance(back, dict):
        for key in given:
            yield from lost(given[key], back[key], f"{path}.{key}") if key in back else [f"{path}.{key} is unknown"]
    elif isinstance(given, list) and isinstance(back, list) and len(given) == len(back):
        for i, (one, other) in enumerate(zip(given, back)):
            yield from lost(one, other, f"{path}[{i}]")
    elif given != back:
        yield f"{path}: {given!r} was read as {back!r}"


def wrong(value, kind, path="dashboard"):
    """Where a value is not of the type that the schema gives its place."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if hasattr(value, "from_json"):
        for name, hint in typing.get_type_hints(type(value)).items():
            if hasattr(value, name):
                yield from wrong(getattr(value, name), hint, f"{path}.{name}")
    elif origin is typing.Union:
        problems = [list(wrong(value, each, path)) for each in arguments]
        if all(problems):
            yield from min(problems, key=len)
    elif origin is typing.Literal:
        if value not in arguments:
            yield f"{path}: {value!r} is none of {arguments}"
    elif origin is list and isinstance(value, list):
        for i, each in enumerate(value):
            yield from wrong(each, arguments[0], f"{path}[{i}]")
    elif isinstance(kind, type) and issubclass(kind, enum.Enum):
        if value not in [member.value for member in kind] and value not in list(kind):
            yield f"{path}: {value!r} is none of {[member.value for member in kind]}"
    elif kind is float and isinstance(value, int) and not isinstance(value, bool) or kind in (object, typing.Any):
        return
    elif not isinstance(value, origin or kind) or (isinstance(value, bool) and kind is int):
        yield f"{path}: {value!r} is no {kind}"


def complaints(board):
    read = Dashboard.from_json(board)
    return [*lost(board, json.loads(json.dumps(read, cls=JSONEncoder))), *wrong(read, Dashboard)]


class GrafanaTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        register_default_plugins()

    def test_the_dashboard_is_one_by_grafanas_schema(self):
        self.assertEqual(complaints(BOARD), [])

    def test_what_is_none_is_complained_about(self):
        def spoilt(change):
            board = json.loads(json.dumps(BOARD))
            change(board)
            return "\n".join(complaints(board))

        self.assertIn("refreshes is unknown", spoilt(lambda board: board.update(refreshes="5s")))
        self.assertIn("'wide' is no", spoilt(lambda board: board["panels"][0]["gridPos"].update(w="wide")))
        self.assertIn("'source' is none of", spoilt(lambda board: board["templating"]["list"][0].update(type="source")))
        self.assertIn("'top' is none of", spoilt(lambda board: board["panels"][0]["options"]["legend"].update(placement="top")))
        self.assertIn("'curl' is none of", spoilt(lambda board: board["panels"][0]["fieldConfig"]["defaults"]["custom"].update(drawStyle="curl")))
        self.assertIn("expression is unknown", spoilt(lambda board: board["panels"][0]["targets"][0].update(expression="1")))

    def test_panels_have_places_of_their_own(self):
        taken, numbers = {}, [panel["id"] for panel in BOARD["panels"]]
        self.assertEqual(len(numbers), len(set(numbers)))
        for panel in BOARD["panels"]:
            place = panel["gridPos"]
            self.assertLessEqual(place["x"] + place["w"], 24, panel["title"])
            for x in range(place["x"], place["x"] + place["w"]):
                for y in range(place["y"], place["y"] + place["h"]):
                    self.assertNotIn((x, y), taken, f"{panel['title']} lies on {taken.get((x, y))}")
                    taken[x, y] = panel["title"]


if __name__ == "__main__":
    unittest.main()
