"""From a token to a saved state and back, also to another number of shards. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any, NamedTuple, cast

import numpy as np

from penstock._contracts.source import StatefulStream
from penstock._engine.chunk import Completed, CompletedRun, Entry, FoldState, KnownLoss, LossCounts, Reached, StreamState, Token
from penstock._engine.error_policy import MOST_REPLACEMENTS
from penstock._engine.folding import DROP_END, OPEN, PASS_END
from penstock._engine.lowering import lower
from penstock._engine.program import Program
from penstock._engine.scheduler import NOTHING_READY, Ready
from penstock._order.arithmetic import INFINITE, shard_resume
from penstock._order.chain import HoldingFold
from penstock._order.folds import BatchFold, Fold, RepeatFold
from penstock._order.holding import damaged
from penstock._order.runs import Runs
from penstock._plan.base import Descent, Node, chain_of, counted_node, sources
from penstock._plan.facts import MOST, components, is_indexable, length_of, lines
from penstock._plan.node import Pick, Repeat, Shard, Skip, shards_of
from penstock._plan.saved import (
    FORMAT,
    GlobalPosition,
    above_shard,
    batched_as,
    checked,
    compare,
    global_position,
    histories,
    plan_before,
    resharded,
    reweighted,
    sealed,
    shard_of,
    short,
)
from penstock.errors import StateMismatch, StateUnavailable


def count(value: Any, name: str, most: float = INFINITE) -> int:
    most = min(most, MOST)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise damaged(f"{name} is {short(value)}, outside 0..{most}")
    return value


def loss_counts_of(record: list[Any]) -> LossCounts:
    """Return what was skipped and replaced before the save."""
    return tuple(
        Entry(action, site, total, pass_number, in_pass, frozenset((index, lane) for index, lane in chain(*keys)))
        for action, site, total, pass_number, in_pass, *keys in record
    )


def listed_loss_counts(loss_counts: LossCounts) -> list[Any]:
    """Return the JSON form of what was skipped and replaced."""
    return [[*entry[:5], *([sorted(map(list, entry.keys))] if entry.keys else [])] for entry in loss_counts]


def known_of(record: list[Any]) -> tuple[KnownLoss, ...]:
    """Return what was skipped or replaced among the elements that will be read again."""
    return tuple(KnownLoss(pass_number, number, how, site, tuple(inner), *row) for pass_number, number, how, site, inner, *row in record)


def lost_before(token: Token) -> tuple[int, int]:
    """Return how many elements were skipped and replaced up to a token; those that will be read again are recognised by it."""
    again = [known.how for record in token.fold_runners for known in record.known]
    num = {"skipped": sum(how <= 0 for how in again), "replaced": sum(how > 0 for how in again)}
    for entry in token.loss_counts:
        num[entry.action] += entry.total
    return num["skipped"], num["replaced"]


def listed(record: FoldState) -> list[Any]:
    """Return the JSON form of what a fold runner saves; the last two parts only where something is read again."""
    out = [record.skip, record.mode, list(record.states), record.recall, record.drop]
    if record.replay == (0, 0):
        return out
    return [*out, [[*known[:4], list(known.inner), known.row] for known in record.known], list(record.replay)]


class Delivery(NamedTuple):
    """What the feed has in hand. `items` shrinks as they are delivered; the rest stays, so any thread can read a consistent state.

    Places are looked up when the state is asked for, not when items are handed over.
    """

    items: list[Any]
    ready: Ready
    total: int
    step: int
    before: tuple[Sequence[Token], int]
    """The places of earlier items, and how many of these were delivered: at least one."""
    part: PlanPart
    epoch: int
    first_step: int
    """How many items had been delivered when the epoch began."""

    @classmethod
    def begin(cls, step: int, at: ResumeStep, epoch: int = 0, first_step: int = 0) -> Delivery:
        """Return an empty hand at a place."""
        return cls([], NOTHING_READY, 0, step, ((at.token,), 1), at.part, epoch, first_step)

    def then(self, ready: Ready) -> Delivery:
        """Return what follows when all that was in hand is delivered."""
        total = self.total
        before = (self.ready.tokens, total) if total else self.before
        return Delivery(ready.items, ready, len(ready.items), self.step + total, before, self.part, self.epoch, self.first_step)

    def is_over(self, length: float) -> bool:
        """Tell whether all items of an epoch of `length` are delivered."""
        return self.now()[0] - self.first_step >= max(1, length)

    def now(self) -> tuple[int, Token]:
        """Return (step, token) behind the last delivered item. One look at the items: another thread may take the next meanwhile."""
        taken = self.total - len(self.items)
        places, count = (self.ready.tokens, taken) if taken else self.before
        return self.step + taken, places[count - 1]


class Restored(NamedTuple):
    """Where a state goes on.

    Attributes:
        parts: the programs to run, one after the other, up to the end of the epoch.
        step: how many elements were delivered in all.
        epoch: the number of the epoch.
        first_step: how many elements had been delivered when it began.
    """

    parts: list[ResumeStep]
    step: int
    epoch: int
    first_step: int


def saved(
    root: Node, part: PlanPart, token: Token, step: int, dataset: list[dict[str, Any]], version: str, epoch: tuple[int, int] = (0, 0)
) -> dict[str, Any]:
    """Return the state that resumes right behind `token` of `part` of the plan `root`.

    `epoch` is the number of the epoch, and how many elements of it were delivered.

    Raises:
        StateUnavailable: when the source is a generator that may not be read again.
    """
    note = _note_of(root, token)
    shard = movable_shard(root, token)
    shards = shards_of(root)
    record: dict[str, Any] = {
        "penstock_state": FORMAT,
        "version": version,
        "plan": lines(root, saved=True),
        "dataset": dataset,
        "shard": [[node.num_shards, node.index] for node in shards],
        "step": step,
        "epoch": list(epoch),
        "position": None,
        "global": None,
    }
    if token.loss_counts:
        record["lost"] = listed_loss_counts(token.loss_counts)
    mixes = histories(part.root)[: len(histories(root))]  # a moved plan may hold them twice
    if mixes:
        record["mix"] = mixes
    if shard is not None:
        place = global_position(part.root, token.source[1])
        record["global"] = {"epoch": place.epoch, "element": place.element}
    else:
        record["position"] = {
            "source": list(token.source),
            "done": [list(run) for run in token.done.runs],
            "again": [list(run) for run in token.done.taken],
            "folds": [listed(one) for one in token.fold_runners],
        }
        if token.read is not None:
            record["position"]["read"] = list(token.read)
        if part.behind is not None:
            record["position"]["behind"] = [part.behind[0], [list(run) for run in part.behind[1]]]
        if note is not None:
            record["position"]["stream"] = {"pass": note.pass_number, "position": note.position, "cut": note.cut, "state": note.state}
    return sealed(record)


def is_end_of_all(root: Node, part: PlanPart, token: Token) -> bool:
    """Tell whether the last element of an epoch is that of all shards, where a state moves between them: some may have one more."""
    shard = movable_shard(root, token)
    if shard is None or shard.even is not None:
        return True
    place, repeat, total = global_position(part.root, token.source[1]), repeated(root), length_of(shard.child)
    if repeat is not None:
        return place.epoch >= (repeat.num_passes or 1)
    return place.element >= (total or 0)


def _note_of(root: Node, token: Token) -> StreamState | None:
    """Return what a stream said of its place, when a resume is to go there.

    Raises:
        StateUnavailable: when a stream cannot be brought back to its place.
    """
    note = token.note
    for node in sources(root):
        if not node.streams or node.source.can_fast_forward():
            continue
        if not isinstance(node.source, StatefulStream):
            raise StateUnavailable(
                "a generator cannot say where it is, so this feed has no state to save",
                where=node.source.label(),
                fix="use from_source with __getitem__, from_stream with an object that has state_dict() and load_state_dict(), "
                "or fast_forward=True to read and drop what was delivered",
            )
        if note is not None and note.missing is not None:
            raise StateUnavailable(note.missing.what, where=note.missing.where, fix=note.missing.fix)
    return None if note is None or note.missing is not None else note


def restored(root: Node, state: Any, dataset: list[dict[str, Any]], *, strict: bool, other_batch: bool = False) -> Restored:
    """Return where a saved state goes on; with `other_batch`, it may be one of another batch size.

    Raises:
        StateDamaged: when the state is cut, changed or out of bounds.
        StateMismatch: when it belongs to another plan, dataset or number of shards that cannot be mapped.
    """
    record = checked(state)
    epoch, in_epoch = record.get("epoch", (0, record["step"]))
    count(epoch, "epoch")
    was = batched_as(root, record["plan"]) if other_batch else root
    if strict:
        _compare(was, record, dataset)
    record = _with_batches_of(root, was, _converted(was, record, epoch), epoch)
    moved = record["global"] is not None or was is not root  # other shards or batches make other steps
    root = _with_weights(root, record, epoch, strict=strict)
    loss_counts = loss_counts_of(record.get("lost", []))
    if record["global"] is not None and movable_shard(root) is not None:
        place = global_place(root, record["global"])
        parts = [_in_epoch(part, epoch) for part in parts_at(root, place)]
    else:
        _compare_shards(root, record["shard"], strict=strict)
        if record["position"] is None:
            raise StateMismatch(
                f"the state counts the elements before a shard that can move, {short(record['global'])}, and this plan has none",
                where="load_state_dict()",
                fix="resume with the pipeline that was saved",
            )
        parts = _parts(root, record["position"], epoch)
    if moved and length_of(root) not in (None, INFINITE):
        left = sum(int(length_of(part.part.root) or 0) - part.token.source[1] for part in parts)
        in_epoch = int(length_of(root) or 0) - left if is_indexable(root) else 0
    parts[0] = parts[0]._replace(token=parts[0].token._replace(loss_counts=loss_counts))
    return Restored(parts, record["step"], epoch, record["step"] - in_epoch)


def _compare(root: Node, record: dict[str, Any], dataset: list[dict[str, Any]]) -> None:
    """Compare a state with the plan, without the components that were added to a mix, and with its data."""
    before, changes = plan_before(root, record.get("mix"))
    fingerprints = dict(zip(map(id, sources(root)), dataset, strict=False))
    kept = [fingerprints[id(node)] for node in sources(before) if id(node) in fingerprints]
    of_size = lines(batched_as(root, record["plan"]), saved=True) == record["plan"]
    compare(record, lines(before, saved=True), kept, components(before), changes, of_size=of_size)


def _in_epoch(part: ResumeStep, epoch: int) -> ResumeStep:
    """Move a place of epoch 0 to another epoch."""
    number, position = part.token.source
    return part._replace(token=part.token._replace(source=(number + lower(part.part.root).passes_per_epoch * epoch, position)))


def _with_weights(root: Node, record: dict[str, Any], epoch: int, *, strict: bool) -> Node:
    """Return the plan with the history of its mixes; the bounds of the position are checked later, against this plan."""
    shard = movable_shard(root)
    place, everywhere, number, below = record["position"], record["global"], None, None
    if shard is not None and everywhere is not None:
        number = everywhere["element"] if everywhere["epoch"] == 0 and not repeated(root) else None
        below = shard.child
    elif place is not None and place["source"][0] == epoch and ("read" in place or not place["done"]):
        number, below = _elements_at(root, place)
    return reweighted(root, record.get("mix"), number, below, strict=strict)


def _elements_at(root: Node, place: dict[str, Any]) -> tuple[int | None, Node | None]:
    """Return how many elements of a node a position has delivered, None for not known, and the node, None for the root."""
    if not is_indexable(root):
        return _elements_read(root, place), counted_node(root)
    if "behind" not in place:
        return place["source"][1], None
    delivered = _before_batch(root, place)
    known = delivered is not None and not delivered[0] and not repeated(root)
    return (delivered[1] if delivered and known else None), _batch_and_above(root)[0].children[0]


def _elements_read(root: Node, place: dict[str, Any]) -> int | None:
    """Return how many elements folds have taken of the node below them; None where ranks may differ, or other passes have them too."""
    chain, bottom, records = chain_of(root), above_shard(root)[1], place["folds"]
    above = chain[chain.index(counted_node(root)) + 1 :]
    differs = any(isinstance(node, Shard) and (node is not bottom or node.even is None) for node in chain)  # from rank to rank
    if differs or any(node.num_passes != 1 for node in above):
        return None
    holds, ended = any(any((one[0], *one[3:5])) for one in records), any(one[1] for one in records)
    number, read = place.get("read", [-1, 0] if holds else place["source"])
    return None if ended or number != place["source"][0] else read


def _with_batches_of(root: Node, was: Node, record: dict[str, Any], epoch: int) -> dict[str, Any]:
    """Return a state of the plan `was` as one of `root`, which differs in the batch size alone.

    Raises:
        StateMismatch: it was saved in completion order.
    """
    place = record["position"]
    if was is root or place is None:  # otherwise it counts elements
        return record
    if not is_indexable(root):
        return {**record, "position": {**place, "folds": _of_other_batches(was, place["folds"])}}
    delivered = _before_batch(was, place)
    if delivered is None or movable_shard(root) is not None:
        raise StateMismatch(
            "a state of ordered=False names whole batches, and this plan has others",
            where="load_state_dict(may_differ=('batch',))",
            fix="resume with the batch size that was saved, up to the end of the epoch",
        )
    (batch, above), (number, count) = _batch_and_above(root), delivered
    most = next((node.num_passes for node in above if node.moves_as == "repeat"), 1)
    if most is not None and number >= most:
        return {**record, "position": _plain(epoch, int(length_of(root) or 0))}
    return {**record, "position": _in_pass(batch, epoch, number, [[0, count]] if count else [])}


def _before_batch(plan: Node, place: dict[str, Any]) -> tuple[int, int] | None:
    """Return the pass that a position falls in, and how many of its elements were delivered: the first ones; None for others than these."""
    lowest, above = _batch_and_above(plan)
    here, runs = Descent(place["source"][1]), [[0, 0]]
    if "behind" in place:
        here, runs = here._replace(epoch=place["behind"][0]), place["behind"][1]
    else:
        for node in reversed(above):
            here = (node.descend(here) or (node, here))[1]
    if place["done"] or len(runs) != 1 or runs[0][0]:
        return None
    left = lowest.with_children([Skip(child=lowest.children[0], count=runs[0][1])])
    if here.position >= (length_of(left) or 0):
        return here.epoch + 1, 0
    return here.epoch, runs[0][1] + here.position * (lowest.batch_size_each() or 1)


def _of_other_batches(was: Node, records: list[list[Any]]) -> list[list[Any]]:
    """Have the batch behind a fold that holds elements leave out as many as stood in the batches since the checkpoint."""
    chains = [segment.folds for segment in lower(was).segments if not segment.transparent]
    *_, (number, place, size) = [
        (number, place, fold.batch_size)
        for number, chain in enumerate(chains)
        for place, fold in enumerate(chain)
        if isinstance(fold, BatchFold)
    ]
    if number >= len(records) or not records[number][4]:
        return records
    skip, mode, states, recall, drop, *more = records[number]
    states = [*states[:place], (states[place] or 0) + drop * size, *states[place + 1 :]]
    return [*records[:number], [skip, mode, states, recall, 0, *more], *records[number + 1 :]]


def _compare_shards(root: Node, saved: list[Any], *, strict: bool) -> None:
    """Compare the shards of a plan with those of a state that is that of one shard; those by rank also where nothing else is compared."""
    nodes, bottom = shards_of(root), above_shard(root)[1]
    # Not those of the one by rank whose rounds a fold runner counts, if it can move.
    moves = any(node is bottom and node.even is not None and not is_indexable(node.child) for node in nodes)
    now, by_rank = [[node.num_shards, node.index] for node in nodes], any(node.even is not None for node in nodes)
    if (moves and saved[:-1] == now[:-1]) or saved == now or not (strict or by_rank):
        return
    words, form = "with {} and this plan has {}; a state moves to another number of shards", "shard({}, {})"
    fix = "resume with the same shards, or put shard() after shuffle and filter"
    if by_rank:
        words, form = "by {} and this process is {}; a state moves to another rank", "rank {1} of {0}"
        fix = "load on each rank the state that it saved itself; with shard_by_rank() last, states are for any number of ranks"
    words = words.format(*(", ".join(form.format(*one) for one in each) or "no shard" for each in (saved, now)))
    raise StateMismatch(
        f"the state was saved {words} only when nothing but map, batch, repeat and prefetch stands after the shard",
        where="load_state_dict()",
        fix=f"{fix}; states of ordered=False never move",
    )


def _parts(root: Node, place: dict[str, Any], epoch: int) -> list[ResumeStep]:
    """Return what is left behind a position: more than one part where elements of a pass were delivered that are no whole batches."""
    if "behind" not in place:
        return [ResumeStep(PlanPart(root), _token(root, place, epoch))]
    pass_number, runs = place["behind"]
    behind = pass_number, tuple((begin, end) for begin, end in runs)
    rest, position = _parts_behind(root, behind, epoch)
    first = ResumeStep(PlanPart(rest, behind), _token(rest, place, epoch))
    if position is None:
        return [first]
    return [first, _in_epoch(ResumeStep(PlanPart(root), Token((0, position))), epoch)]


def _token(root: Node, place: dict[str, Any], epoch: int) -> Token:
    """Check a position against the plan's program."""
    program = lower(root)
    chains = [segment.folds for segment in program.segments if not segment.transparent]
    counted = counted_node(root)
    length = length_of(counted)
    length = INFINITE if length is None else length
    # A pass behind the last one would be waited for in vain.
    before = program.passes_per_epoch * epoch
    source = (before + count(place["source"][0] - before, "pass", program.num_passes - 1), count(place["source"][1], "position", length))
    saved_records = place["folds"]
    if len(saved_records) != len(chains) and (saved_records or source != (before, 0)):
        raise damaged(f"fold state is {short(saved_records)}, not one record for each of {len(chains)} places where elements are counted")
    most_how = MOST_REPLACEMENTS if program.segments[0].leaf is not None else 0
    records = tuple(_record(one, chain, most_how) for one, chain in zip(saved_records, chains, strict=False))
    for record, folds in zip(records, chains, strict=False):
        if record.drop and "older" not in place and not any(hasattr(fold, "held") for fold in folds):
            count(record.drop, "number of results that a fold without elements was behind", 0)
    count(source[0] - before, "pass", _most_passes_ended(program, records))
    done = _done(place["done"], place["again"], source, length)
    # It was saved of a run in another order: other ranks may differ until the end of the epoch, and folds know nothing of its gaps.
    if movable_shard(root) is not None or place.get("older"):
        done = done._replace(at=Reached(CompletedRun(*source), 0))
    if "read" in place:
        done = done._replace(until=tuple(place["read"]))
    return Token(source, records, done, _note(program, source, place.get("stream")))


