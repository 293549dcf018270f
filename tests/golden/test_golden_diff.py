"""What is printed where a dump differs: the net's own tests."""

from __future__ import annotations

import golden_diff
from golden_diff import Intended, differences, report, split

FIELD = {"value": 16, "at": "train.py:3:9-3:11"}


def case(field: object, paths: tuple[str, ...] = ("train.py",)) -> dict[str, object]:
    return {"studies": {path: {"paths": [path], "fields": {"train.batch_size": field}} for path in paths}}


def test_the_same_is_silent() -> None:
    assert differences({"a": case(FIELD)}, {"a": case(dict(FIELD))}) == []


def test_a_value_is_named_with_its_study_and_both_values() -> None:
    (one,) = differences({"a": case(FIELD)}, {"a": case({**FIELD, "value": 32})})
    assert one.path == "studies / train.py / fields / train.batch_size / value"
    assert (one.old, one.new) == (16, 32)


def test_a_value_of_another_type_differs() -> None:
    assert len(differences({"a": case({**FIELD, "value": 1})}, {"a": case({**FIELD, "value": "1"})})) == 1


def test_true_is_not_one() -> None:
    assert len(differences({"a": case({**FIELD, "value": 1})}, {"a": case({**FIELD, "value": True})})) == 1


def test_a_study_that_is_gone_is_one_difference() -> None:
    (one,) = differences({"a": case(FIELD, ("train.py", "eval.py"))}, {"a": case(FIELD)})
    assert one.path == "studies / eval.py"
    assert one.new == golden_diff.ABSENT


def test_a_field_that_is_new_is_one_difference() -> None:
    old = case(FIELD)
    new = case(FIELD)
    new["studies"]["train.py"]["fields"]["data.workers"] = FIELD  # type: ignore[index]
    (one,) = differences({"a": old}, {"a": new})
    assert one.path == "studies / train.py / fields / data.workers"
    assert one.old == golden_diff.ABSENT


def test_a_case_that_is_gone_is_said() -> None:
    (one,) = differences({"a": case(FIELD), "b": case(FIELD)}, {"a": case(FIELD)})
    assert one.case == "b"


def test_the_same_difference_of_many_cases_is_printed_once() -> None:
    old = {f"case {n}": case(FIELD, (f"train{n}.py",)) for n in range(9)}
    new = {f"case {n}": case({**FIELD, "value": 32}, (f"train{n}.py",)) for n in range(9)}
    text = report("readings", differences(old, new), 20)
    assert "9 of 20 cases differ, in 9 values of 1 kinds" in text
    assert text.count("16 -> 32") == 1
    assert "studies / * / fields / train.batch_size / value" in text


def test_places_that_moved_are_one_kind() -> None:
    old = {f"case {n}": case({**FIELD, "at": f"train.py:{n}:1-{n}:2"}) for n in range(5)}
    new = {f"case {n}": case({**FIELD, "at": f"train.py:{n}:4-{n}:5"}) for n in range(5)}
    assert "in 5 values of 1 kinds" in report("readings", differences(old, new), 5)


def test_a_place_in_another_file_is_a_kind_of_its_own() -> None:
    moved = differences({"a": case(FIELD)}, {"a": case({**FIELD, "at": "train.py:4:9-4:11"})})
    elsewhere = differences({"b": case(FIELD)}, {"b": case({**FIELD, "at": "sweep.yaml:3:9-3:11"})})
    text = report("readings", [*moved, *elsewhere], 2)
    assert "fields / * / at (moved)" in text
    assert "fields / * / at (in another file)" in text


def test_what_is_intended_is_counted_and_left_out() -> None:
    found = differences({"a": case(FIELD)}, {"a": case({**FIELD, "value": 32})})
    meant = Intended("readings", "a", "studies / * / train.batch_size / value", "because")
    assert split("readings", found, [meant]) == ([], {meant: 1})
    assert split("findings", found, [meant])[0] == found


def test_the_list_of_intended_differences_can_be_read() -> None:
    assert all(entry.why for entry in golden_diff.intended())
