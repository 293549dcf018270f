"""A box and one value per axis make a Job; what cannot be known is listed, never guessed."""

from __future__ import annotations

from small_spaces import box

from preflight.space.jobs import JobMaker
from preflight.vocabulary.values import Choices, Const, Op, Ref, Unknown

BATCHES = Choices((8, 16))


def test_dimensions_join_the_configuration_that_they_belong_to() -> None:
    space = box(
        {"n": (Choices((2, 4)), "model.config.n_layer")},
        model__config=Const({"n_layer": 12, "n_embd": 64}),
        model__config__n_head=Const(4),
    )
    maker = JobMaker(space)
    assert maker.at({"n": 2}).job.model.config == {"n_layer": 2, "n_embd": 64, "n_head": 4}
    assert maker.at({"n": 4}).job.model.config == {"n_layer": 4, "n_embd": 64, "n_head": 4}


def test_jobs_of_one_box_do_not_share_what_differs() -> None:
    maker = JobMaker(box({"b": (BATCHES, "train.batch_size")}, train__peft__r=Const(4)))
    first, second = maker.at({"b": 8}).job, maker.at({"b": 16}).job
    assert (first.train.batch_size, second.train.batch_size) == (8, 16)
    assert first.train.peft.r == second.train.peft.r == 4


def test_unknown_values_are_listed_with_their_reason() -> None:
    space = box({"b": (BATCHES, "train.batch_size")}, train__seq_len=Const(Unknown("it is read from a file")))
    made = JobMaker(space).at({"b": 8})
    assert made.unknown == {"train.seq_len": "it is read from a file"}
    assert made.job.train.seq_len is None


def test_an_axis_that_is_left_out_is_unknown() -> None:
    made = JobMaker(box({"b": (BATCHES, "train.batch_size")})).at({})
    assert set(made.unknown) == {"train.batch_size"}


def test_an_impossible_value_of_an_axis_is_unknown() -> None:
    maker = JobMaker(box({"b": (Choices((0, 8)), "train.batch_size")}))
    assert "at least 1" in maker.at({"b": 0}).unknown["train.batch_size"]
    assert maker.at({"b": 8}).unknown == {}


def test_what_is_partly_unknown_keeps_what_is_known() -> None:
    space = box({}, model__config=Const({"n_layer": 2, "n_embd": Unknown("computed")}))
    made = JobMaker(space).at({})
    assert made.job.model.config == {"n_layer": 2}
    assert set(made.unknown) == {"model.config"}


def test_expressions_over_several_axes() -> None:
    batch = Op("//", (Ref("total"), Ref("parts")))
    space = box(
        {
            "total": (Choices((64, 128)), {"train.batch_size": batch}),
            "parts": (Choices((2, 4)), {"train.batch_size": batch, "train.grad_accum": Ref("parts")}),
        }
    )
    job = JobMaker(space).at({"total": 128, "parts": 4}).job
    assert (job.train.batch_size, job.train.grad_accum) == (32, 4)


def test_memory_cannot_tell_two_micro_batches_from_twenty() -> None:
    maker = JobMaker(box({"g": (Choices((1, 2, 20)), "train.grad_accum")}))
    one, two, twenty = (maker.key({"g": value}) for value in (1, 2, 20))
    assert one != two
    assert two == twenty


def test_equal_boxes_share_a_job_and_boxes_of_other_types_do_not() -> None:
    first, second = (JobMaker(box({}, train__batch_size=Const(8), train__seq_len=Const(64))) for _ in range(2))
    assert first.at({}).job is second.at({}).job
    config = [JobMaker(box({}, model__config=Const({"tied": value}))).at({}).job.model.config for value in (True, 1)]
    assert [type(one["tied"]) for one in config if one is not None] == [bool, int]