def _most_passes_ended(program: Program, records: tuple[FoldState, ...]) -> float:
    """Return how many passes of the source have ended at most, by the states of the repeats: a later pass would not be theirs.

    It may be fewer: a full `take` cuts the passes of the repeats below it.
    """
    chains = [segment.folds for segment in program.segments if not segment.transparent]
    ended, passes = 0.0, 1.0  # passes of the source in one pass of what is below
    for folds, record in zip(chains, records, strict=False):
        if record.mode != OPEN:  # the rest of this pass is left out: the states are those of the next one
            ended -= passes
        for fold, state in zip(folds, record.states, strict=True):
            if isinstance(fold, RepeatFold):
                ended += state * passes if state else 0
                passes *= INFINITE if fold.count is None else fold.count
        if record.mode == PASS_END:
            ended += passes
        if ended == INFINITE or (passes == INFINITE and record.mode != OPEN):
            return INFINITE
    return ended if records else program.num_passes


def _done(done: list[Any], again: list[Any], source: tuple[int, int], length: float) -> Completed:
    """Check what was delivered beyond a position: inside the pass, ascending, with gaps between; and what is to be taken first."""
    runs = tuple((count(begin, "run", length), count(end, "run", length)) for begin, end in done)
    places = [source[1] - 1, *(place for run in runs for place in run)]
    if any(after <= before for before, after in pairwise(places)):
        count(places, "list of runs")
    first = tuple((number, count(begin, "run", length), count(end, "run", length)) for number, begin, end in again)
    if not first:
        return Completed(runs)
    taken = Runs([(0, source[1]), *runs])
    for place, (number, begin, end) in enumerate(first):
        if number > source[0] and (place == 0 or first[place - 1][0] < number):
            taken = Runs()
        if number < source[0] or end <= begin or taken.gap(begin, end) != (begin, end) or (place and number < first[place - 1][0]):
            count(list(first[place]), "run of what comes first")
        taken.add(begin, end)
    return Completed(runs, first)


def _record(saved_record: list[Any], folds: tuple[Fold, ...], most_how: int) -> FoldState:
    """Check what a fold runner saved against its folds; an input may be replaced by the one up to `most_how` places further on."""
    skip, mode, states, recall, drop, known, replay = saved_record if len(saved_record) == 7 else [*saved_record, [], [0, 0]]
    if len(states) != len(folds):
        raise damaged(f"fold state is {short(states)}, not {len(folds)} states")
    for one in known:
        count(one[2], "replaced element", most_how)
    for value, fold in zip(states, folds, strict=True):
        if hasattr(fold, "held"):
            _check_held(value, cast(HoldingFold, fold), recall)
        elif not isinstance(fold, BatchFold) or type(value) is not int:
            _check_like(value, fold.initial())
        if isinstance(fold, RepeatFold) and fold.count is not None:
            count(value, "pass of a repeat", fold.count - 1)
    return FoldState(skip, mode, tuple(states), recall, drop, known_of(known), tuple(replay))


def _check_held(value: Any, fold: HoldingFold, recall: int) -> None:
    """Check the numbers of held elements: each is one of the `recall` that a resume reads again."""
    try:
        numbers = fold.numbers(value)
    except (TypeError, ValueError, KeyError) as error:
        raise damaged(f"fold state is {short(value)} ({error})") from None
    if any(number >= recall for number in numbers):
        raise damaged(f"fold state is {short(value)}, which holds more than the {recall} elements that are read again")


def _check_like(value: Any, initial: Any) -> None:
    """Check counts that lie as the initial ones do."""
    if isinstance(initial, int):
        count(value, "fold state")
    elif type(value) is not type(initial) or len(value) != len(initial) or (isinstance(initial, dict) and value.keys() != initial.keys()):
        raise damaged(f"fold state is {short(value)}, not as {short(initial)}")
    else:
        for place in initial if isinstance(initial, dict) else range(len(initial)):
            _check_like(value[place], initial[place])


def _note(program: Program, source: tuple[int, int], record: dict[str, Any] | None) -> StreamState | None:
    """Check what a stream said of its place: not behind the place of delivery, and for a stream that can go there."""
    stream = program.segments[0].stream
    if record is None:
        return None
    place = (count(record["pass"], "stream's pass", source[0]), record["position"])
    if place > source:
        count(place[1], "stream's position", source[1])
    if stream is None or not (isinstance(stream, StatefulStream) or stream.can_fast_forward()):
        raise StateMismatch(
            "the state holds the place of a stream with states, and this source has none",
            where="load_state_dict()",
            fix="resume with an object that has state_dict() and load_state_dict(), or with fast_forward=True",
        )
    return StreamState(*place, record["state"], record["cut"])


class PlanPart(NamedTuple):
    """What is lowered: a plan, or what is left of one.

    Attributes:
        root: of the plan.
        behind: (pass, runs) of elements before its lowest batch that were delivered and are no whole batches; None for none.
    """

    root: Node
    behind: tuple[int, tuple[tuple[int, int], ...]] | None = None


class ResumeStep(NamedTuple):
    """A part to run from a token on."""

    part: PlanPart
    token: Token


def movable_shard(root: Node, token: Token | None = None) -> Shard | None:
    """Return the shard that a state can move from; None where `token` names what went on as it was finished: other ranks differ there."""
    return shard_of(root) if is_indexable(root) and (token is None or token.done == Completed()) else None


def global_place(root: Node, record: dict[str, int]) -> GlobalPosition:
    shard = shard_of(root)
    assert shard is not None
    total = length_of(shard.child)
    repeat = repeated(root)
    most_epochs: float = 1 if repeat is None else (INFINITE if repeat.num_passes is None else repeat.num_passes)
    epoch = count(record["epoch"], "epoch", most_epochs)
    element = count(record["element"], "element", INFINITE if total is None else total)
    return GlobalPosition(epoch, 0 if epoch == most_epochs else element)


def repeated(root: Node) -> Node | None:
    """Return the repeat above the shard."""
    return next((node for node in above_shard(root)[0] if node.moves_as == "repeat"), None)


def parts_at(root: Node, place: GlobalPosition) -> list[ResumeStep]:
    position = _aligned(root, place)
    if position is not None:
        return [ResumeStep(PlanPart(root), Token((0, position)))]
    return [ResumeStep(PlanPart(part), Token((0, 0))) for part in resharded(root, place)]


def _aligned(root: Node, place: GlobalPosition) -> int | None:
    """Return the root position of a place that falls on a batch border of this shard, or None."""
    shard = shard_of(root)
    assert shard is not None
    total = length_of(shard.child)
    epoch, offset = place.epoch, shard_resume(place.element, shard.num_shards, shard.index)
    if total not in (None, INFINITE) and place.element >= int(total or 0):
        epoch, offset = epoch + 1, 0
    elif offset * shard.num_shards != place.element:
        return None  # the shards stand between two of their positions: only a moved plan can say that again
    here = Descent(offset, epoch)
    for node in reversed(above_shard(root)[0]):
        above = node.ascend(here)
        if above is None:
            return None
        here = above
    return int(length_of(root) or 0) if epoch and not here.repeated else here.position


# -- states of formats 1 and 2, for one release ---------------------------------------------------------------------------------------

Behind = tuple[int, tuple[tuple[int, int], ...]]


def _converted(root: Node, record: dict[str, Any], epoch: int) -> dict[str, Any]:
    """Return a record as this version writes it.

    Raises:
        StateMismatch: it names a place that this version does not have.
    """
    place = record["position"]
    if record["penstock_state"] >= FORMAT or place is None:
        return record
    lowest = _lowest_batch(root)
    if place.get("folded") and lowest is not None:
        position = _before_batches(root, place, epoch)
    else:
        position = _with_folds_in_their_places(root, place)
    return {**record, "position": position}


def _lowest_batch(root: Node) -> Node | None:
    """Return the first node from the source up that groups elements, where nothing streams before it."""
    for node in chain_of(root):
        if node.streams:
            return None
        if node.groups_elements:
            return node
    return None


def _with_folds_in_their_places(root: Node, place: dict[str, Any]) -> dict[str, Any]:
    """Give each fold its state where folds stood before maps, and stand behind them now: those count as many elements."""
    runs, partial = place["done"]
    chains = [segment.folds for segment in lower(root).segments if not segment.transparent]
    old = [(one if len(one) == 7 else [*one, [], [0, 0]]) for one in place["sequencers"]]
    folds = _spread(chains, old) if old and sum(len(one[2]) for one in old) == sum(map(len, chains)) else old
    again: list[list[int]] = []
    if len(partial) == 1 and partial[0][1] == list(range(len(partial[0][1]))) and folds:
        position, results = partial[0]
        again, folds[0][0] = [[place["source"][0], position, position + 1]], len(results)
    elif partial:
        raise _no_such_place("some of the results of several elements were delivered")
    out = {"source": place["source"], "done": runs, "again": again, "folds": folds, "older": bool(runs)}
    return {**out, "stream": place["stream"]} if "stream" in place else out


def _spread(chains: Sequence[tuple[Fold, ...]], old: list[list[Any]]) -> list[list[Any]]:
    """Spread the records of fold runners over those of today, which have the same folds in the same order."""
    states = [state for one in old for state in one[2]]
    begins = [sum(map(len, chains[:number])) for number in range(len(chains))]
    folds: list[list[Any]] = [
        [0, 0, states[begin : begin + len(chain)], 0, 0, [], [0, 0]] for begin, chain in zip(begins, chains, strict=True)
    ]
    begin = 0
    for number, (skip, mode, some, recall, drop, known, replay) in enumerate(old):
        here = [place for place, first in enumerate(begins) if first < begin + len(some) and begin < first + len(chains[place])]
        here = here or [min(number, len(folds) - 1)]
        first, last = here[0], here[-1]
        holding = next((one for one in here if any(hasattr(fold, "held") for fold in chains[one])), first)
        folds[first][0], folds[holding][3], folds[last][4], folds[first][5], folds[first][6] = skip, recall, drop, known, replay
        folds[last if mode == PASS_END else first][1] = mode
        begin += len(some)
    return folds


def _before_batches(root: Node, place: dict[str, Any], epoch: int) -> dict[str, Any]:
    """Say a place that counts the elements before a batch as one between batches, or name what was delivered of the pass."""
    lowest, above = _batch_and_above(root)
    passes: float = 1
    for node in above:
        passes *= INFINITE if node.num_passes is None else node.num_passes
    pass_number, position = place["source"]
    pass_number -= epoch * (1 if passes == INFINITE else int(passes))
    mode = place["sequencers"][0][1] if place["sequencers"] else OPEN
    done = Runs([(0, position), *((begin, end) for begin, end in place["done"][0])])
    length = length_of(lowest.children[0])
    whole = length not in (None, INFINITE) and done.gap(0, int(length or 0))[0] >= int(length or 0)
    if mode == DROP_END or (whole and mode != PASS_END):
        pass_number, done = pass_number + 1, Runs()
    if mode == PASS_END or pass_number >= passes:
        return _plain(epoch, int(length_of(root) or 0))
    return _in_pass(lowest, epoch, pass_number, [list(run) for run in done.without(())])


def _in_pass(batch: Node, epoch: int, pass_number: int, runs: list[list[int]]) -> dict[str, Any]:
    """Return the position behind elements of a pass: one between batches if they are whole ones."""
    size, per_pass = batch.batch_size_each() or 1, length_of(batch)
    if runs and (len(runs) > 1 or runs[0][0] or runs[0][1] % size):
        return {**_plain(epoch, 0), "behind": [pass_number, runs]}
    start = 0 if per_pass == INFINITE else pass_number * int(per_pass or 0)
    return _plain(epoch, start + (runs[0][1] // size if runs else 0))


def _batch_and_above(root: Node) -> tuple[Node, list[Node]]:
    """Return the lowest batch of a plan, and the nodes behind it, which are maps, hints and at most one repeat."""
    lowest, chain = _lowest_batch(root), chain_of(root)
    above = [] if lowest is None else chain[chain.index(lowest) + 1 :]
    kinds = [node.moves_as for node in above]
    if lowest is None or lowest.moves_as != "batch" or kinds.count("repeat") > 1 or set(kinds) - {"same", "repeat"}:
        raise _no_such_place("operators other than map, prefetch and one repeat stand after the batch")
    return lowest, above


def _plain(epoch: int, position: int) -> dict[str, Any]:
    return {"source": [epoch, position], "done": [], "again": [], "folds": []}


def _parts_behind(root: Node, behind: Behind, epoch: int) -> tuple[Node, int | None]:
    """Return the plan of what is left of a pass of which elements were delivered that are no whole batches, and the position behind it.

    The position is None where the epoch ends with that pass.

    Raises:
        StateMismatch: the plan is none that a state of an earlier version has such a place in.
    """
    lowest, above = _batch_and_above(root)
    (pass_number, runs), repeat = behind, next((node for node in above if node.moves_as == "repeat"), None)
    count = 1 if repeat is None else repeat.num_passes
    plan = lowest.with_children([_left_of(lowest.children[0], runs, pass_number + epoch * (count or 1))])
    for node in above:
        plan = node.with_children([plan]) if node is not repeat else Repeat(child=plan, count=1, first=pass_number, whole=count)
    if repeat is None or (count is not None and pass_number + 1 >= count):
        return plan, None
    return plan, (pass_number + 1) * int(length_of(repeat.children[0]) or 0)


def _left_of(child: Node, runs: Sequence[tuple[int, int]], pass_number: int) -> Node:
    """Return what is left of a pass without some of its elements."""
    if len(runs) == 1 and runs[0][0] == 0:
        return Skip(child=child, count=runs[0][1])
    length = length_of(child)
    if length is None or length == INFINITE:
        raise _no_such_place("the dataset before the batch has no end")
    left = np.ones(int(length), np.bool_)
    for begin, end in runs:
        left[begin:end] = False
    return Pick(child=child, places=tuple((pass_number, int(place)) for place in np.flatnonzero(left)))


def _no_such_place(words: str) -> StateMismatch:
    return StateMismatch(
        f"an earlier version of penstock saved this state at a place that this version does not have: {words}",
        where="load_state_dict()",
        fix="begin the epoch again, or go on with the version that saved it",
    )
